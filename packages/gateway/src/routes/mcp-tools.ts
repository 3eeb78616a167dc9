import { encodedPath } from '@fenced/client/protocol/path';
import * as z from 'zod';
import type { Names } from '../exchange.js';
import { LEASE_FACTS, PRESENTED_TOKEN, TOKEN, WRITE_ID } from '../wire-schemas.js';

/** A tool of agents: one operation of the OpenAPI document, with arguments and results by name. */
export interface Tool<Input extends z.ZodObject = z.ZodObject> {
  readonly description: string;
  readonly input: Input;
  readonly output: z.ZodObject;
  readonly annotations: Annotations;
  /** Its `operationId`. */
  operation(input: z.infer<Input>): string;
  call(input: z.infer<Input>): ToolCall;
  /** The result of a read: its member for the body, which gets the headers beside it. */
  readonly body?: 'text' | 'document';
}

/** Effects of a tool, as the protocol defines them. A host may ask its user first. */
interface Annotations {
  readonly readOnlyHint?: boolean;
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
}

export interface ToolCall {
  readonly names: Names;
  readonly json?: unknown;
  readonly text?: string;
  /** The token of the lease, the resource of the lease, and the only version to replace. */
  readonly token?: string | undefined;
  readonly resource?: string | undefined;
  readonly version?: string | undefined;
  readonly isNew?: boolean | undefined;
}

/** The order of the calls, for the model. */
export const INSTRUCTIONS =
  'Fenced locks resources, and stores objects and records that refuse a late writer. To change a value: 1. acquire_lease on its resource, which has the name of the value. 2. Read the value with the token, which also shuts out earlier holders. 3. Write it with the same token, before remainingMs are over, or call extend_lease. 4. release_lease. A lease ends by itself, so you may be late without noticing. A write that is refused as stale-token is lost: begin again at 1, and decide again from what you read. Never reuse an old token.';

function tool<Input extends z.ZodObject>(one: Tool<Input>): Tool {
  return one as unknown as Tool;
}

const RESOURCE = z.string().describe('The locked resource, such as invoice/42.');
const RESOURCES = z.array(z.string()).describe('The locked resources: all are locked, or none.');
const LEASE_ID = z.string().describe('leaseId of the latest answer for the lease.');
const TTL_MS = z.number().describe('Milliseconds for which the lease lasts.');
const WAIT_MS = z
  .number()
  .optional()
  .describe('Milliseconds to wait if another caller holds the lock.');
const KEY = z.string().describe('The key of the object.');
const RECORD = {
  collection: z.string().describe('The collection of the record.'),
  id: z.string().describe('The id of the record.'),
};
const TOKEN_OF_LEASE = z
  .string()
  .describe('The token of your lease, whole, as acquire_lease returned it.');
const GUARD = RESOURCE.optional().describe(
  'The resource of the lease, if it differs from the key, or from collection/id.',
);
const CLAIM = {
  token: TOKEN_OF_LEASE.optional().describe(
    'The token of your lease, if you will write a value computed from this one. Writes of earlier holders are refused from then on.',
  ),
  resource: GUARD,
};
const WRITE = {
  token: TOKEN_OF_LEASE,
  resource: GUARD,
  version: z
    .string()
    .optional()
    .describe('version of a read: the write is refused if another version is stored by now.'),
  isNew: z.boolean().optional().describe('true: the write is refused if a value is stored.'),
};

const LEASE = z.object({ resource: z.string(), token: PRESENTED_TOKEN, ...LEASE_FACTS });
const LEASE_SET = z.object({
  resources: z.array(z.string()),
  tokens: z.array(z.object({ resource: z.string(), token: PRESENTED_TOKEN })),
  ...LEASE_FACTS,
});
const OUTCOME = { outcome: z.enum(['released', 'expired']) };
const WRITTEN = z.object({ token: TOKEN, version: z.string().nullable(), writeId: WRITE_ID });
const READ = { version: z.string(), token: TOKEN, writeId: WRITE_ID };

const CLAIMS: Annotations = { readOnlyHint: false, destructiveHint: false, idempotentHint: true };
const TAKES: Annotations = { ...CLAIMS, idempotentHint: false };
const REPLACES: Annotations = { readOnlyHint: false, destructiveHint: true, idempotentHint: true };
const LOOKS: Annotations = { readOnlyHint: true };

