import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CHROMIUM, installed } from '@fenced/testbed';
import { type Browser, chromium } from 'playwright-core';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
};

/** Builds the page into a folder. */
export async function buildPage(folder: string): Promise<void> {
  const args = ['packages/page/build.ts', '--out', folder];
  await promisify(execFile)(process.execPath, args, { cwd: ROOT });
}

/** Serves a folder on loopback, as any static host does. */
export async function serve(folder: string): Promise<Server & { readonly origin: string }> {
  const server = createServer((request, reply) => {
    const path = normalize(new URL(request.url ?? '/', 'http://page').pathname);
    const file = join(folder, path.endsWith('/') ? `${path}index.html` : path);
    readFile(file).then(
      (bytes) => reply.setHeader('content-type', TYPES[extname(file)] ?? '').end(bytes),
      () => reply.writeHead(404).end(),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(server, { origin: `http://127.0.0.1:${port}` });
}

/** Starts Chromium. On Debian as root, installs it before if it is missing. */
export async function startChromium(): Promise<Browser> {
  const executablePath = await installed(CHROMIUM);
  // Chromium has no sandbox for root.
  return chromium.launch({
    executablePath,
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  });
}

/** Returns the text of a script that runs a task in a worker, as the page does. */
export function taskInWorker(task: object, file = 'simulator/shipping.js'): string {
  return `new Promise((resolve, reject) => {
    const worker = new Worker(${JSON.stringify(file)}, { type: 'module' });
    worker.onerror = () => reject(new Error('the worker could not be loaded'));
    worker.onmessage = ({ data }) => {
      if (data.kind === 'progress') return;
      worker.terminate();
      resolve(data);
    };
    worker.postMessage(${JSON.stringify(task)});
  })`;
}
