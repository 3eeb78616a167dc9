import type { S3ClientConfig } from '@aws-sdk/client-s3';
import { UsageError } from './command.js';

/** @throws {UsageError} if `target` is not `s3://bucket` or `s3://bucket/prefix` */
export function bucketOf(target = ''): { readonly bucket: string; readonly prefix: string } {
  const match = /^s3:\/\/([^/]+)(?:\/(.*))?$/.exec(target);
  if (match === null) throw new UsageError(`name one bucket, as s3://bucket: ${target}`);
  const [, bucket = '', prefix = ''] = match;
  return { bucket, prefix };
}

/** The server of these options, else of the environment, else AWS. */
export function s3Config({
  endpoint,
  region,
  'virtual-hosts': virtualHosts,
}: {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly 'virtual-hosts'?: boolean | undefined;
}): S3ClientConfig {
  if (endpoint !== undefined && !URL.canParse(endpoint))
    throw new UsageError(`--endpoint must be a URL, such as http://127.0.0.1:9000: ${endpoint}`);
  const { AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION } = process.env;
  const isOther = (endpoint ?? AWS_ENDPOINT_URL_S3 ?? AWS_ENDPOINT_URL) !== undefined;
  // Servers other than AWS ignore the region, and have no host name for each bucket.
  const named = region ?? (isOther ? (AWS_REGION ?? 'us-east-1') : undefined);
  return {
    forcePathStyle: isOther && !virtualHosts,
    ...(endpoint !== undefined && { endpoint }),
    ...(named !== undefined && { region: named }),
  };
}
