import type { MismatchReply, NodeFailure, VoteReply } from '../core/answers.js';
import type { HeldRecord, Sealed } from '../core/move.js';
import type { Roster, Voter } from '../core/quorum.js';
import type { Inspection, Promised } from '../core/readmission.js';
import type { NodeReport } from '../core/status.js';
import { type Reply, unexpected } from './command.js';

/** A reply, or the reason why there is none. */
type OrRefused<Reply> = Reply | MismatchReply | NodeFailure;

export type ExtendReply =
  | ({ readonly answer: 'extended' } & Omit<Voter, 'index'>)
  | Exclude<VoteReply, { readonly answer: 'granted' | 'held' }>;
export type ReleaseReply = OrRefused<{ readonly answer: 'released' | 'not-held' }>;
export type InspectReply = OrRefused<{ readonly answer: 'inspected' } & Inspection>;
export type PromiseReply = OrRefused<
  | ({ readonly answer: 'promised' } & Omit<Promised, 'index'>)
  | { readonly answer: 'refused' | 'changed' }
>;
export type AdmitReply = OrRefused<
  | { readonly answer: 'admitted' | 'already-admitted' | 'changed' }
  | { readonly answer: 'too-early'; readonly leftMs: number }
>;
export type StatusReply = ({ readonly answer: 'status' } & NodeReport) | NodeFailure;
/** A status report with the node's clock, in place of the difference from ours. */
type TimedReport = { readonly answer: 'status'; readonly timeMs: number } & Omit<
  NodeReport,
  'clockDifferenceMs'
>;
/** SEAL: the facts as of the node's last vote. `voting`: the node has not lost its data since. */
export type SealReply = OrRefused<
  | ({ readonly answer: 'sealed' } & Omit<Sealed, 'index'>)
  | { readonly answer: 'sealed-for'; readonly nextSet: string }
>;
export type PrepareReply = OrRefused<
  | { readonly answer: 'prepared' | 'voting' | 'changed' }
  | { readonly answer: 'awaits'; readonly previousSet: string }
>;
export type LeasesReply = OrRefused<
  | {
      readonly answer: 'leases';
      /** '0' at the end. */
      readonly cursor: string;
      readonly leases: readonly HeldRecord[];
    }
  | { readonly answer: 'changed' }
>;
export type CarryReply = OrRefused<{ readonly answer: 'carried' | 'voting' | 'changed' }>;
export type LimitReply = OrRefused<{ readonly answer: 'limited' | 'changed' }>;
export type RetireReply = OrRefused<{ readonly answer: 'retired' | 'changed' }>;

/**
 * The lock service that this client is configured for, as one node sees it. It is needed to read
 * replies.
 */
export interface Membership {
  /** The storage version, and a digest of the sorted node names and of this node's own. */
  readonly members: string;
  /** The sorted names; a roster has as many entries. */
  readonly names: readonly string[];
}

// Each of these functions reads the reply of one script, and throws if it has another form.

export function vote({ parts, voters }: Reply, service: Membership): VoteReply {
  const [answer, first, second, followers] = parts;
  if (answer === 'held') {
    return { answer, remainingMs: wholeNumber(first), timeMs: wholeNumber(second) };
  }
  if (answer !== 'granted') return refusal({ parts, voters }, service);
  const { generation, incarnation, roster } = voter(voters[wholeNumber(second) - 1], service);
  const granted = { answer, token: BigInt(text(first)), generation, incarnation, roster } as const;
  return followers === undefined ? granted : { ...granted, followers: wholeNumber(followers) };
}

/** The end of the field `members` of a sealed node; see node.lua. */
const SEALED = ' sealed';
/** The place of the roster in the replies of INSPECT and STATUS. */
const ROSTER_AT = 5;

/** Reads the parts that the replies of INSPECT and STATUS have in common. */
function inspection(
  reply: readonly unknown[],
  [awaits, maxTtl]: readonly unknown[],
  service: Membership,
): Inspection {
  const [, history, incarnation, voting, generation, known, max, longest] = reply;
  return {
    history: text(history),
    incarnation: text(incarnation),
    voting: wholeNumber(voting) === 1,
    generation: wholeNumber(generation),
    roster: known === '' ? [] : roster(known, service),
    max: BigInt(text(max)),
    longestMs: wholeNumber(longest),
    awaits: awaits === '' ? null : awaits === '1' ? 'early' : 'late',
    maxTtlMs: limitOf(maxTtl),
  };
}

