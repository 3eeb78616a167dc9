/**
 * The parts of Node that the simulator and the client need, for a browser. The build puts this
 * module in place of `test/simulation/platform.ts` and of Node's own modules.
 */

const due: (() => void)[] = [];
const { port1, port2 } = new MessageChannel();
let isPosted = false;

// As Node's `process.nextTick`: the whole queue runs, and only then do promises react.
port1.onmessage = () => {
  isPosted = false;
  for (let next = due.shift(); next; next = due.shift()) next();
};

export function afterPromises(callback: () => void): void {
  due.push(callback);
  if (isPosted) return;
  isPosted = true;
  port2.postMessage(null);
}

// The lock client calls `process.nextTick`, too.
Object.assign(globalThis, { process: { nextTick: afterPromises } });

export function realEvents(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

export function onUnhandledRejection(listener: (error: unknown) => void): () => void {
  const hear = (event: PromiseRejectionEvent): void => {
    event.preventDefault();
    listener(event.reason);
  };
  addEventListener('unhandledrejection', hear);
  return () => removeEventListener('unhandledrejection', hear);
}

/**
 * SHA-1 (FIPS 180-4). The browser's own function is asynchronous, and the client needs the result
 * at once.
 */
export function sha1(text: string): string {
  let state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0];
  const words = padded(new TextEncoder().encode(text));
  for (let at = 0; at < words.length; at += 16) state = mixed(state, words.subarray(at, at + 16));
  return state.map((word) => word.toString(16).padStart(8, '0')).join('');
}

function padded(bytes: Uint8Array): Uint32Array {
  const words = new Uint32Array((((bytes.length + 8) >> 6) + 1) * 16);
  const view = new DataView(words.buffer);
  for (const [at, byte] of bytes.entries()) view.setUint8(at, byte);
  view.setUint8(bytes.length, 0x80);
  view.setUint32(words.byteLength - 4, bytes.length * 8);
  return words.map((_, at) => view.getUint32(at * 4));
}

const CONSTANTS = [0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6];

function mixed(state: readonly number[], block: Uint32Array): number[] {
  const words = new Uint32Array(80);
  words.set(block);
  const word = (at: number): number => words[at] ?? 0;
  const turned = (value: number, bits: number): number => (value << bits) | (value >>> (32 - bits));
  for (let at = 16; at < 80; at += 1) {
    words[at] = turned(word(at - 3) ^ word(at - 8) ^ word(at - 14) ^ word(at - 16), 1);
  }
  let [a = 0, b = 0, c = 0, d = 0, e = 0] = state;
  for (let at = 0; at < 80; at += 1) {
    const choice = [(b & c) | (~b & d), b ^ c ^ d, (b & c) | (b & d) | (c & d), b ^ c ^ d];
    const round = Math.floor(at / 20);
    const sum = turned(a, 5) + (choice[round] ?? 0) + e + (CONSTANTS[round] ?? 0) + word(at);
    [a, b, c, d, e] = [sum >>> 0, a, turned(b, 30) >>> 0, c, d];
  }
  return [a, b, c, d, e].map((value, at) => (value + (state[at] ?? 0)) >>> 0);
}

/** The part of `node:crypto` that the client uses. */
export function createHash(): { update(text: string): { digest(): string } } {
  return { update: (text) => ({ digest: () => sha1(text) }) };
}

export const randomUUID = (): string => crypto.randomUUID();

/** The part of `node:os` that the client uses. No simulated machine sleeps. */
export const platform = (): string => 'browser';
export const uptime = (): number => performance.now() / 1_000;

/** `node:diagnostics_channel` without a subscriber: nothing asks for a channel. */
export const hasSubscribers = (): boolean => false;
export const channel = undefined;

/** Replaces `inspect` of `node:util`, which only error messages use. */
export const inspect = String;
