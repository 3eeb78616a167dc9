import { writeFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { join } from 'node:path';
import { FIREFOX, installed, makeTemporaryFolder, spawnGuarded } from '@fenced/testbed';

/**
 * Runs a script in Firefox, in a page of a served folder. Returns the result of the script. It does
 * not use Playwright, which drives only a patched Firefox that Debian does not have.
 */
export async function evaluateInFirefox(
  { folder, server }: { readonly folder: string; readonly server: Server & { origin: string } },
  script: string,
): Promise<unknown> {
  await writeFile(
    join(folder, 'probe.html'),
    `<!doctype html><title>Probe</title><script type="module">
      const answer = await (${script}).catch((error) => ({ error: String(error) }));
      await fetch('/answer?' + encodeURIComponent(JSON.stringify(answer)));
    </script>`,
  );
  const answer = new Promise<unknown>((resolve) => {
    server.on('request', ({ url = '' }: { url?: string }) => {
      const [path, text = ''] = url.split('?');
      if (path === '/answer') resolve(JSON.parse(decodeURIComponent(text)));
    });
  });
  await using profile = await makeTemporaryFolder('firefox');
  const args = ['--headless', '--no-remote', '--profile', profile.path];
  await using firefox = await spawnGuarded(
    await installed(FIREFOX),
    [...args, `${server.origin}/probe.html`],
    // Firefox also writes to the home folder, so it gets one of its own.
    { stdout: 'ignore', stderr: 'ignore', env: { ...process.env, HOME: profile.path } },
  );
  const ended = firefox.exited.then(() => Promise.reject(new Error('Firefox ended')));
  return await Promise.race([answer, ended]);
}
