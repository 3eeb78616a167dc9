import type { GatewayObjects } from '@fenced/client';
import { s3ServersAtHand } from '@fenced/testbed';
import { afterAll, beforeAll, describe } from 'vitest';
import { faults } from './harness/faults.js';
import { behindGateways } from './harness/gateway-stage.js';
import { openStage, type Stage } from './harness/stage.js';
import { operations } from './operations.js';
import { properties } from './properties.js';
import { streams } from './streams.js';

// The contract of the store, through a gateway and its client.
const [server = 'environment'] = s3ServersAtHand();
describe(`through a gateway, on ${server}`, () => {
  let stage: Stage<GatewayObjects>;
  const staged = (): Stage<GatewayObjects> => stage;
  beforeAll(async () => {
    stage = await behindGateways(await openStage(server));
  });
  afterAll(() => stage[Symbol.asyncDispose]());

  describe('operations', () => operations(staged));
  // Only on request, because it takes half a minute: servers.test.ts tests the store without
  // gateway.
  if (process.env.FENCED_S3_SERVERS === 'all')
    describe('replies that get lost', () => faults(staged));
  describe('streams', () => streams(staged));
  describe('properties', () => properties(staged));
});
