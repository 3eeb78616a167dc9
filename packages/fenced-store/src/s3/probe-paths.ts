import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { etagHeader, type StoreCapabilities } from './capabilities.js';
import { type Checks, inRuns, type Tried } from './checks.js';
import { slices } from './observe.js';
import { checkCopies, checkParts } from './probe-uploads.js';
import type { Requests } from './requests.js';
import type { Runtime } from './runtime.js';
import { checksumHeader, type Spool } from './spool.js';
import type { Uploads } from './uploads.js';

/**
 * The ways of writing that the probe's small bodies do not show: one PUT of a large body from memory, one from a temporary
 * file, which is not signed, an upload of several parts, and one of parts that the server copies from the object itself. Each is
 * checked before its first use.
 */
export type WritePath = 'large-put' | 'file-put' | 'upload' | 'copy';

/** The largest body that the probe itself sends: what is stored as no more is written by a path that it has checked. */
export const PROBED_BYTES: number = 2 ** 20 + 2 ** 10;

/** Above the 2 MiB from which the SDK sends `Expect: 100-continue`, and the 5 MiB from which servers may take another way. */
const BODY_BYTES = 5 * 2 ** 20 + 1;

/**
 * Finds out whether the server enforces conditions on a path, too.
 *
 * @throws {UnsafeStoreError} where it does not.
 * @throws {UnsupportedByStoreError} where it does not take such a write at all.
 * @throws {StoreUnavailableError} where it did not answer, so that nothing was learnt.
 */
export async function checkPath(
  path: WritePath,
  requests: Requests,
  uploads: Uploads,
  prefix: string,
  runtime: Runtime,
  { etagForm }: StoreCapabilities,
): Promise<void> {
  await inRuns({ requests, runtime }, prefix, async (checks, keys) => {
    const key = `${keys}/${path}`;
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

async function send(
  checks: Checks,
  path: WritePath,
  key: string,
  ifMatch: string | null,
  halfway?: () => Promise<unknown>,
): Promise<Tried> {
  const { put, content } = await checks.draft(key, ifMatch, BODY_BYTES);
  if (path === 'large-put') return checks.send(put, content, halfway);
  const file: Spool = {
    bytes: content.length,
    crc32: checksumHeader(crc32(content)),
    read: () => Readable.from(slices(content, halfway), { objectMode: false }),
  };
  return checks.send(put, file);
}
