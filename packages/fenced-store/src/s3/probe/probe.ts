import type { StoreCapabilities } from '../../core/capabilities.js';
import { CorruptObjectError, StoreSetupError } from '../../core/errors.js';
import { checkStamp, decode } from '../codec/decode.js';
import { type Checks, errorOf, inRuns, type Probed, type Step } from './checks.js';
import { PROBED_BYTES } from './probe-paths.js';
import { UploadsProbe } from './probe-uploads.js';
import { Races, type SendRacer } from './races.js';

/** Number of writers of a large race, the long one included. */
const WRITERS = 8;
/** Number of short races of two writers, and on a server that takes one write a second. */
const BRIEF_RACES = 5;
const BRIEF_RACES_IF_PACED = 1;
const LONG_BODY_BYTES = 2 ** 17;
/** Number of bodies that are written upon each other quickly, under each of two keys. */
const QUICK_STEPS = 3;
const QUICK_STEPS_IF_PACED = 1;
const QUICK_BODY_BYTES = 2 ** 12;
/** Servers and proxies may treat keys with escaped characters differently. */
const KEY = 'conditions ä+&%';

const CREATE: readonly Step[] = [
  ['create', null, 'applied'],
  ['create-again', null, 'refused'],
];
const WRONG_ETAG: string = '0'.repeat(32);

/**
 * Finds out whether a server enforces conditions. Without them, a token check would be a lie.
 *
 * @param withUploads whether it asks about multipart uploads, too. Otherwise the first one does
 * @throws {UnsafeStoreError} if a condition is not enforced.
 * @throws {StoreSetupError} if bucket, credentials or address are wrong, or the server is not S3.
 * @throws {StoreUnavailableError} if it does not answer, so that nothing was learnt.
 */
export async function probe(probed: Probed, withUploads: boolean): Promise<StoreCapabilities> {
  try {
    return await inRuns(probed, 'quoted', (checks, prefix) => runAll(checks, prefix, withUploads));
  } catch (error) {
    if (!(error instanceof CorruptObjectError)) throw error;
    throw new StoreSetupError(
      `what was written came back changed: the request handler of the S3 client or a proxy decompresses or strips what is stored; use NodeHttpHandler and a plain connection (${error.message})`,
      { cause: error },
    );
  }
}

/** Keys that do not depend on each other are checked side by side. */
async function runAll(
  checks: Checks,
  prefix: string,
  withUploads: boolean,
): Promise<StoreCapabilities> {
  const key = `${prefix}/${KEY}`;
  const put = (ifMatch: string | null) => checks.put(key, ifMatch);
  const { first } = await checks.conditions(CREATE, key, put);
  const version = await learnEtagForm(checks, key, first);
  const absent = `${prefix}/absent`;
  let createAfterDelete = false;
  await races(checks, `${prefix}/race`, {
    create: async () => {
      for (const [check, ifMatch] of [
        ['update-with-old-etag', first],
        ['update-with-wrong-etag', WRONG_ETAG],
      ] as const)
        await checks.refused(check, key, await put(checks.ifMatch(ifMatch)), version, {
          isRead: false,
        });
      await checks.late('large-update-with-old-etag', key, version, () =>
        checks.put(key, checks.ifMatch(first), PROBED_BYTES),
      );
      const updateOfNothing = await checks.put(absent, checks.ifMatch(first));
      await checks.refused('update-of-nothing', absent, updateOfNothing, null);
    },
    update: async () => {
      await readBack(checks, key, version);
      createAfterDelete = await createsAfterDelete(checks, key);
    },
  });
  // Alone, because other requests would slow it down.
  const [upon = ''] = await tellsBodiesApart(checks, [absent, `${prefix}/quick`]);
  const distinctEtags = await givesDistinctEtags(checks, absent, upon);
  const { encryption } = checks;
  const conditionalComplete = withUploads
    ? await new UploadsProbe(checks).enforcesConditions(`${prefix}/upload`)
    : undefined;
  const { etagForm, versionIds, passed, report } = checks;
  const checkedAtMs = checks.probed.runtime.wallClockMs();
  return {
    etagForm,
    conditionalComplete,
    distinctEtags,
    encryption,
    createAfterDelete,
    versionIds,
    checks: passed,
    report,
    checkedAtMs,
  };
}

/** Updates the object. Returns its version. */
async function learnEtagForm(checks: Checks, key: string, first: string): Promise<string> {
  const check = 'update-with-current-etag';
  const quoted = await checks.put(key, checks.ifMatch(first));
  if (quoted.reply.meaning !== 'refused') return checks.applied(check, key, quoted);
  checks.note('absent', 'quoted-etag', quoted);
  checks.etagForm = 'bare';
  return checks.applied(check, key, await checks.put(key, checks.ifMatch(first)));
}

