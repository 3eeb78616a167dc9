import type { StoreCapabilities } from '../../core/capabilities.js';
import { CorruptObjectError, StoreSetupError } from '../../core/errors.js';
import { checkStamp, decode } from '../codec/decode.js';
import { type Checks, inRuns, type Probed, type Step } from './checks.js';
import { PROBED_BYTES } from './probe-paths.js';
import { UploadsProbe } from './probe-uploads.js';

const WRITERS = 32;
const ROUNDS = 3;
const OVERTAKEN_BODY_BYTES = 2 ** 17;
/** Number of long bodies that are written quickly: ETags made from the time would be the same. */
const QUICK_WRITES = 6;
/** Servers and proxies may treat keys with escaped characters differently. */
const KEY = 'conditions ä+&%';

const CREATE: readonly Step[] = [
  ['create', null, 'applied'],
  ['create-again', null, 'refused'],
];
const UPDATE: readonly Step[] = [
  ['update-with-old-etag', 'first', 'refused'],
  ['update-with-wrong-etag', 'wrong', 'refused'],
];

/**
 * Finds out whether a server enforces conditions. Without them, a token check would be a lie.
 *
 * @throws {UnsafeStoreError} if a condition is not enforced.
 * @throws {StoreSetupError} if bucket, credentials or address are wrong, or the server is not S3.
 * @throws {StoreUnavailableError} if it does not answer, so that nothing was learnt.
 */
export async function probe(probed: Probed): Promise<StoreCapabilities> {
  try {
    return await inRuns(probed, 'quoted', runAll);
  } catch (error) {
    if (!(error instanceof CorruptObjectError)) throw error;
    throw new StoreSetupError(
      `what was written came back changed: the request handler of the S3 client or a proxy decompresses or strips what is stored; use NodeHttpHandler and a plain connection (${error.message})`,
      { cause: error },
    );
  }
}

async function runAll(checks: Checks, prefix: string): Promise<StoreCapabilities> {
  const key = `${prefix}/${KEY}`;
  const put = (ifMatch: string | null) => checks.put(key, ifMatch);
  const { first } = await checks.conditions(CREATE, key, put);
  const version = await learnEtagForm(checks, key, first);
  const versions = { first, current: version };
  await checks.conditions(UPDATE, key, put, versions);
  await checks.late('large-update-with-old-etag', key, version, () =>
    checks.put(key, checks.ifMatch(first), PROBED_BYTES),
  );
  await tellsBodiesApart(checks, `${prefix}/quick`);
  const absent = `${prefix}/absent`;
  const updateOfNothing = await checks.put(absent, checks.ifMatch(first));
  await checks.refused('update-of-nothing', absent, updateOfNothing, null);
  await races(checks, prefix);
  await readBack(checks, key, version);
  const createAfterDelete = await createsAfterDelete(checks, key);
  const distinctEtags = await givesDistinctEtags(checks, `${prefix}/same-bytes`);
  const { encryption } = checks;
  const uploadsProbe = new UploadsProbe(checks);
  const conditionalComplete = await uploadsProbe.enforcesConditions(`${prefix}/upload`);
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

/** Many short writes at once, then a long one that a short one overtakes: creates, and updates. */
async function races(checks: Checks, prefix: string): Promise<void> {
  for (let round = 1; round <= ROUNDS; round++) {
    const key = `${prefix}/race-${round}`;
    await checks.createThenUpdate('race-of-', 's', async (check, ifMatch) => {
      const writers = Array.from({ length: WRITERS }, () => checks.put(key, ifMatch));
      return (await checks.oneWinner(check, key, await Promise.all(writers))).version;
    });
  }
  const key = `${prefix}/overtaken`;
  await checks.createThenUpdate('overtaken-', '', async (check, ifMatch) => {
    const { stored } = await checks.overtaken(check, key, ifMatch, (halfway) =>
      checks.put(key, ifMatch, OVERTAKEN_BODY_BYTES, halfway),
    );
    return stored.version;
  });
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
 * several of them.
 */
async function tellsBodiesApart(checks: Checks, key: string): Promise<void> {
  const writes = await Promise.all(
    Array.from({ length: QUICK_WRITES }, () => checks.newWrite(key, null, OVERTAKEN_BODY_BYTES)),
  );
  const sends = writes.map((write) => checks.sending(write));
  const distinct = await checks.countEtags(sends);
  const check = 'etags-of-long-bodies';
  const sent = `PUT of ${QUICK_WRITES} bodies of one length`;
  const asked = { sent, answered: `${distinct} different ETags` };
  if (distinct < QUICK_WRITES)
    throw checks.failed(check, asked, 'two different bodies were given the same ETag');
  checks.note('passed', check, asked);
}

/** The same bytes with the same metadata three times. */
async function givesDistinctEtags(checks: Checks, key: string): Promise<boolean> {
  const send = checks.sending(await checks.newWrite(key, null));
  const distinct = await checks.countEtags([send, send, send]);
  const sent = 'PUT of the same bytes, 3 times';
  const asked = { sent, answered: `${distinct} different ETags` };
  checks.note(distinct === 3 ? 'passed' : 'absent', 'distinct-etags', asked);
  return distinct === 3;
}
