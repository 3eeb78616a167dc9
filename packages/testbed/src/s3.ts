import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { TestbedError } from './errors.js';
import { startMinio } from './minio.js';
import { startMoto } from './moto.js';
import { S3, variable } from './needs.js';
import { findProgram, type S3Program, s3ServersHere } from './programs.js';
import { startRadosgw } from './radosgw.js';
import {
  askS3,
  type CrashableS3,
  type S3Address,
  type S3Keys,
  type S3Service,
} from './s3-address.js';
import { asService, environmentError, fromFirstOrigin } from './service.js';

const REGION = 'us-east-1';
const START: Readonly<
  Record<S3Program, (keys: S3Keys, parts: AsyncDisposableStack) => Promise<S3Address | CrashableS3>>
> = { minio: startMinio, radosgw: startRadosgw, moto: startMoto };

/**
 * Starts the first S3 server that is available:
 *
 * - the address in `FENCED_S3_ENDPOINT`, with `FENCED_S3_ACCESS_KEY_ID`,
 *   `FENCED_S3_SECRET_ACCESS_KEY` and `FENCED_S3_REGION` (by default us-east-1)
 * - `minio`, or Ceph's `radosgw`
 * - MinIO in Docker
 *
 * `FENCED_S3_SERVER=minio|radosgw|moto|docker` chooses one.
 *
 * @param only chooses one of `s3ServersAtHand`
 * @throws {TestbedError} if none is available; see its `code`
 */
export async function startS3(only?: S3Program): Promise<S3Service> {
  if (only !== undefined) return s3OfThisMachine(only);
  return await fromFirstOrigin(S3, {
    environment: s3OfEnvironment,
    program: s3OfThisMachine,
    docker: async () => (await import('./docker.js')).minioInDocker(newKeys()),
  });
}

/** Returns the available S3 servers. If variables choose a server, this is `environment` alone. */
export function s3ServersAtHand(): readonly (S3Program | 'environment')[] {
  const isSet = variable(S3.variable) !== undefined || variable('FENCED_S3_SERVER') !== undefined;
  return isSet ? ['environment'] : s3ServersHere();
}

async function s3OfEnvironment(endpoint: string): Promise<S3Service> {
  const address = {
    endpoint,
    region: variable('FENCED_S3_REGION') ?? REGION,
    accessKeyId: required('FENCED_S3_ACCESS_KEY_ID'),
    secretAccessKey: required('FENCED_S3_SECRET_ACCESS_KEY'),
  };
  await askS3(address).catch((cause) => {
    throw environmentError(S3.variable, endpoint, cause);
  });
  const how = { origin: 'environment', program: endpoint } as const;
  return asService(how, new AsyncDisposableStack(), { ...address, server: 'unknown' });
}

function required(name: string): string {
  const value = variable(name);
  if (value === undefined) {
    throw new TestbedError('environment', `${S3.variable} is set, so ${name} must be set too`);
  }
  return value;
}

async function s3OfThisMachine(server: S3Program): Promise<S3Service> {
  await using parts = new AsyncDisposableStack();
  const program = await versionOf(server);
  const address = await START[server](newKeys(), parts);
  return asService({ origin: 'program', program }, parts.move(), { ...address, server });
}

/** Makes new keys for each server. A foreign server on the same port does not accept them. */
function newKeys(): S3Keys {
  return {
    region: REGION,
    accessKeyId: randomBytes(10).toString('hex'),
    secretAccessKey: randomBytes(20).toString('hex'),
  };
}

/**
 * Reads `minio version RELEASE.2025-09-07T16-13-09Z (…)` or `ceph version 16.2.15 (618f…) pacific
 * (stable)`. moto has no such command.
 */
async function versionOf(server: S3Program): Promise<string> {
  if (server === 'moto') return 'moto';
  const { stdout } = await promisify(execFile)(findProgram(server) ?? server, ['--version']);
  const version = /version (\S+)/.exec(stdout)?.[1] ?? 'of unknown version';
  return server === 'minio' ? `minio ${version}` : `radosgw ${version} (Ceph)`;
}
