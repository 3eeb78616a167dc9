import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { type EtagForm, etagHeader, type StoreCapabilities } from '../../core/capabilities.js';
import { slices } from '../http/observe.js';
import { checksumHeader, type Spool } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import type { Uploads } from '../http/uploads.js';
import type { Runtime } from '../runtime.js';
import { type Checks, type Draft, inRuns, type Tried } from './checks.js';
import { checkCopies, checkParts, etagsOfUploads } from './probe-uploads.js';

/**
 * The ways of writing that the probe's small bodies do not show: one PUT of a large body from memory, one from a temporary
 * file, which is not signed, an upload of several parts, and one of parts that the server copies from the object itself. Each is
 * checked before its first use.
 */
export type WritePath = 'large-put' | 'file-put' | 'upload' | 'copy';

/**
 * What is asked about a path: whether the server enforces conditions there; and before the first write of bytes that have no token,
 * whether two writes of the same bytes get different ETags there.
 */
export type PathCheck = WritePath | `${WritePath}-etags`;

/** The largest body that the probe itself sends: what is stored as no more is written by a path that it has checked. */
export const PROBED_BYTES: number = 2 ** 20 + 2 ** 10;

/** Above the 2 MiB from which the SDK sends `Expect: 100-continue`, and the 5 MiB from which servers may take another way. */
const BODY_BYTES = 5 * 2 ** 20 + 1;

/**
 * Finds out whether the server enforces conditions on a path, too; or gives different ETags there.
 *
 * @throws {UnsafeStoreError} where it does not.
 * @throws {UnsupportedByStoreError} where it does not take such a write at all.
 * @throws {StoreUnavailableError} where it did not answer, so that nothing was learnt.
 */
export async function checkPath(
  check: PathCheck,
  requests: Requests,
  uploads: Uploads,
  prefix: string,
  runtime: Runtime,
  { etagForm }: StoreCapabilities,
): Promise<void> {
  await inRuns({ requests, runtime }, prefix, async (checks, keys) => {
    const key = `${keys}/${check}`;
    const path = check.replace(/-etags$/, '') as WritePath;
    if (path !== check) return checkEtags(checks, uploads, path, key, etagForm);
    if (path === 'upload') return checkParts(checks, uploads, key, etagForm);
    if (path === 'copy') return checkCopies(checks, uploads, key, etagForm);
    let ifMatch: string | null = null;
    for (const kind of ['create', 'update']) {
      const condition = ifMatch;
      const write = (halfway?: () => Promise<unknown>) =>
        send(checks, path, key, condition, halfway);
      const { first, stored } = await checks.overtaken(`${path}-${kind}`, key, condition, write);
      // It came first: sent again, it comes too late.
      if (first.reply.meaning === 'applied')
        await checks.late(`${path}-late-${kind}`, key, stored.version, () => write());
      ifMatch = etagHeader(stored.version, etagForm);
    }
  });
}

/** The same bytes with the same metadata twice. */
async function checkEtags(
  checks: Checks,
  uploads: Uploads,
  path: WritePath,
  key: string,
  form: EtagForm,
): Promise<void> {
  const isUpload = path === 'upload' || path === 'copy';
  const draft = await checks.draft(key, null, BODY_BYTES);
  const write = (ifMatch: string | null) => sendDraft(checks, path, draft, ifMatch);
  const distinct = isUpload
    ? await etagsOfUploads(checks, uploads, path, key, form)
    : await checks.etagsOf([write, write], form);
  if (distinct < 2)
    throw checks.failed(
      `${path}-etags`,
      'the same bytes, 2 times',
      `${distinct} different ETags`,
      'two writes of the same bytes were given the same ETag',
    );
}

async function send(
  checks: Checks,
  path: WritePath,
  key: string,
  ifMatch: string | null,
  halfway?: () => Promise<unknown>,
): Promise<Tried> {
  return sendDraft(checks, path, await checks.draft(key, null, BODY_BYTES), ifMatch, halfway);
}

function sendDraft(
  checks: Checks,
  path: WritePath,
  { put: drafted, content }: Draft,
  ifMatch: string | null,
  halfway?: () => Promise<unknown>,
): Promise<Tried> {
  const put = { ...drafted, ifMatch };
  if (path === 'large-put') return checks.send(put, content, halfway);
  const file: Spool = {
    bytes: content.length,
    crc32: checksumHeader(crc32(content)),
    read: () => Readable.from(slices(content, halfway), { objectMode: false }),
  };
  return checks.send(put, file);
}
