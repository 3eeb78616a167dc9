import { Agent } from 'node:http';
import { connect } from 'node:net';
import { S3Client } from '@aws-sdk/client-s3';
import type { S3Service, Upstream } from '@fenced/testbed';

export function addressOf(url: string): Upstream {
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port) };
}

/**
 * A client whose connections pass a proxy. It has the endpoint of the server, for which the bucket
 * was tested.
 */
export function s3ClientVia(service: S3Service, { host, port }: Upstream): S3Client {
  const { endpoint, region } = service;
  const httpAgent = new Agent({ keepAlive: true });
  httpAgent.createConnection = () => connect(port, host);
  const requestHandler = { httpAgent };
  const options = { endpoint, region, credentials: service, forcePathStyle: true };
  return new S3Client({ ...options, requestHandler });
}
