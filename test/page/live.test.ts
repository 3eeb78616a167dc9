import { readFileSync } from 'node:fs';
import { mkdtempDisposable, readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import protobuf from 'protobufjs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fromJsonLines } from '../torture/json-lines.ts';
import { judge } from '../torture/judge.ts';
import { startLiveDemo } from './harness/live-demo.ts';
import { startChromium } from './harness/served-page.ts';

const parts = new AsyncDisposableStack();
let folder: string;
let browser: Browser;
let url: string;

beforeAll(async () => {
  folder = parts.use(await mkdtempDisposable(join(tmpdir(), 'fenced-live-'))).path;
  [browser, { url }] = await Promise.all([
    startChromium(),
    startLiveDemo().then((demo) => parts.use(demo)),
  ]);
  parts.defer(() => browser.close());
});
afterAll(() => parts.disposeAsync());

/** Clicks a button that saves a file. Returns the name of the file. */
async function saved(page: Page, button: string): Promise<string> {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: button }).click(),
  ]);
  const file = join(folder, download.suggestedFilename());
  await download.saveAs(file);
  return file;
}

test('a click stops a real process, and the checker convicts the late write', {
  timeout: 60_000,
}, async () => {
  const page = await browser.newPage({ reducedMotion: 'reduce' });
  await page.goto(url);
  await page.getByRole('button', { name: 'Begin', exact: true }).press('Enter');
  await page.locator('.picture', { hasText: /lease valid/ }).waitFor();
  await page.getByRole('button', { name: 'Stop client 1' }).press('Enter');
  const [process] = await page.getByText(/client 1: process \d+, stopped/).allTextContents();
  const pid = /\d{2,}/.exec(process ?? '')?.[0];
  expect(readFileSync(`/proc/${pid}/stat`, 'utf8')).toContain(') T ');
  await page.getByText(/client 2: process \d+, ended/).waitFor();
  await page.getByRole('button', { name: 'Continue client 1' }).press('Enter');
  await page.locator('.verdict').waitFor();
  expect(await page.locator('.verdict').textContent()).toMatch(/^LOST/);
  await checkRecording(page);
});

/** Saves the run of the page, opens it again, and opens a changed copy. */
async function checkRecording(page: Page): Promise<void> {
  const file = await saved(page, 'Save the run');
  const history = fromJsonLines(await readFile(await saved(page, 'JSON lines'), 'utf8'));
  expect(history.filter(({ kind }) => kind === 'put')).toHaveLength(2);
  expect(judge(history)).toEqual([]);
  const edn = (await readFile(await saved(page, 'EDN'), 'utf8')).trim().split('\n');
  expect(edn).toHaveLength(2 * history.length);
  for (const line of edn) expect(line).toMatch(/^\{:index \d+ :time \d+ :process \d+ :type :/);
  checkTrace(await readFile(await saved(page, 'Perfetto')));

  const open = async (path: string): Promise<readonly string[]> => {
    await page.goto('about:blank');
    await page.goto(url);
    await page.getByLabel('From a file').setInputFiles(path);
    await page.locator('[data-check=hash]', { hasText: /fit/ }).last().waitFor();
    return page.locator('.facts').last().locator('[data-check]').allTextContents();
  };
  expect(await open(file)).toEqual([
    expect.stringMatching(/^SHA-256 [0-9a-f]{64} fits$/),
    'The checker in this page has the same verdict.',
  ]);
  const changed = (await readFile(file, 'utf8')).replace('"verdict": "lost"', '"verdict": "safe"');
  await writeFile(file, changed);
  expect(await open(file)).toEqual([
    expect.stringContaining('does not fit: the file was changed'),
    expect.stringContaining('The checker in this page says lost:'),
  ]);
}

/** An excerpt of Perfetto's schema. */
const SCHEMA = `
  syntax = "proto2";
  message Trace { repeated TracePacket packet = 1; }
  message TracePacket {
    optional uint64 timestamp = 8;
    optional uint32 trusted_packet_sequence_id = 10;
    optional TrackEvent track_event = 11;
    optional TrackDescriptor track_descriptor = 60;
  }
  message TrackDescriptor { optional uint64 uuid = 1; optional string name = 2; }
  message TrackEvent {
    enum Type { TYPE_SLICE_BEGIN = 1; TYPE_SLICE_END = 2; TYPE_INSTANT = 3; }
    optional Type type = 9;
    optional uint64 track_uuid = 11;
    optional string name = 23;
  }`;

function checkTrace(bytes: Uint8Array): void {
  const type = protobuf.parse(SCHEMA, { keepCase: true }).root.lookupType('Trace');
  const { packet } = type.toObject(type.decode(bytes), { longs: Number, enums: String });
  const names = new Map<number, string>();
  const open = new Map<number, string[]>();
  for (const { track_descriptor: track } of packet) if (track) names.set(track.uuid, track.name);
  const events = packet.filter((one: { track_event?: object }) => one.track_event);
  for (const { track_event: event } of events) {
    const on = open.get(event.track_uuid) ?? [];
    expect(names.get(event.track_uuid)).toBeTruthy();
    if (event.type === 'TYPE_SLICE_BEGIN') open.set(event.track_uuid, [...on, event.name]);
    if (event.type === 'TYPE_SLICE_END') expect(on.pop()).toBe(event.name);
  }
  expect([...open.values()].flat()).toEqual([]);
  expect([...names.values()]).toEqual(
    expect.arrayContaining(['client 1', "client 1's process", 'client 1 believes', 'node A']),
  );
}

/**
 * Sends a request with any headers, as a program outside of the browser may. Returns the status.
 */
async function status(path: string, options: Parameters<typeof request>[1] = {}): Promise<number> {
  const { port } = new URL(url);
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const sent = request({ port, host: '127.0.0.1', path, ...options }, (reply) => {
    resolve(reply.statusCode ?? 0);
    reply.destroy();
  });
  sent.on('error', reject).end(options.method === 'POST' ? '{"action":"hold"}' : undefined);
  return promise;
}

test('another site can neither read the runs nor press the buttons', async () => {
  const { pathname, host } = new URL(url);
  const post = { method: 'POST', headers: { host, 'content-type': 'application/json' } };
  // This request is allowed. The answer is 409, because there is no run to act on.
  expect(await status(`${pathname}live/act`, post)).toBe(409);
  expect(await status('/live/act', post)).toBe(404);
  expect(await status(`/${'x'.repeat(32)}/live/feed`)).toBe(404);
  const from = (headers: Record<string, string>) => ({
    method: 'POST',
    headers: { ...post.headers, ...headers },
  });
  expect(await status(`${pathname}live/act`, from({ origin: 'https://evil.example' }))).toBe(403);
  expect(await status(`${pathname}live/act`, from({ origin: 'null' }))).toBe(403);
  expect(await status(`${pathname}live/act`, from({ host: 'rebound.example' }))).toBe(421);
  expect(await status(`${pathname}live/act`, from({ 'content-type': 'text/plain' }))).toBe(415);
  expect(await status(`${pathname}..%2f..%2fpackage.json`)).toBe(404);
  expect(await status(`${pathname}live/act`, { method: 'DELETE' })).toBe(405);
});
