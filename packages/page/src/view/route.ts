import { mutants } from '../../../../test/simulation/mutant-list.ts';
import { type Protection, protections } from '../../../demo/src/job.ts';
import { ids, stories } from '../stories/stories.ts';
import {
  faultKinds,
  messageFaults,
  nodeFaults,
  type Sandbox,
  type SandboxFault,
} from '../world/sandbox-fault.ts';

/** The longest link that the page reads or writes, in characters. */
export const LINK_MAX = 2_000;
const FAULTS_MAX = 40;
const TIME_MAX_MS = 60_000;
export const LENGTH_MAX_MS = 3_600_000;
const WITHOUT_MAX = 400;

/** The whole state of the page, as its link has it. */
export type Route =
  | { readonly page: 'start' }
  /** The list of the stories. */
  | { readonly page: 'stories' }
  | {
      readonly page: 'story';
      readonly id: string;
      readonly protection: Protection;
      readonly votesAtOnce: boolean;
      /** Number of steps that were shown. */
      readonly step: number;
      /** The reader's prediction. Empty if there is none. */
      readonly guess: string;
    }
  | ({ readonly page: 'sandbox'; readonly atMs: number } & Sandbox)
  | {
      readonly page: 'remove';
      readonly mutant: string;
      /** The seed of the world to show, or null to search for a world. */
      readonly seed: number | null;
      readonly without: readonly number[];
    }
  /** Live or recorded runs. `from` is the address of a recorded run, or empty. */
  | { readonly page: 'real'; readonly from: string };

export const guesses = ['', 'safe', 'lost', 'two holders', 'refused'] as const;

/** A link that is not valid. The message says which value, and what to do. */
export class LinkError extends Error {}

/** @param hash as in `#/story/1?protection=lock&step=2` @throws {LinkError} */
export function parseRoute(hash: string): Route {
  if (hash.length > LINK_MAX)
    throw new LinkError(`it has ${hash.length} characters; at most ${LINK_MAX} are allowed`);
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const values = new URLSearchParams(query);
  const [page = '', id = '', ...rest] = path.split('/');
  if (rest.length > 0) throw new LinkError(`there is no page ${shown(path)}`);
  if (page === '') return { page: 'start' };
  if (page === 'story' && id === '') return { page: 'stories' };
  if (page === 'story') return storyRoute(id, values);
  if (page === 'sandbox' && id === '') return sandboxRoute(values);
  if (page === 'remove' && id === '') return removeRoute(values);
  if (page === 'real' && id === '') return { page, from: address(values.get('from') ?? '') };
  throw new LinkError(`there is no page ${shown(path)}; begin at the start page`);
}

export function linkTo(route: Route): string {
  if (route.page === 'start') return '#/';
  if (route.page === 'stories') return '#/story';
  const values = new URLSearchParams();
  const put = (name: string, value: string | number, usual: string | number): void => {
    if (value !== usual) values.set(name, `${value}`);
  };
  let path: string = route.page;
  if (route.page === 'remove') {
    put('mutant', route.mutant, '');
    if (route.seed !== null) values.set('seed', `${route.seed}`);
    put('without', route.without.join('.'), '');
  } else if (route.page === 'real') {
    put('from', route.from, '');
  } else {
    values.set('protection', route.protection);
    put('votes', route.votesAtOnce ? 'at-once' : '', '');
  }
  if (route.page === 'story') {
    path = `story/${route.id}`;
    put('step', route.step, 0);
    put('guess', route.guess, '');
  }
  if (route.page === 'sandbox') {
    put('seed', route.seed, 1);
    put('faults', route.faults.map(faultText).join('_'), '');
    put('at', Math.round(route.atMs), 0);
  }
  const query = values.toString();
  return `#/${path}${query === '' ? '' : `?${query}`}`;
}

function storyRoute(id: string, values: URLSearchParams): Route {
  const found = stories.find((story) => story.id === id);
  if (!found) throw new LinkError(`there is no story ${shown(id)}; choose one of ${ids()}`);
  const { pinned } = found.story;
  const possible = protections.filter((protection) => pinned[protection] !== undefined);
  const usual =
    values.get('protection') ?? (possible.includes('lock') ? 'lock' : (possible[0] ?? ''));
  const switches = {
    protection: oneOf('protection', usual, possible),
    votesAtOnce: votes(values),
  };
  return {
    page: 'story',
    id,
    ...switches,
    step: whole('step', values.get('step') ?? '0', found.steps(switches).length),
    guess: oneOf('guess', values.get('guess') ?? '', guesses),
  };
}

