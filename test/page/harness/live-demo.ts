import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../../packages/demo/dist/main.js', import.meta.url));

/** `npm run demo -- --web`, with Postgres as the store. */
export interface LiveDemo extends AsyncDisposable {
  /** The address that it printed. */
  readonly url: string;
}

export async function startLiveDemo(): Promise<LiveDemo> {
  const demo = spawn(process.execPath, [MAIN, '--web', '--store', 'postgres'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(demo, 'exit');
  const [url] = await Promise.race([
    once(createInterface({ input: demo.stdout }), 'line'),
    ended.then(() => Promise.reject(new Error('the demo ended'))),
  ]);
  return {
    url,
    async [Symbol.asyncDispose]() {
      demo.kill('SIGINT');
      await ended;
    },
  };
}