export function inspected({ parts }: Reply, service: Membership): InspectReply {
  const refusal = mismatch(parts);
  if (refusal) return refusal;
  return { answer: oneOf(parts, 'inspected'), ...inspection(parts, parts.slice(8), service) };
}

export function report({ parts }: Reply, service: Membership): TimedReport {
  const [waited, version, role, evictionPolicy, appendOnly, time] = parts.slice(8);
  const [members, knownAs, names] = parts.slice(14);
  const [usedMemory, maxMemory, records] = parts.slice(17);
  const [nextSet, awaits, previousSet, maxTtl] = parts.slice(20).map(text);
  const setUp = text(members) === '' ? null : setUpOf(text(members), knownAs, names);
  // A node of another lock service may have other nodes in its roster.
  const isOwn = members === service.members || members === `${service.members}${SEALED}`;
  const seen = inspection(isOwn ? parts : parts.with(ROSTER_AT, ''), [awaits, maxTtl], service);
  return {
    answer: oneOf(parts, 'status'),
    ...seen,
    // A sealed node keeps what it remembers of its votes, for the move.
    voting: seen.voting && nextSet === '',
    nextSet: nextSet || null,
    previousSet: previousSet || null,
    waitedMs: wholeNumber(waited),
    setUp: setUp && { ...setUp, isOwn },
    version: text(version),
    role: text(role),
    evictionPolicy: text(evictionPolicy),
    appendOnly: appendOnly === '1',
    usedMemoryBytes: wholeNumber(usedMemory),
    maxMemoryBytes: wholeNumber(maxMemory) || null,
    resources: records === '' ? null : wholeNumber(records),
    timeMs: wholeNumber(time),
  };
}

export function promised({ parts }: Reply, service: Membership): PromiseReply {
  const [answer] = parts;
  if (answer === 'promised') {
    return { answer, ...promiseOf(parts), roster: roster(parts[PROMISED_ROSTER_AT], service) };
  }
  return mismatch(parts) ?? { answer: oneOf(parts, 'refused', 'changed') };
}

export function sealed({ parts }: Reply, service: Membership): SealReply {
  if (parts[0] === 'sealed-for') return { answer: 'sealed-for', nextSet: text(parts[1]) };
  const refusal = mismatch(parts);
  if (refusal) return refusal;
  const known = parts[PROMISED_ROSTER_AT];
  const answer = oneOf(parts, 'sealed');
  const maxTtlMs = limitOf(parts[PROMISED_ROSTER_AT + 1]);
  const latest = known === '' ? [] : roster(known, service);
  return { answer, ...promiseOf(parts), roster: latest, maxTtlMs };
}

/** The place of the roster in the replies of PROMISE and SEAL. */
const PROMISED_ROSTER_AT = 6;

/** Reads the parts that the replies of PROMISE and SEAL have in common. */
function promiseOf(reply: readonly unknown[]): Omit<Promised, 'index' | 'roster'> {
  const [, max, longest, voting, generation, incarnation] = reply;
  return {
    max: BigInt(text(max)),
    longestMs: wholeNumber(longest),
    voting: wholeNumber(voting) === 1,
    generation: wholeNumber(generation),
    incarnation: text(incarnation),
  };
}

export function prepared({ parts }: Reply): PrepareReply {
  if (parts[0] === 'awaits') return { answer: 'awaits', previousSet: text(parts[1]) };
  return mismatch(parts) ?? { answer: oneOf(parts, 'prepared', 'voting', 'changed') };
}

/** The number of parts for each lease in a reply to LEASES. */
const LEASE_PARTS = 4;

export function leases({ parts }: Reply): LeasesReply {
  const [answer, cursor, ...found] = parts;
  if (answer !== 'leases') return mismatch(parts) ?? { answer: oneOf(parts, 'changed') };
  const list = Array.from({ length: found.length / LEASE_PARTS }, (_, at) => {
    const [resource, owner, remaining, token] = found.slice(LEASE_PARTS * at);
    const remainingMs = wholeNumber(remaining);
    return { resource: text(resource), owner: text(owner), remainingMs, token: text(token) };
  });
  return { answer, cursor: text(cursor), leases: list };
}

export function carried({ parts }: Reply): CarryReply {
  return mismatch(parts) ?? { answer: oneOf(parts, 'carried', 'voting', 'changed') };
}

export function admitted({ parts }: Reply): AdmitReply {
  return parts[0] === 'too-early'
    ? { answer: 'too-early', leftMs: wholeNumber(parts[1]) }
    : (mismatch(parts) ?? { answer: oneOf(parts, 'admitted', 'already-admitted', 'changed') });
}

