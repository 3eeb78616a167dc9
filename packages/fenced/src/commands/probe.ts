import { parseArgs } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import { type CheckReport, FencedStoreError, UnsafeStoreError } from '@fenced/store';
import { FencedS3, type StoreCapabilities } from '@fenced/store/s3';
import { type Command, EXIT, UsageError } from '../command.js';
import { table } from '../table.js';

const USAGE = `fenced probe s3://bucket[/prefix] [--endpoint URL] [--region NAME] [--virtual-hosts] [--json]
  Asks an S3 server, with objects of its own that it removes again, whether it enforces the conditions that fencing rests on;
  prints what was sent and answered; and leaves the verdict in the bucket as a certificate.
  --endpoint        the server; without one, that of the environment, or AWS
  --region          without one, that of the environment; us-east-1 where the server is not AWS
  --virtual-hosts   the bucket is a part of the host name, although there is an --endpoint
  --json            one JSON document instead of the table`;

/** What `--json` prints. */
interface Verdict {
  readonly bucket: string;
  readonly safe: boolean;
  readonly error?: { readonly code: string; readonly message: string };
  readonly capabilities?: Omit<StoreCapabilities, 'report' | 'checks'>;
  readonly report: readonly CheckReport[];
}

export const probe: Command = {
  name: 'probe',
  usage: USAGE,
  async run(args) {
    const { bucket, prefix, json, ...server } = parse(args);
    const client = new S3Client(server);
    try {
      const store = new FencedS3({ client, bucket, prefix });
      const verdict = await judge(bucket, store);
      const text = json ? JSON.stringify(verdict, null, 2) : render(verdict);
      process.stdout.write(`${text}\n`);
      if (verdict.safe) return EXIT.ok;
      return verdict.error?.code === 'unsafe-store' ? EXIT.refused : EXIT.failed;
    } finally {
      client.destroy();
    }
  },
};

async function judge(bucket: string, store: FencedS3): Promise<Verdict> {
  try {
    const { report, checks: _, ...capabilities } = await store.probe({ renew: true });
    return { bucket, safe: true, capabilities, report };
  } catch (error) {
    if (!(error instanceof FencedStoreError)) throw error;
    const report = error instanceof UnsafeStoreError ? error.report : [];
    return { bucket, safe: false, error: { code: error.code, message: error.message }, report };
  }
}

function render({ bucket, error, capabilities, report }: Verdict): string {
  const rows = report.map(({ check, sent, answered, verdict }) => [check, sent, answered, verdict]);
  const lines = rows.length > 0 ? [table(['check', 'sent', 'answered', 'verdict'], rows), ''] : [];
  if (capabilities === undefined) return [...lines, error?.message ?? ''].join('\n');
  const { etagForm, conditionalComplete, versionIds } = capabilities;
  return [
    ...lines,
    `s3://${bucket} enforces what fencing rests on. ETags are sent ${etagForm}.`,
    conditionalComplete
      ? 'Multipart uploads are completed under a condition, so streams go up in parts.'
      : 'Multipart uploads are completed whatever their condition, so streams go through a temporary file and one PUT.',
    ...(versionIds === 'new' ? ['The bucket keeps old versions.'] : []),
  ].join('\n');
}

function parse(args: readonly string[]) {
  const { values, positionals } = parsed(args);
  const [target, ...more] = positionals;
  const match = /^s3:\/\/([^/]+)(?:\/(.*))?$/.exec(target ?? '');
  if (match === null || more.length > 0)
    throw new UsageError(`one bucket is expected, as s3://bucket: ${positionals.join(' ')}`);
  const [, bucket = '', prefix = ''] = match;
  const { endpoint, region, json = false } = values;
  if (endpoint !== undefined && !URL.canParse(endpoint))
    throw new UsageError(`--endpoint must be a URL, such as http://127.0.0.1:9000: ${endpoint}`);
  const { AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION } = process.env;
  const isOther = (endpoint ?? AWS_ENDPOINT_URL_S3 ?? AWS_ENDPOINT_URL) !== undefined;
  // Servers other than AWS have a region in name only, and no host name for each bucket.
  const named = region ?? (isOther ? (AWS_REGION ?? 'us-east-1') : undefined);
  return {
    ...{ bucket, prefix, json, forcePathStyle: isOther && !values['virtual-hosts'] },
    ...(endpoint !== undefined && { endpoint }),
    ...(named !== undefined && { region: named }),
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        endpoint: { type: 'string' },
        region: { type: 'string' },
        'virtual-hosts': { type: 'boolean' },
        json: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
