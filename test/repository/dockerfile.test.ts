import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('the health check of the image asks the port that serves /livez', async () => {
  const dockerfile = await readFile(new URL('../../Dockerfile', import.meta.url), 'utf8');
  const [, cmd = '[]'] = /^HEALTHCHECK .*\n\s*CMD (\[.*\])$/m.exec(dockerfile) ?? [];
  const [, ...args] = JSON.parse(cmd) as string[];
  const asked: string[] = [];
  const server = createServer(({ url = '' }, answer) => {
    asked.push(url);
    answer.end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const port = String((server.address() as AddressInfo).port);
  const check = (env: NodeJS.ProcessEnv) =>
    promisify(execFile)(process.execPath, args, { env: { ...process.env, ...env } });
  await check({ FENCED_GATEWAY_LISTEN_PORT: port });
  await check({ FENCED_GATEWAY_LISTEN_PORT: '1', FENCED_GATEWAY_OPERATIONS_PORT: port });
  expect(asked).toEqual(['/livez', '/livez']);
  server.close();
  await expect(check({ FENCED_GATEWAY_LISTEN_PORT: '1' })).rejects.toMatchObject({ code: 1 });
});

test('the base image has a digest, and the version of Node that the tests run on', async () => {
  const dockerfile = await readFile(new URL('../../Dockerfile', import.meta.url), 'utf8');
  const image = new RegExp(
    `^ARG NODE_IMAGE=node:${process.versions.node}-[a-z-]+@sha256:[0-9a-f]{64}$`,
    'm',
  );
  expect(dockerfile).toMatch(image);
});
