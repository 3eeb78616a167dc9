import { createHash } from 'node:crypto';
import type { PostgresClient } from './client.js';

/** How often a statement is sent to a connection before the server is asked to keep it, parsed and planned. */
const USES_BEFORE = 3;

/** How many statements of the caller's one connection keeps, and how many it counts the uses of. */
const STATEMENTS_MAX = 100;

/** In UTF-16 code units: longer ones are made of data, mostly, and not sent again. */
const TEXT_LENGTH_MAX = 8_192;

/** What is known of one connection. */
interface Statements {
  readonly names: Map<string, string | undefined>;
  readonly uses: Map<string, number>;
}

const statementsOf = new WeakMap<PostgresClient, Statements>();

/** Connections on which names do not last: PgBouncer gives each transaction another server, or somebody discards them. */
const withoutNames = new WeakSet<PostgresClient>();

export function takesNames(client: PostgresClient): boolean {
  return !withoutNames.has(client);
}

export function sendWithoutNames(client: PostgresClient): void {
  withoutNames.add(client);
}

/**
 * What the server may keep this statement under; undefined where it may not, or it was not sent often enough.
 *
 * Invariant: one name, one text. Behind PgBouncer others may have prepared it, on whichever server comes next.
 */
export function nameFor(client: PostgresClient, text: string): string | undefined {
  if (text.length > TEXT_LENGTH_MAX || !takesNames(client)) return undefined;
  const { names, uses } = known(client);
  if (names.has(text) || names.size >= STATEMENTS_MAX) return names.get(text);
  const times = (uses.get(text) ?? 0) + 1;
  // Texts that never come again would fill it.
  if (uses.size >= STATEMENTS_MAX) uses.clear();
  uses.set(text, times);
  if (times < USES_BEFORE) return undefined;
  const name = `fenced_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`;
  names.set(text, name);
  uses.delete(text);
  return name;
}

/** From now on this one is parsed each time: what it gives has changed since it was prepared. */
export function sendWithoutName(client: PostgresClient, text: string): void {
  known(client).names.set(text, undefined);
}

function known(client: PostgresClient): Statements {
  const statements = statementsOf.get(client) ?? { names: new Map(), uses: new Map() };
  statementsOf.set(client, statements);
  return statements;
}
