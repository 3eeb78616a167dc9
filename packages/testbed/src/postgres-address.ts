import { Client } from 'pg';
import type { Service } from './service.js';

const ASK_LIMIT_MS = 2_000;

export interface PostgresService extends Service {
  /** Includes user, password and database. The user is a superuser. */
  readonly url: string;
}

/** Returns the version that the server reports. */
export async function askPostgres(url: string): Promise<string> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: ASK_LIMIT_MS,
    query_timeout: ASK_LIMIT_MS,
  });
  // The server may end the connection at the same time. The answer has arrived by then.
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query("SELECT current_setting('server_version') AS version");
    return `postgres ${rows[0]?.version}`;
  } finally {
    await client.end();
  }
}
