import { type EtagForm, etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { CorruptObjectError, StoreSetupError, UnsafeStoreError } from '../../core/errors.js';
import { checkStamp, open } from '../codec/open.js';
import type { Requests } from '../http/requests.js';
import type { Uploads } from '../http/uploads.js';
import type { Runtime } from '../runtime.js';
import { type Checks, type Draft, inRuns } from './checks.js';
import { PROBED_BYTES } from './probe-paths.js';
import { probeUploads } from './probe-uploads.js';

/** Raised whenever a server could pass an older probe and fail this one: certificates of older ones are not believed then. */
export const PROBE_VERSION = 4;

const WRITERS = 32;
const ROUNDS = 3;
const OVERTAKEN_BODY_BYTES = 2 ** 17;
/** So many long bodies, one upon the other and none read in between, tell a clock in ETags from a digest. */
const QUICK_WRITES = 6;
/** Servers and proxies may treat keys that they must decode otherwise. */
const KEY = 'conditions ä+&%';
const WRONG_ETAG: string = '0'.repeat(32);

/**
 * Finds out whether a server does what it says: fencing on one that ignores conditions would be a lie.
 *
 * @throws {UnsafeStoreError} where a condition is not enforced.
 * @throws {StoreSetupError} where bucket, credentials or address are wrong, or the server is not S3.
 * @throws {StoreUnavailableError} where it does not answer, so that nothing was learnt.
 */
export async function probe(
  requests: Requests,
  uploads: Uploads,
  prefix: string,
  runtime: Runtime,
): Promise<StoreCapabilities> {
  try {
    return await inRuns({ requests, runtime }, prefix, (checks, keys) =>
      askAll(checks, uploads, keys),
    );
  } catch (error) {
    throw asSetup(error);
  }
}

async function askAll(
  checks: Checks,
  uploads: Uploads,
  prefix: string,
): Promise<StoreCapabilities> {
  const key = `${prefix}/${KEY}`;
  const first = await checks.applied('create', key, await checks.put(key, null));
  await checks.refused('create-again', key, await checks.put(key, null), first);
  const { etagForm, version } = await learnEtagForm(checks, key, first);
  const ifMatch = (of: string): string => etagHeader(of, etagForm);
  for (const [check, of] of [
    ['update-with-old-etag', first],
    ['update-with-wrong-etag', WRONG_ETAG],
  ] as const)
    await checks.refused(check, key, await checks.put(key, ifMatch(of)), version);
  await checks.late('large-update-with-old-etag', key, version, () =>
    checks.put(key, ifMatch(first), PROBED_BYTES),
  );
  await tellsBodiesApart(checks, `${prefix}/quick`, etagForm);
  const absent = `${prefix}/absent`;
  const updated = await checks.put(absent, ifMatch(first));
  await checks.refused('update-of-nothing', absent, updated, null);
  for (let round = 1; round <= ROUNDS; round++) {
    const raced = `${prefix}/race-${round}`;
    const winner = await race(checks, 'race-of-creates', raced, null);
    await race(checks, 'race-of-updates', raced, ifMatch(winner));
  }
  const overtaken = `${prefix}/overtaken`;
  const created = await overtake(checks, 'overtaken-create', overtaken, null);
  await overtake(checks, 'overtaken-update', overtaken, ifMatch(created));
  await readBack(checks, key, version);
  const createAfterDelete = await createsAfterDelete(checks, key);
  const distinctEtags = await givesDistinctEtags(checks, `${prefix}/same-bytes`, etagForm);
  const conditionalComplete = await probeUploads(checks, uploads, `${prefix}/upload`, etagForm);
  const { versionIds, passed, report } = checks;
  const checkedAtMs = checks.runtime.nowMs();
  return {
    ...{ etagForm, conditionalComplete, distinctEtags, createAfterDelete },
    ...{ versionIds, checks: passed, report, checkedAtMs },
  };
}

async function learnEtagForm(
  checks: Checks,
  key: string,
  first: string,
): Promise<{ readonly etagForm: EtagForm; readonly version: string }> {
  const check = 'update-with-current-etag';
  const quoted = await checks.put(key, etagHeader(first, 'quoted'));
  if (quoted.reply.meaning !== 'refused')
    return { etagForm: 'quoted', version: await checks.applied(check, key, quoted) };
  checks.absent('quoted-etag', quoted.sent, quoted.reply.answered);
  const bare = await checks.put(key, etagHeader(first, 'bare'));
  return { etagForm: 'bare', version: await checks.applied(check, key, bare) };
}

async function race(
  checks: Checks,
  check: string,
  key: string,
  ifMatch: string | null,
): Promise<string> {
  const writers = Array.from({ length: WRITERS }, () => checks.put(key, ifMatch));
  return (await checks.oneWinner(check, key, await Promise.all(writers))).version;
}

async function overtake(
  checks: Checks,
  check: string,
  key: string,
  ifMatch: string | null,
): Promise<string> {
  const { stored } = await checks.overtaken(check, key, ifMatch, (halfway) =>
    checks.put(key, ifMatch, OVERTAKEN_BODY_BYTES, halfway),
  );
  return stored.version;
}

/** What was written last must come back whole: bytes, metadata and ETag. */
async function readBack(checks: Checks, key: string, version: string): Promise<void> {
  const object = await checks.requests.get(key);
  if (object?.stored.version !== version)
    throw checks.failed(
      'read-back',
      'GET',
      'another version',
      'what was stored is not what was written last',
    );
  const { stamp } = await open(key, object.bytes, object.bodyBytesMax);
  checkStamp(key, stamp, object.stored);
  checks.pass('read-back', 'GET', '200, all of it');
}

async function createsAfterDelete(checks: Checks, key: string): Promise<boolean> {
  const check = 'create-after-delete';
  await checks.requests.remove(key);
  const tried = await checks.put(key, null);
  if (tried.reply.meaning === 'refused') {
    checks.absent(check, `DELETE, ${tried.sent}`, tried.reply.answered);
    return false;
  }
  await checks.applied(check, key, tried);
  return true;
}

/**
 * Bodies of one length that differ at their beginning only, as those of all writes may: an ETag of the time and the length, or
 * of the last bytes, is the same for several, and a condition that names it holds for all of these.
 */
async function tellsBodiesApart(checks: Checks, key: string, form: EtagForm): Promise<void> {
  const drafts = await Promise.all(
    Array.from({ length: QUICK_WRITES }, () => checks.draft(key, null, OVERTAKEN_BODY_BYTES)),
  );
  const [check, sent] = ['etags-of-long-bodies', `PUT of ${QUICK_WRITES} bodies of one length`];
  const distinct = await etagsOf(checks, drafts, form);
  const answered = `${distinct} different ETags`;
  if (distinct < QUICK_WRITES)
    throw checks.failed(check, sent, answered, 'two different bodies were given the same ETag');
  checks.pass(check, sent, answered);
}

/** Writes each upon the one before. Counts the different ETags. */
async function etagsOf(checks: Checks, drafts: readonly Draft[], form: EtagForm): Promise<number> {
  const writes = drafts.map(
    ({ put, content }) =>
      (ifMatch: string | null) =>
        checks.send({ ...put, ifMatch }, content),
  );
  return checks.etagsOf(writes, form);
}

/** The same bytes with the same metadata three times. */
async function givesDistinctEtags(checks: Checks, key: string, form: EtagForm): Promise<boolean> {
  const draft = await checks.draft(key, null);
  const distinct = await etagsOf(checks, [draft, draft, draft], form);
  const isDistinct = distinct === 3;
  const note = isDistinct ? checks.pass : checks.absent;
  note.call(
    checks,
    'distinct-etags',
    'PUT of the same bytes, 3 times',
    `${distinct} different ETags`,
  );
  return isDistinct;
}

/** An object that the probe has just written can only come back changed where something on the way changes it. */
function asSetup(error: unknown): unknown {
  if (error instanceof UnsafeStoreError || !(error instanceof CorruptObjectError)) return error;
  return new StoreSetupError(
    `what was written came back changed: the request handler of the S3 client or a proxy decompresses or strips what is stored; use NodeHttpHandler and a plain connection (${error.message})`,
    { cause: error },
  );
}