export const LEASE_TOOLS: Readonly<Record<string, Tool>> = {
  acquire_lease: tool({
    description:
      'Takes the lock on a resource for ttlMs milliseconds. Returns its token, which every write needs, and its leaseId.',
    input: z.strictObject({ resource: RESOURCE, ttlMs: TTL_MS, waitMs: WAIT_MS }),
    output: LEASE,
    annotations: TAKES,
    operation: () => 'acquireLease',
    call: ({ resource, ...json }) => ({ names: { resource }, json }),
  }),
  extend_lease: tool({
    description:
      'Lets a lease last at least ttlMs from now on, with the same token. Call it before remainingMs are over.',
    input: z.strictObject({ resource: RESOURCE, leaseId: LEASE_ID, ttlMs: TTL_MS }),
    output: LEASE,
    annotations: TAKES,
    operation: () => 'extendLease',
    call: ({ ttlMs, ...names }) => ({ names, json: { ttlMs } }),
  }),
  release_lease: tool({
    description:
      'Releases a lease when the work is done, so that others need not wait for its end.',
    input: z.strictObject({ resource: RESOURCE, leaseId: LEASE_ID }),
    output: z.object({ resource: z.string(), ...OUTCOME }),
    annotations: CLAIMS,
    operation: () => 'releaseLease',
    call: (names) => ({ names }),
  }),
  acquire_lease_set: tool({
    description:
      'Takes the locks on several resources together, or none of them. Returns a token for each.',
    input: z.strictObject({ resources: RESOURCES, ttlMs: TTL_MS, waitMs: WAIT_MS }),
    output: LEASE_SET,
    annotations: TAKES,
    operation: () => 'acquireLeaseSet',
    call: (json) => ({ names: {}, json }),
  }),
  extend_lease_set: tool({
    description: 'As extend_lease, for a lease of acquire_lease_set.',
    input: z.strictObject({ resources: RESOURCES, leaseId: LEASE_ID, ttlMs: TTL_MS }),
    output: LEASE_SET,
    annotations: TAKES,
    operation: () => 'extendLeaseSet',
    call: ({ leaseId, ...json }) => ({ names: { leaseId }, json }),
  }),
  release_lease_set: tool({
    description: 'As release_lease, for a lease of acquire_lease_set.',
    input: z.strictObject({ resources: RESOURCES, leaseId: LEASE_ID }),
    output: z.object({ resources: z.array(z.string()), ...OUTCOME }),
    annotations: CLAIMS,
    operation: () => 'releaseLeaseSet',
    call: ({ leaseId, ...json }) => ({ names: { leaseId }, json }),
  }),
};

export const OBJECT_TOOLS: Readonly<Record<string, Tool>> = {
  read_object: tool({
    description: 'Reads an object as text, with its version.',
    input: z.strictObject({ key: KEY, ...CLAIM }),
    output: z.object({ text: z.string(), ...READ }),
    annotations: CLAIMS,
    operation: ({ token }) => (token === undefined ? 'readObject' : 'claimAndReadObject'),
    call: ({ key, ...rest }) => ({ names: { key }, ...rest }),
    body: 'text',
  }),
  write_object: tool({
    description:
      'Replaces an object. The write is refused if a later holder of the lock has written or claimed the object.',
    input: z.strictObject({ key: KEY, text: z.string(), ...WRITE }),
    output: WRITTEN,
    annotations: REPLACES,
    operation: () => 'writeObject',
    call: ({ key, ...rest }) => ({ names: { key }, ...rest }),
  }),
  delete_object: tool({
    description: 'Deletes an object. Its highest token stays, so late writers are still refused.',
    input: z.strictObject({ key: KEY, ...WRITE }).omit({ isNew: true }),
    output: WRITTEN,
    annotations: REPLACES,
    operation: () => 'deleteObject',
    call: ({ key, ...rest }) => ({ names: { key }, ...rest }),
  }),
};

export const RECORD_TOOLS: Readonly<Record<string, Tool>> = {
  read_record: tool({
    description: 'Reads a JSON document, with its version.',
    input: z.strictObject({ ...RECORD, ...CLAIM }),
    output: z.object({ document: z.json(), ...READ }),
    annotations: CLAIMS,
    operation: ({ token }) => (token === undefined ? 'readRecord' : 'claimAndReadRecord'),
    call: ({ collection, id, ...rest }) => ({ names: { collection, id }, ...rest }),
    body: 'document',
  }),
  write_record: tool({
    description:
      'Replaces a JSON document. The write is refused if a later holder of the lock has written or claimed the document.',
    input: z.strictObject({ ...RECORD, document: z.json(), ...WRITE }),
    output: WRITTEN,
    annotations: REPLACES,
    operation: () => 'writeRecord',
    call: ({ collection, id, document: json, ...rest }) => ({
      names: { collection, id },
      json,
      ...rest,
    }),
  }),
  delete_record: tool({
    description: 'Deletes a document. Its highest token stays, so late writers are still refused.',
    input: z.strictObject({ ...RECORD, ...WRITE }).omit({ isNew: true }),
    output: WRITTEN,
    annotations: REPLACES,
    operation: () => 'deleteRecord',
    call: ({ collection, id, ...rest }) => ({ names: { collection, id }, ...rest }),
  }),
};

export const STORE_TOOLS: Readonly<Record<string, Tool>> = {
  settle_write: tool({
    description: 'Reports the outcome of a write that ended with outcome-unknown.',
    input: z.strictObject({ writeId: z.string().describe('writeId of the refused call.') }),
    output: z.object({ writeId: WRITE_ID, outcome: z.enum(['applied', 'not-applied', 'unknown']) }),
    annotations: LOOKS,
    operation: () => 'readWriteOutcome',
    call: (names) => ({ names }),
  }),
};

/** The headers of a call, with names in lower case. */
export function headersOf(call: ToolCall): Record<string, string> {
  const { json, text, token, resource, version, isNew } = call;
  return {
    ...(json !== undefined && { 'content-type': 'application/json' }),
    ...(text !== undefined && { 'content-type': 'text/plain; charset=utf-8' }),
    ...(token !== undefined && { 'fencing-token': token }),
    ...(token !== undefined &&
      resource !== undefined && { 'fencing-resource': encodedPath(resource) }),
    ...(version !== undefined && { 'if-match': `"${version}"` }),
    ...(isNew && { 'if-none-match': '*' }),
  };
}
