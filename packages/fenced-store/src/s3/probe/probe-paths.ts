import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import type { StoreCapabilities } from '../../core/capabilities.js';
import { piecesOf } from '../http/middleware.js';
import { checksumHeader } from '../http/put.js';
import { type Checks, inRuns, type Probed, type ProbeWrite, type Tried } from './checks.js';
import { UploadsProbe } from './probe-uploads.js';
import { type Halfway, Races, type SendRacer } from './races.js';

/**
 * The ways of writing that the probe's small bodies do not cover. Each is checked before its first
 * use:
 *
 * - `large-put`: one PUT of a large body from memory.
 * - `file-put`: one PUT from a temporary file, which is not signed.
 * - `upload`: an upload of several parts.
 * - `copy`: an upload of parts that the server copies from the object.
 */
export type WritePath = 'large-put' | 'file-put' | 'upload' | 'copy';

/**
 * A check of a path: the server must enforce conditions there. With `-etags`, two writes of the
 * same bytes must get different ETags, for bytes without a token.
 */
export type PathCheck = WritePath | `${WritePath}-etags`;

/** The largest body of the probe. A larger one is written by a path that is checked by itself. */
export const PROBED_BYTES: number = 2 ** 20 + 2 ** 10;

/** Above 2 MiB the SDK sends `Expect: 100-continue`. Above 5 MiB servers may take another path. */
const BODY_BYTES = 5 * 2 ** 20 + 1;

/**
 * Finds out whether the server enforces conditions on a path, or gives different ETags there.
 *
 * @throws {UnsafeStoreError} if it does not.
 * @throws {UnsupportedByStoreError} if it does not take such a write at all.
 * @throws {StoreUnavailableError} if it did not answer, so that nothing was learnt.
 */
export async function checkPath(
  check: PathCheck,
  probed: Probed,
  { etagForm }: StoreCapabilities,
): Promise<void> {
  await inRuns(probed, etagForm, async (checks, keys) => {
    const key = `${keys}/${check}`;
    const path = check.replace(/-etags$/, '') as WritePath;
    const uploadsProbe = new UploadsProbe(checks);
    if (path !== check) {
      const distinct =
        path === 'upload' || path === 'copy'
          ? await uploadsProbe.countEtags(path, key)
          : await countEtags(checks, path, key);
      const asked = { sent: 'the same bytes, 2 times', answered: `${distinct} different ETags` };
      if (distinct < 2)
        throw checks.failed(check, asked, 'two writes of the same bytes were given the same ETag');
    } else if (path === 'upload') {
      await uploadsProbe.conditions(key);
      await uploadsProbe.parts(`${key}-parts`);
    } else if (path === 'copy') await uploadsProbe.copies(key);
    else await checkPuts(checks, path, key);
  });
}

async function checkPuts(checks: Checks, path: WritePath, key: string): Promise<void> {
  const races = new Races(checks);
  await checks.createThenUpdate(`${path}-`, async (check, base) => {
    const ifMatch = base && checks.ifMatch(base);
    const long = async (halfway?: Halfway): Promise<Tried> =>
      send(checks, path, await checks.newWrite(key, ifMatch, BODY_BYTES), halfway);
    const short: SendRacer = (halfway) => checks.put(key, ifMatch, undefined, halfway);
    const race = { check, key, base, racers: [short], long, mayBeCut: true };
    const { first, stored } = await races.overtaken(race, () => races.writeElsewhere(key));
    // The first write was applied. If it is sent again, its condition does not hold any more.
    if (first.reply.meaning === 'applied')
      await checks.late(check.replace('put-', 'put-late-'), key, stored.version, () => long());
    return stored.version;
  });
}

async function countEtags(checks: Checks, path: WritePath, key: string): Promise<number> {
  const { put, content } = await checks.newWrite(key, null, BODY_BYTES);
  const write = (ifMatch: string | null) =>
    send(checks, path, { put: { ...put, ifMatch }, content });
  return checks.countEtags([write, write]);
}

function send(
  checks: Checks,
  path: WritePath,
  { put, content }: ProbeWrite,
  halfway?: Halfway,
): Promise<Tried> {
  if (path === 'large-put') return checks.send(put, content, halfway);
  return checks.send(put, {
    bytes: content.length,
    crc32: checksumHeader(crc32(content)),
    read: () => Readable.from(piecesOf(content, halfway), { objectMode: false }),
  });
}