/**
 * A race of creates, one of updates, then short ones.
 *
 * @param beside requests of another key during each race
 */
async function races(
  checks: Checks,
  key: string,
  beside: { readonly create: () => Promise<void>; readonly update: () => Promise<void> },
): Promise<void> {
  const races = new Races(checks);
  const race = async (kind: 'create' | 'update', base: string | null): Promise<string> => {
    const ifMatch = base && checks.ifMatch(base);
    const short: SendRacer = (halfway) => checks.put(key, ifMatch, undefined, halfway);
    const long: SendRacer = (halfway) => checks.put(key, ifMatch, LONG_BODY_BYTES, halfway);
    const racers = Array<SendRacer>(WRITERS - 1).fill(short);
    const race = { check: `race-of-${kind}s`, key, base, racers, long };
    return (await races.overtaken(race, beside[kind])).stored.version;
  };
  const version = await race('update', await race('create', null));
  const rounds = checks.isPaced ? BRIEF_RACES_IF_PACED : BRIEF_RACES;
  await races.brief(
    'races-of-two',
    key,
    version,
    rounds,
    (ifMatch) => (halfway) => checks.put(key, ifMatch, undefined, halfway),
  );
}

/** The last write must come back whole: bytes, metadata and ETag. */
async function readBack(checks: Checks, key: string, version: string): Promise<void> {
  const check = 'read-back';
  const object = await checks.probed.requests.get(key);
  if (object?.stored.version !== version) {
    const asked = { sent: 'GET', answered: 'another version' };
    throw checks.failed(check, asked, 'what was stored is not what was written last');
  }
  const { stamp } = await decode(key, object.bytes, object.bodyBytesMax);
  checkStamp(key, stamp, object.stored);
  checks.note('passed', check, { sent: 'GET', answered: '200, all of it' });
}

async function createsAfterDelete(checks: Checks, key: string): Promise<boolean> {
  const check = 'create-after-delete';
  await checks.probed.requests.remove(key);
  const tried = await checks.put(key, null);
  if (tried.reply.meaning === 'refused') {
    checks.note('absent', check, { ...tried, sent: `DELETE, ${tried.sent}` });
    return false;
  }
  await checks.applied(check, key, tried);
  return true;
}

/**
 * Bodies of one length that differ at their beginning only, as two writes of one body do. If their
 * ETags came from the time and the length, or from the last bytes, a condition would hold for
 * several of them. Two keys are written at the same moment, as soon as the last replies are
 * there. So a clock shows within a tick.
 *
 * @returns the latest versions, by key
 */
async function tellsBodiesApart(
  checks: Checks,
  keys: readonly string[],
): Promise<readonly string[]> {
  const races = new Races(checks);
  const steps = checks.isPaced ? QUICK_STEPS_IF_PACED : QUICK_STEPS;
  const versions = new Set<string>();
  let current: readonly string[] = [];
  for (let step = 1; step <= steps; step++) {
    const conditionAt = (at: number): string | null => {
      const version = current[at];
      return version === undefined ? null : checks.ifMatch(version);
    };
    const writers = keys.map(
      (key, at): SendRacer =>
        (halfway) =>
          checks.put(key, conditionAt(at), QUICK_BODY_BYTES, halfway),
    );
    await Promise.all(keys.map((key) => checks.pace(key)));
    current = (await races.together(writers, 0)).map(({ reply }) => {
      if (reply.version === undefined) throw errorOf(reply);
      versions.add(reply.version);
      return reply.version;
    });
  }
  const check = 'etags-of-bodies';
  const count = steps * keys.length;
  const sent = `PUT of ${count} bodies of one length`;
  const asked = { sent, answered: `${versions.size} different ETags` };
  if (versions.size < count)
    throw checks.failed(check, asked, 'two different bodies were given the same ETag');
  checks.note('passed', check, asked);
  return current;
}

/** The same bytes with the same metadata three times. */
async function givesDistinctEtags(checks: Checks, key: string, version: string): Promise<boolean> {
  const send = checks.sending(await checks.newWrite(key, null));
  const distinct = await checks.countEtags([send, send, send], checks.ifMatch(version));
  const sent = 'PUT of the same bytes, 3 times';
  const asked = { sent, answered: `${distinct} different ETags` };
  checks.note(distinct === 3 ? 'passed' : 'absent', 'distinct-etags', asked);
  return distinct === 3;
}
