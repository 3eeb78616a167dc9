import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const packages = ['lock', 'fenced-store', 'client', 'gateway'];
const entries = await Promise.all(
  packages.map(async (folder) => {
    const file = new URL(`../../packages/${folder}/package.json`, import.meta.url);
    const { name, exports, engines } = JSON.parse(await readFile(file, 'utf8'));
    return Object.entries<string>(exports)
      .filter(([, path]) => path.endsWith('.js'))
      .map(([entry, path]) => ({ name, entry, file: new URL(path, file), engines }));
  }),
);

/** Imports the file in a Node that reports this version. Returns its output. */
async function importOn(version: string, file: URL): Promise<string> {
  const program = `
    Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });
    import('${file}').then(() => console.log('imported'), ({ message }) => console.log(message));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--eval', program]);
  return stdout.trim();
}

test.each(entries.flat())(
  '$name, $entry: an older Node is refused at once, with a reason',
  async ({ name, file, engines }) => {
    // A library of the gateway needs a later Node than the other packages.
    const minor = name === '@fenced/gateway' ? 14 : 12;
    expect(engines.node).toBe(`>=22.${minor}`);
    for (const version of ['20.20.2', `22.${minor - 1}.0`]) {
      const reason = `${name} needs Node 22.${minor} or newer; this is Node ${version}`;
      expect(await importOn(version, file)).toBe(reason);
    }
    for (const version of [`22.${minor}.0`, '23.0.0']) {
      expect(await importOn(version, file)).toBe('imported');
    }
  },
);

test('the command says in one line that Node is too old', async () => {
  const command = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));
  const old = `Object.defineProperty(process, 'versions', { value: { node: '22.13.0' } })`;
  const args = ['--import', `data:text/javascript,${old}`, command, '--version'];
  const refused = promisify(execFile)(process.execPath, args);
  const stderr = 'fenced needs Node 22.14 or newer; this is Node 22.13.0\n';
  await expect(refused).rejects.toMatchObject({ code: 1, stderr });
});
