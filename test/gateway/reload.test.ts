import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createTokenSigner } from '@fenced/gateway';
import { WorkerProcess } from '@fenced/testbed';
import { expect, test } from 'vitest';
import { problemOf, until } from './harness/world.js';

const bin = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));

test('credentials and signing keys are read again on SIGHUP, and when a file changes', async () => {
  await using parts = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'fenced-reload-'));
  parts.defer(() => rm(folder, { recursive: true }));
  const [config, signing] = [join(folder, 'gateway.yaml'), join(folder, 'signing')];
  const write = (key: string) =>
    writeFile(
      config,
      JSON.stringify({
        listen: { port: 0 },
        redis: { nodes: [{ name: 'none', url: 'redis://127.0.0.1:1' }] },
        credentials: {
          keys: [
            {
              name: 'ada',
              sha256: createHash('sha256').update(key).digest('hex'),
              verbs: ['lease'],
              prefixes: ['leases/a'],
            },
          ],
        },
        signing: { keys: [{ id: 'k1', secretFile: signing }] },
        rate: { perAddress: { perSecond: 1_000, burst: 1_000 } },
      }),
    );
  const secrets = [randomBytes(32), randomBytes(32)] as const;
  await writeFile(signing, secrets[0].toString('base64'));
  await write('first');

  const log: Record<string, unknown>[] = [];
  const gateway = parts.use(
    await WorkerProcess.start(bin, {
      args: ['gateway', '--config', config],
      onLine: (line) => log.push(JSON.parse(line)),
    }),
  );
  const lines = (start: string) => log.filter(({ msg }) => String(msg).startsWith(start)).length;
  await until(() => lines('listening') > 0);
  const url = String(log.find(({ msg }) => msg === 'listening')?.url);
  /** Releases a lease that has the signature of `secret`. Without lock nodes, it is `no-quorum`. */
  const ask = async (key: string, secret: Uint8Array): Promise<unknown> => {
    const owner = '0f8fad5b-d9cb-469f-a165-70867728950e';
    const signed = createTokenSigner([{ id: 'k1', secret }], () => Date.now()).sign(
      ...([1n, { purpose: 'lease', resource: 'a', owner }, Date.now() + 60_000] as const),
    );
    const headers = { Authorization: `Bearer ${key}` };
    const answer = await fetch(`${url}/v1/leases/a/${owner}.${signed}`, {
      method: 'DELETE',
      headers,
    });
    return String((await problemOf(answer)).type).replace('urn:fenced:problem:', '');
  };
  const outcomes = () =>
    Promise.all([ask('first', secrets[0]), ask('second', secrets[0]), ask('second', secrets[1])]);
  expect(await outcomes()).toEqual(['no-quorum', 'unauthenticated', 'unauthenticated']);

  await write('second');
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => lines('credentials and signing keys were read') > 0);
  expect(await outcomes()).toEqual(['unauthenticated', 'no-quorum', 'invalid-token']);

  await writeFile(config, '{');
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => lines('credentials and signing keys stay') > 0);
  expect(await outcomes()).toEqual(['unauthenticated', 'no-quorum', 'invalid-token']);

  await write('second');
  await writeFile(signing, secrets[1].toString('base64'));
  await expect
    .poll(outcomes, { timeout: 60_000 })
    .toEqual(['unauthenticated', 'invalid-token', 'no-quorum']);
  expect(await gateway.kill('SIGTERM')).toMatchObject({ code: 0 });
});
