import { usePostgresJs } from '../store/harness/postgres-support.js';

usePostgresJs();

await import('./postgres-lock.test.js');
