import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CorruptObjectError } from './errors.js';
import {
  callersMetadata,
  fromMetadata,
  HISTORY_MAX,
  hasInHistory,
  historyAfter,
  METADATA_BYTES_MAX,
  metadataBytes,
  type Stored,
  toMetadata,
} from './stored.js';
import { TOKEN_MAX } from './token.js';

const KEY_DIGEST = 'd'.repeat(16);
const writeId = fc
  .uint8Array({ minLength: 16, maxLength: 16 })
  .map((id) => Buffer.from(id).toString('hex'));
const shortId = writeId.map((id) => id.slice(0, 12));
const stored: fc.Arbitrary<Stored> = fc.record({
  version: fc.constant('v'),
  token: fc.bigInt({ min: 1n, max: TOKEN_MAX }),
  writeId,
  state: fc.constantFrom('live', 'deleted'),
  layout: fc.constantFrom('gzip', 'plain'),
  before: fc.array(shortId, { maxLength: HISTORY_MAX }),
});

test('the store reads its own facts about a write from the metadata, and the caller reads the rest', () => {
  fc.assert(
    fc.property(stored, (write) => {
      const metadata = { author: 'ada', ...toMetadata(write, KEY_DIGEST) };
      expect(fromMetadata('k', 'v', metadata, KEY_DIGEST)).toEqual(write);
      expect(callersMetadata(metadata)).toEqual({ author: 'ada' });
    }),
  );
});

test('the history of a write begins with the write before it, and is no longer than the limit', () => {
  fc.assert(
    fc.property(stored, (base) => {
      const history = historyAfter(base);
      expect(hasInHistory({ ...base, before: history }, base.writeId)).toBe(true);
      expect(history).toHaveLength(Math.min(HISTORY_MAX, base.before.length + 1));
      expect(history.slice(1)).toEqual(base.before.slice(0, HISTORY_MAX - 1));
    }),
  );
  expect(historyAfter(null)).toEqual([]);
});

test('the metadata of the longest history and the most that callers may add fit into the 2048 bytes of S3', () => {
  const longest = {
    token: TOKEN_MAX,
    writeId: 'f'.repeat(32),
    state: 'deleted',
    layout: 'plain',
    bodyBytes: 9_999_999_999_999,
  } as const;
  const before = Array(HISTORY_MAX).fill('f'.repeat(12));
  const metadata = toMetadata({ ...longest, before }, KEY_DIGEST);
  expect(metadataBytes(metadata)).toBe(739);
  expect(739 + METADATA_BYTES_MAX).toBeLessThanOrEqual(2048);
});

const sound = toMetadata(
  { token: 1n, writeId: 'a'.repeat(32), state: 'live', layout: 'gzip', before: [] },
  KEY_DIGEST,
);
test.each([
  [{}, 'name=fencing-token'],
  [{ ...sound, 'fencing-layout': 'zip' }, 'name=fencing-layout'],
  [{ ...sound, 'fencing-token': '0' }, 'name=fencing-token'],
  [{ ...sound, 'fencing-token': '9223372036854775808' }, 'name=fencing-token'],
  [{ ...sound, 'fencing-token': '1.5' }, 'name=fencing-token'],
  [{ ...sound, 'fencing-write': 'A'.repeat(32) }, 'name=fencing-write'],
  [{ 'fencing-token': '1', 'fencing-state': 'live' }, 'name=fencing-write'],
  [{ ...sound, 'fencing-key': '0'.repeat(16) }, 'written under another key'],
  [{ ...sound, 'fencing-key': '' }, 'written under another key'],
  [{ ...sound, 'fencing-state': 'gone' }, 'name=fencing-state'],
  [{ ...sound, 'fencing-before': '' }, 'name=fencing-before'],
  [{ ...sound, 'fencing-before': 'a'.repeat(13) }, 'name=fencing-before'],
  [
    {
      ...sound,
      'fencing-before': Array(HISTORY_MAX + 1)
        .fill('a'.repeat(12))
        .join(''),
    },
    'name=fencing-before',
  ],
])('metadata %j is refused', (metadata, reason) => {
  expect(() => fromMetadata('k', 'v', metadata, KEY_DIGEST)).toThrow(CorruptObjectError);
  expect(() => fromMetadata('k', 'v', metadata, KEY_DIGEST)).toThrow(reason);
});

test('metadata of an earlier version, which does not name its key, is read', () => {
  const { 'fencing-key': _, ...earlier } = sound;
  expect(fromMetadata('k', 'v', earlier, KEY_DIGEST)).toEqual(
    fromMetadata('k', 'v', sound, KEY_DIGEST),
  );
});
