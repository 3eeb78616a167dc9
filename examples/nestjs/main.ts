// A NestJS application. Its services get the lock and the store by injection.
import 'reflect-metadata';
import { PostgresLock } from '@fenced/lock/postgres';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { Inject, Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import pg from 'pg';

function newPool(): pg.Pool {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  pool.on('error', console.error); // without a listener, pg ends the process
  return pool;
}

const providers = [
  { provide: pg.Pool, useFactory: newPool },
  {
    provide: PostgresLock,
    inject: [pg.Pool],
    useFactory: (pool: pg.Pool) => new PostgresLock({ pool }),
  },
  {
    provide: FencedPostgres,
    inject: [pg.Pool],
    useFactory: (pool: pg.Pool) => new FencedPostgres({ pool }),
  },
];

@Module({ providers, exports: providers })
class FencedModule implements OnApplicationShutdown {
  @Inject(pg.Pool) private readonly pool!: pg.Pool;
  @Inject(PostgresLock) private readonly lock!: PostgresLock;

  async onApplicationShutdown(): Promise<void> {
    await this.lock.close();
    await this.pool.end();
  }
}

@Injectable()
class InvoiceService {
  @Inject(PostgresLock) private readonly lock!: PostgresLock;
  @Inject(FencedPostgres) private readonly store!: FencedPostgres;

  /**
   * @throws {StaleTokenError} if this process stood still, and another process has written since
   */
  async close(invoice: string, clerk: string): Promise<void> {
    const resource = `invoice/${invoice}`;
    await this.lock.using(resource, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
      const write = 'INSERT INTO invoice VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET clerk = $2';
      await this.store.query({ resource, token }, write, [invoice, clerk]);
    });
  }
}

@Module({ imports: [FencedModule], providers: [InvoiceService] })
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] });
await app.get(PostgresLock).install();
await app.get(FencedPostgres).install();
await app
  .get(pg.Pool)
  .query('CREATE TABLE IF NOT EXISTS invoice (id text PRIMARY KEY, clerk text NOT NULL)');
const [invoice = '42', clerk = 'ann'] = process.argv.slice(2);
try {
  await app.get(InvoiceService).close(invoice, clerk);
  console.log(`${clerk} has closed ${invoice}`);
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`${clerk} is refused: another clerk has closed ${invoice}`);
}
await app.close();
