// An HTTP service that checks fencing tokens in its own table. Callers send the tokens of their
// locks.
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', console.error); // without a listener, pg ends the process
await pool.query(
  'CREATE TABLE IF NOT EXISTS price (item text PRIMARY KEY, cents int NOT NULL, token bigint NOT NULL)',
);

/** Compares the token and writes in one statement. Between two, a newer holder could write. */
const WRITE = `INSERT INTO price VALUES ($1, $2, $3)
  ON CONFLICT (item) DO UPDATE SET cents = $2, token = $3 WHERE price.token <= $3`;

const server = createServer(async (request, response) => {
  const item = request.url?.slice(1);
  const token = request.headers['fencing-token'];
  const cents = Number(await text(request));
  if (request.method !== 'PUT' || !item || !Number.isInteger(cents))
    return void response.writeHead(400).end('PUT /ITEM with a price in cents\n');
  // A write without a token is refused by 428. Otherwise a program that forgot it would write
  // unfenced.
  if (typeof token !== 'string' || !/^\d{1,18}$/.test(token))
    return void response.writeHead(428).end('the header Fencing-Token is missing\n');
  try {
    const { rowCount } = await pool.query(WRITE, [item, cents, token]);
    if (rowCount === 0) response.writeHead(412).end('a later holder has written\n');
    else response.writeHead(204).end();
  } catch (error) {
    console.error(error);
    // The write may have been applied. The same write with the same token may be sent again.
    response.writeHead(503).end('unknown outcome\n');
  }
});
server.listen(Number(process.env.PORT ?? 8081), '127.0.0.1', () =>
  console.log(`http://127.0.0.1:${Object(server.address()).port}`),
);
process.once('SIGTERM', () => server.close(() => pool.end()));
