import type { Inspection, Promised } from '../core/admission.js';
import type { VoteReply } from '../core/answers.js';
import type { Roster, Voter } from '../core/quorum.js';
import type { NodeReport } from '../core/status.js';
import { unexpected } from './calls.js';

export type NodeFailure = { readonly answer: 'error'; readonly error: Error };
export type ExtendReply =
  | ({ readonly answer: 'extended' } & Omit<Voter, 'index'>)
  | Exclude<VoteReply, { readonly answer: 'granted' | 'held' }>;
export type ReleaseReply = { readonly answer: 'released' | 'not-held' } | NodeFailure;
export type InspectReply = ({ readonly answer: 'inspected' } & Inspection) | NodeFailure;
export type PromiseReply =
  | ({ readonly answer: 'promised' } & Omit<Promised, 'index'>)
  | { readonly answer: 'refused' | 'changed' | 'wrong-members' }
  | NodeFailure;
export type AdmitReply =
  | { readonly answer: 'admitted' | 'already-admitted' | 'changed' | 'wrong-members' }
  | { readonly answer: 'too-early'; readonly leftMs: number }
  | NodeFailure;
/** Without the clock's difference, which only the asker can tell; `timeMs` is the node's clock. */
export type StatusReply =
  | ({ readonly answer: 'status'; readonly timeMs: number } & Omit<NodeReport, 'clockDifferenceMs'>)
  | NodeFailure;
export type RetireReply = { readonly answer: 'retired' | 'changed' } | NodeFailure;

/** What a reply is read by: the lock service that this client was configured for, as one node sees it. */
export interface Membership {
  /** Digest of the sorted node names and of this node's own. */
  readonly members: string;
  /** How many entries a roster must have. */
  readonly nodeCount: number;
}

// Each reads the reply of one script. Whatever is not a reply of it is an error.

export function vote(reply: readonly unknown[], service: Membership): VoteReply {
  const [answer, first, generation, incarnation, known] = reply;
  if (answer === 'held') {
    return { answer, remainingMs: wholeNumber(first), timeMs: wholeNumber(generation) };
  }
  if (answer !== 'granted') return refusal(reply);
  const life = { generation: wholeNumber(generation), incarnation: text(incarnation) };
  return { answer, token: BigInt(text(first)), ...life, roster: roster(known, service) };
}

/** What a reply of INSPECT or of the status script begins with. */
function inspection(reply: readonly unknown[], service: Membership): Inspection {
  const [, history, incarnation, admitted, generation, known, max, longest, members, waited] =
    reply;
  return {
    history: text(history),
    incarnation: text(incarnation),
    admitted: wholeNumber(admitted) === 1,
    generation: wholeNumber(generation),
    roster: isOfUse(known, text(members), service) ? roster(known, service) : [],
    max: BigInt(text(max)),
    longestMs: wholeNumber(longest),
    members: text(members),
    waitedMs: wholeNumber(waited),
  };
}

/** One that belongs to another lock service may know of other nodes. */
function isOfUse(known: unknown, members: string, service: Membership): boolean {
  return known !== '' && members === service.members;
}

export function inspected(reply: readonly unknown[], service: Membership): InspectReply {
  return { answer: oneOf(reply, 'inspected'), ...inspection(reply, service) };
}

export function report(reply: readonly unknown[], service: Membership): StatusReply {
  const [version, role, evictionPolicy, appendOnly, time] = reply.slice(10);
  return {
    answer: oneOf(reply, 'status'),
    ...inspection(reply, service),
    version: text(version),
    role: text(role),
    evictionPolicy: text(evictionPolicy),
    appendOnly: appendOnly === '1',
    timeMs: wholeNumber(time),
  };
}

export function promised(reply: readonly unknown[], service: Membership): PromiseReply {
  const [answer, max, longest, admitted, generation, incarnation, known] = reply;
  if (answer !== 'promised') {
    return { answer: oneOf(reply, 'refused', 'changed', 'wrong-members') };
  }
  return {
    answer,
    max: BigInt(text(max)),
    longestMs: wholeNumber(longest),
    admitted: wholeNumber(admitted) === 1,
    generation: wholeNumber(generation),
    incarnation: text(incarnation),
    roster: roster(known, service),
  };
}

export function admitted(reply: readonly unknown[]): AdmitReply {
  return reply[0] === 'too-early'
    ? { answer: 'too-early', leftMs: wholeNumber(reply[1]) }
    : { answer: oneOf(reply, 'admitted', 'already-admitted', 'changed', 'wrong-members') };
}

export function extended(reply: readonly unknown[], service: Membership): ExtendReply {
  const [answer, generation, incarnation, known] = reply;
  if (answer !== 'extended') return refusal(reply);
  const life = { generation: wholeNumber(generation), incarnation: text(incarnation) };
  return { answer, ...life, roster: roster(known, service) };
}

/** The roster that each node sent last: it sends the same with every vote until a node is admitted anew. */
const lastRosters = new WeakMap<Membership, { readonly value: unknown; readonly roster: Roster }>();

function roster(value: unknown, service: Membership): Roster {
  const last = lastRosters.get(service);
  if (last && last.value === value) return last.roster;
  const entries = text(value).split(',');
  if (entries.length !== service.nodeCount) throw unexpected(value);
  const read = entries.map((entry) => {
    const [generation, incarnation] = entry.split(':');
    return { generation: wholeNumber(generation), incarnation: text(incarnation) };
  });
  lastRosters.set(service, { value, roster: read });
  return read;
}

function refusal(
  reply: readonly unknown[],
): Exclude<VoteReply, { readonly answer: 'granted' | 'held' }> {
  if (reply[0] === 'ttl-too-long') {
    return { answer: 'ttl-too-long', maxTtlMs: wholeNumber(reply[1]) };
  }
  return {
    answer: oneOf(reply, 'not-admitted', 'wrong-members', 'token-exhausted', 'not-held'),
  };
}

export function rosterText(roster: Roster): string {
  return roster.map(({ generation, incarnation }) => `${generation}:${incarnation}`).join(',');
}

export function oneOf<Answer extends string>(
  reply: readonly unknown[],
  ...answers: Answer[]
): Answer {
  const answer = answers.find((one) => one === reply[0]);
  if (answer === undefined) throw unexpected(reply);
  return answer;
}

export function text(value: unknown): string {
  if (typeof value === 'string') return value;
  throw unexpected(value);
}

function wholeNumber(value: unknown): number {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw unexpected(value);
}
