// Leads an election over Redis, and writes to Postgres with its token for as long as it runs.
// Prints a line for each change.
import { Redlock } from '@fenced/lock';
import { Elector } from '@fenced/lock/election';
import { FencedPostgres } from '@fenced/store/postgres';
import { Redis } from 'ioredis';
import pg from 'pg';

const [, , postgresUrl, resource = '', ...urls] = process.argv;
const nodes = urls.map((url, at) => ({ name: 'abcde'.charAt(at), client: new Redis(url) }));
const pool = new pg.Pool({ connectionString: postgresUrl });
pool.on('error', () => undefined);
// The lock of a transaction ends soon if this process is stopped.
const ledger = new FencedPostgres({ pool, holdMs: 1_000 });
const lock = new Redlock({ nodes });
const leadership = await new Elector({ lock, resource, ttlMs: 1_000 }).campaign();
const { token } = leadership;
const say = (line: string): void => void process.stdout.write(`${line}\n`);
leadership.signal.addEventListener('abort', () => say('deposed'));
say(`leads ${token}`);
for (let written = ''; ; ) {
  const outcome = await ledger
    .transaction({ resource, token }, (tx) =>
      tx.query('INSERT INTO work (token) VALUES ($1)', [String(token)]),
    )
    .then(
      () => 'written',
      ({ code }) => String(code),
    );
  if (outcome !== written) say(outcome);
  written = outcome;
}
