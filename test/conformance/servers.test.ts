import { s3ServersAtHand } from '@fenced/testbed';
import { afterAll, beforeAll, describe } from 'vitest';
import { bucketOperations } from './bucket.js';
import { crashes } from './crashes.js';
import { everyPoint } from './every-point.js';
import { aborts, faults } from './harness/faults.js';
import { openStage, type Stage } from './harness/stage.js';
import { misleadingReplies } from './misleading.js';
import { operations } from './operations.js';
import { properties } from './properties.js';
import { streams, uploads } from './streams.js';

// The whole contract on each S3 server that is available: Ceph always, MinIO if it is installed,
// and the one in memory. `FENCED_S3_ENDPOINT` adds another, and `npm run test:servers` adds moto,
// for some minutes.
const servers = s3ServersAtHand().filter(
  (server) => server !== 'moto' || process.env.FENCED_S3_SERVERS === 'all',
);
describe.each([...servers, 'memory' as const])('on %s', (server) => {
  let stage: Stage;
  const staged = (): Stage => stage;
  beforeAll(async () => {
    stage = await openStage(server);
  });
  afterAll(() => stage[Symbol.asyncDispose]());

  describe('operations', () => operations(staged));
  // These need versions, tags, ACLs and policies.
  if (server !== 'memory') describe('what is in the bucket', () => bucketOperations(staged));
  describe('replies that get lost', () => faults(staged));
  describe('replies that mislead', () => misleadingReplies(staged));
  describe('calls that are given up', () => aborts(staged));
  describe('every point of every operation', () => everyPoint(staged));
  describe('streams', () => streams(staged));
  describe('uploads', () => uploads(staged));
  describe('properties', () => properties(staged));
  if (server === 'radosgw' || server === 'minio')
    describe('a server that is killed', () => crashes(staged));
});