function sandboxRoute(values: URLSearchParams): Route {
  const faults = (values.get('faults') ?? '').split('_').filter(Boolean);
  if (faults.length > FAULTS_MAX)
    throw new LinkError(`it has ${faults.length} faults; at most ${FAULTS_MAX} are allowed`);
  return {
    page: 'sandbox',
    seed: whole('seed', values.get('seed') ?? '1', Number.MAX_SAFE_INTEGER),
    protection: oneOf('protection', values.get('protection') ?? 'lock', protections),
    votesAtOnce: votes(values),
    faults: faults.map(faultOf),
    atMs: whole('at', values.get('at') ?? '0', 1_000_000),
  };
}

function removeRoute(values: URLSearchParams): Route {
  const mutant = values.get('mutant') ?? '';
  const seed = values.get('seed');
  const without = (values.get('without') ?? '').split('.').filter(Boolean);
  if (without.length > WITHOUT_MAX)
    throw new LinkError(`it leaves out ${without.length} faults; at most ${WITHOUT_MAX} exist`);
  return {
    page: 'remove',
    mutant: oneOf('mutant', mutant, ['', ...mutants.map(({ name }) => name)]),
    seed: seed === null ? null : whole('seed', seed, Number.MAX_SAFE_INTEGER),
    without: without.map((one) => whole('without', one, WITHOUT_MAX)),
  };
}

/** A fault as links have it: `pause.1.1200.3000`, `block.2b.900.500`, `drop.s1.90`. */
function faultText({ kind, client, node, isReply, atMs, ms }: SandboxFault): string {
  const isOfBoth = kind === 'block' || messageFaults.has(kind);
  const both = isReply ? `${node}${client}` : `${client}${node}`;
  const place = isOfBoth ? both : nodeFaults.has(kind) ? node : client;
  return `${kind}.${place}.${Math.round(atMs)}${hasLength(kind) ? `.${Math.round(ms)}` : ''}`;
}

/** Returns true if a fault of this kind has a length. */
export function hasLength(kind: SandboxFault['kind']): boolean {
  return kind !== 'wipe' && kind !== 'drop';
}

function faultOf(text: string): SandboxFault {
  const found = /^([a-z]+)\.([12]?)([abcs]?)([12]?)\.(\d{1,6})(?:\.(\d{1,8}))?$/.exec(text);
  const [, name = '', before = '', node = '', after = '', at = '', ms = '0'] = found ?? [];
  const kind = faultKinds.find((one) => one === name);
  const isOfMessage = kind !== undefined && messageFaults.has(kind);
  const needsNode = kind !== undefined && (kind === 'block' || isOfMessage || nodeFaults.has(kind));
  const needsClient = kind !== undefined && !nodeFaults.has(kind);
  const isReply = after !== '';
  const isValid =
    (node !== '') === needsNode &&
    `${before}${after}`.length === (needsClient ? 1 : 0) &&
    (isOfMessage ? kind !== 'twice' || !isReply : !isReply && node !== 's');
  if (!kind || !isValid)
    throw new LinkError(`${shown(text)} is no fault; one is like pause.1.1200.3000`);
  return {
    kind,
    node: node || 'a',
    client: before === '2' || after === '2' ? 2 : 1,
    ...(isReply && { isReply }),
    atMs: whole('the time of a fault', at, TIME_MAX_MS),
    ms: whole('the length of a fault', ms, LENGTH_MAX_MS),
  };
}

/** Checks the address of a recorded run, and returns it unchanged. */
function address(text: string): string {
  const url = URL.canParse(text, 'https://page/') && new URL(text, 'https://page/');
  if (url && (url.protocol === 'https:' || url.protocol === 'http:')) return text;
  throw new LinkError(`from=${shown(text)} is no address of a recorded run`);
}

function votes(values: URLSearchParams): boolean {
  return oneOf('votes', values.get('votes') ?? '', ['', 'at-once']) === 'at-once';
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined) {
    const choices = allowed.filter(Boolean).join(', ');
    throw new LinkError(`${name}=${shown(value)} is unknown; use one of: ${choices}`);
  }
  return found;
}

function whole(name: string, text: string, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= max) return value;
  throw new LinkError(`${name}=${shown(text)} must be a whole number from 0 to ${max}`);
}

/** A value of a link, shortened. */
function shown(text: string): string {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
