import { expect, test, vi } from 'vitest';
import manifest from '../package.json' with { type: 'json' };
import { main } from './main.js';

const MISTAKES: readonly [string, readonly string[], string][] = [
  ['no lock', ['--', 'true'], 'name the lock: --lock NAME'],
  ['no command', ['--lock', 'x', '--'], 'the command comes after --'],
  ['a command without --', ['--lock', 'x', './report.sh', '--all'], 'the command comes after --'],
  [
    'a time without a unit',
    ['--lock', 'x', '--ttl', '30', '--', 'true'],
    '--ttl takes a time such as 500ms, 30s, 5m or 1h',
  ],
  [
    'a time that is too short',
    ['--lock', 'x', '--ttl', '10ms', '--', 'true'],
    '--ttl must be 1s or more',
  ],
  [
    'a wait without a unit',
    ['--lock', 'x', '--wait', '5', '--', 'true'],
    '--wait takes a time such as',
  ],
  [
    'a grace above half of the lease',
    ['--lock', 'x', '--ttl', '2s', '--grace', '2s', '--', 'true'],
    '--grace may be half of --ttl at most',
  ],
  [
    'an unknown option',
    ['--lock', 'x', '--timeout', '5s', '--', 'true'],
    "Unknown option '--timeout'",
  ],
  [
    'two nodes in one option',
    ['--lock', 'x', '--redis', 'a=redis://:one@h,b=redis://:two@h', '--', 'true'],
    'once for each node: a=redis://:***@h,b=redis://:***@h',
  ],
  ['no nodes', ['--lock', 'x', '--', 'true'], 'name the nodes: --redis NAME=URL for each'],
  [
    'two lock services',
    ['--lock', 'x', '--redis', 'redis://h', '--gateway', 'http://h', '--', 'true'],
    'name one lock service: --redis or --gateway',
  ],
  [
    'a schema for Redis',
    ['--lock', 'x', '--redis', 'redis://h', '--install', '--', 'true'],
    '--install is for a lock in Postgres',
  ],
  [
    'a durable node that is none',
    ['--lock', 'x', '--redis', 'a=redis://127.0.0.1:1', '--durable', 'b', '--', 'true'],
    '--durable is not the name of a node: b',
  ],
];

test.each(MISTAKES)(
  'fenced run with %s prints what to do, and where the help is',
  async (_, args, message) => {
    for (const name of ['REDIS', 'POSTGRES', 'URL']) vi.stubEnv(`FENCED_${name}`, undefined);
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const code = await main(['run', ...args]);
    const text = written.mock.calls.join('');
    vi.restoreAllMocks();
    expect({ code, text }).toEqual({ code: 64, text: expect.stringContaining(message) });
    expect(text).toContain('fenced run --lock NAME');
    expect(text.split('\n').length).toBeLessThan(6);
  },
);

test('fenced --version prints the version of the package', async () => {
  const written = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const code = await main(['--version']);
  const text = written.mock.calls.join('');
  vi.restoreAllMocks();
  expect({ code, text }).toEqual({ code: 0, text: `${manifest.version}\n` });
});