export function limited({ parts }: Reply): LimitReply {
  return mismatch(parts) ?? { answer: oneOf(parts, 'limited', 'changed') };
}

export function retired({ parts }: Reply): RetireReply {
  return mismatch(parts) ?? { answer: oneOf(parts, 'retired', 'changed') };
}

export function released({ parts }: Reply): ReleaseReply {
  return mismatch(parts) ?? { answer: oneOf(parts, 'released', 'not-held') };
}

export function extended({ parts, voters }: Reply, service: Membership): ExtendReply {
  const [answer, place] = parts;
  if (answer !== 'extended') return refusal({ parts, voters }, service);
  return { answer, ...voter(voters[wholeNumber(place) - 1], service) };
}

type VoterFacts = Omit<Voter, 'index'>;

/**
 * The last `vote` text of each node, and its meaning. A node sends the same text until some node
 * is readmitted.
 */
const lastVoters = new WeakMap<Membership, { sent: string; readonly facts: VoterFacts }>();

function voter(sent: string | undefined, service: Membership): VoterFacts {
  const last = lastVoters.get(service);
  if (last && last.sent === sent) {
    // Later votes of the same script share this string. Comparing a string with itself is fast.
    last.sent = sent;
    return last.facts;
  }
  const [generation, incarnation, known] = text(sent).split(' ');
  const facts = {
    generation: wholeNumber(generation),
    incarnation: text(incarnation),
    roster: roster(known, service),
  };
  lastVoters.set(service, { sent: text(sent), facts });
  return facts;
}

function roster(value: unknown, service: Membership): Roster {
  const entries = text(value).split(',');
  if (entries.length !== service.names.length) throw unexpected(value);
  return entries.map((entry) => {
    const [generation, incarnation] = entry.split(':');
    return { generation: wholeNumber(generation), incarnation: text(incarnation) };
  });
}

function refusal(
  { parts, voters }: Pick<Reply, 'parts' | 'voters'>,
  service: Membership,
): Exclude<VoteReply, { readonly answer: 'granted' | 'held' }> {
  const [answer, first, place] = parts;
  if (answer === 'ttl-too-long') return { answer, maxTtlMs: wholeNumber(first) };
  if (answer === 'not-held' && first !== undefined) {
    const { incarnation } = voter(voters[wholeNumber(place) - 1], service);
    return { answer, tokenBound: { number: text(first), incarnation } };
  }
  return (
    mismatch(parts) ?? {
      answer: oneOf(parts, 'not-voting', 'token-exhausted', 'not-held', 'head'),
    }
  );
}

/** The refusal by `mismatch` of `node.lua`; null for any other reply. */
function mismatch([answer, first, second, third]: readonly unknown[]): MismatchReply | null {
  if (answer === 'not-master') return { answer, role: text(first) };
  if (answer === 'wrong-version') return { answer, storageVersion: wholeNumber(first) };
  if (answer !== 'config-mismatch') return null;
  const refused = { answer, knownAs: text(first), members: namesIn(second) } as const;
  return third === undefined || third === '' ? refused : { ...refused, nextSet: text(third) };
}

/** The configuration of a node, from its fields `members`, `name` and `names`. */
function setUpOf(members: string, knownAs: unknown, names: unknown) {
  const [, version = 0] = /^(\d+) /.exec(members) ?? [];
  return { storageVersion: wholeNumber(version), knownAs: text(knownAs), members: namesIn(names) };
}

/** Empty if the node keeps none that can be read. */
function namesIn(value: unknown): readonly string[] {
  try {
    const names: unknown = JSON.parse(text(value));
    return Array.isArray(names) ? names.map(text) : [];
  } catch {
    return [];
  }
}

export function rosterText(roster: Roster): string {
  return roster.map(({ generation, incarnation }) => `${generation}:${incarnation}`).join(',');
}

function oneOf<Answer extends string>(reply: readonly unknown[], ...answers: Answer[]): Answer {
  const answer = answers.find((one) => one === reply[0]);
  if (answer === undefined) throw unexpected(reply);
  return answer;
}

function text(value: unknown): string {
  if (typeof value === 'string') return value;
  throw unexpected(value);
}

/** The limit of a node; null if it has none. */
function limitOf(value: unknown): number | null {
  return text(value) === '' ? null : wholeNumber(value);
}

function wholeNumber(value: unknown): number {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw unexpected(value);
}
