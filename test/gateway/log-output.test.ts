import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { until } from './harness/world.js';

const bin = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));
/** A lease that a line names twice, so that few requests fill the log. */
const LONG_PATH = `/v1/leases/${'a'.repeat(2_000)}/no-id`;

let parts = new AsyncDisposableStack();
afterEach(async () => {
  await parts.disposeAsync();
  parts = new AsyncDisposableStack();
});

/** A gateway without servers, which answers with problems, and logs each request. */
class Gateway {
  readonly process: ChildProcess;
  readonly exited: Promise<readonly [code: number | null, signal: string | null]>;
  readonly #url: string;

  static async start(stdout: number | 'pipe'): Promise<Gateway> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const folder = await mkdtemp(join(tmpdir(), 'fenced-log-'));
    parts.defer(() => rm(folder, { recursive: true }));
    const config = join(folder, 'gateway.yaml');
    const rate = { perAddress: { perSecond: 1_000_000, burst: 1_000_000 } };
    const redis = { nodes: [{ name: 'none', url: 'redis://127.0.0.1:1' }] };
    await writeFile(config, JSON.stringify({ listen: { port }, redis, rate }));
    const gateway = new Gateway(config, `http://127.0.0.1:${port}`, stdout);
    const isUp = () =>
      gateway.ask('/livez').then(
        ({ ok }) => ok,
        () => false,
      );
    await Promise.race([until(isUp), gateway.exited]);
    return gateway;
  }

  private constructor(config: string, url: string, stdout: number | 'pipe') {
    this.#url = url;
    this.process = spawn(process.execPath, [bin, 'gateway', '--config', config], {
      stdio: ['ignore', stdout, 'inherit'],
    });
    this.exited = once(this.process, 'exit') as Promise<[number | null, string | null]>;
    parts.defer(async () => {
      this.process.kill('SIGKILL');
      await this.exited;
    });
  }

  ask(path: string, method = 'GET'): Promise<Response> {
    return fetch(this.#url + path, { method, signal: AbortSignal.timeout(20_000) });
  }

  /** Asks more often than the log has room for. @returns the number of lines dropped so far */
  async fill(before = 0): Promise<number> {
    const asked = Array.from({ length: 800 }, () => this.ask(LONG_PATH, 'DELETE'));
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([400]));
    const text = await (await this.ask('/metrics')).text();
    const [, after] = /^fenced_gateway_dropped_log_lines_total (\d+)$/m.exec(text) ?? [];
    expect(Number(after)).toBeGreaterThan(before);
    return Number(after);
  }

  async end(): Promise<readonly [code: number | null, signal: string | null]> {
    this.process.kill('SIGTERM');
    return this.exited;
  }
}

test('a gateway whose log has no room on its disk answers, counts the lost lines, and ends', async () => {
  const full = openSync('/dev/full', 'w');
  parts.defer(() => closeSync(full));
  const gateway = await Gateway.start(full);
  await gateway.fill();
  expect(await gateway.end()).toEqual([0, null]);
});

test('a gateway whose log nobody reads answers, tells of the lost lines when they are read, and ends', async () => {
  const gateway = await Gateway.start('pipe');
  const { stdout } = gateway.process;
  if (stdout === null) throw new Error('there is no pipe');
  const dropped = await gateway.fill();
  const pieces: string[] = [];
  stdout.setEncoding('utf8').on('data', (piece) => pieces.push(piece));
  const lines = () =>
    pieces
      .join('')
      .split('\n')
      .slice(0, -1)
      .map((line): Record<string, unknown> => JSON.parse(line));
  const told = () => lines().find(({ dropped }) => dropped !== undefined);
  await until(() => told() !== undefined);
  expect(told()).toMatchObject({ level: 'warn', dropped });
  // The requests of each line come once, in their order, and none is cut.
  const ids = lines().flatMap(({ requestId }) => (requestId === undefined ? [] : [requestId]));
  expect(new Set(ids).size).toBe(ids.length);

  stdout.pause();
  await gateway.fill(dropped);
  expect(await gateway.end()).toEqual([0, null]);
});

test('a gateway whose reader of the log has gone answers, and ends', async () => {
  const gateway = await Gateway.start('pipe');
  gateway.process.stdout?.destroy();
  for (let at = 0; at < 20; at++) expect((await gateway.ask('/nothing')).status).toBe(404);
  expect(await gateway.end()).toEqual([0, null]);
});
