import { expect, test } from 'vitest';
import { Output, type Sink } from './output.js';

type Done = Parameters<Sink>[1];

/** A destination whose writes end when the test says so. */
function destination() {
  const written: string[] = [];
  const pending: { readonly bytes: Uint8Array; readonly done: Done }[] = [];
  const output = new Output((bytes, done) => void pending.push({ bytes, done }));
  const end = (error: Error | null, most = Number.POSITIVE_INFINITY): void => {
    const { bytes, done } = pending.shift() ?? { bytes: new Uint8Array(), done: () => undefined };
    const taken = error ? 0 : Math.min(most, bytes.length);
    written.push(Buffer.from(bytes.subarray(0, taken)).toString());
    done(error, taken);
  };
  return { output, pending, end, text: () => written.join('') };
}

test('a disk that was full, and took half a line, gets the rest of the line first', () => {
  const { output, end, pending, text } = destination();
  output.write('one\n');
  end(null, 2);
  end(new Error('ENOSPC'));
  expect(pending).toEqual([]);
  output.write('two\n');
  end(null);
  end(null);
  expect(text()).toBe('one\ntwo\n');
});

test('lines without room are counted, and reported behind the lines before them', async () => {
  const { output, end, text } = destination();
  output.onRecovered = (dropped) => output.write(`${dropped} dropped\n`);
  const line = `${'x'.repeat(2 ** 19 - 1)}\n`;
  for (let at = 0; at < 6; at++) output.write(line);
  expect(output.dropped).toBe(3);
  for (let at = 0; at < 3; at++) end(null);
  expect(text()).toBe(`${line.repeat(3)}3 dropped\n`);
  expect(await output.flush(10_000)).toBe(true);
});

test('a flush ends with the write that fails, or when its time is over', async () => {
  const { output, end } = destination();
  output.write('one\n');
  expect(await output.flush(1)).toBe(false);
  const failing = output.flush(60_000);
  end(new Error('ENOSPC'));
  expect(await failing).toBe(false);
  const again = output.flush(60_000);
  end(null);
  expect(await again).toBe(true);
});
