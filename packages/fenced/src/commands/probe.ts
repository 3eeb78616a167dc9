import { parseArgs } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import { type CheckReport, FencedStoreError, UnsafeStoreError } from '@fenced/store';
import { FencedS3, type StoreCapabilities } from '@fenced/store/s3';
import { type Command, print, printJson, printTable, UsageError, understood } from '../command.js';

const EXIT_UNSAFE = 1;
const EXIT_NOTHING_LEARNT = 3;

const options = {
  endpoint: { type: 'string' },
  region: { type: 'string' },
  'virtual-hosts': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** What `--json` prints. */
interface Verdict {
  readonly bucket: string;
  readonly safe: boolean;
  readonly error?: { readonly code: string; readonly message: string };
  readonly capabilities?: Omit<StoreCapabilities, 'report' | 'checks'>;
  readonly report: readonly CheckReport[];
}

export const probe: Command = {
  summary: 'what an S3 server enforces, and whether fencing can rest on it',
  usage: `fenced probe s3://bucket[/prefix] [--endpoint URL] [--region NAME] [--virtual-hosts] [--json]

  --endpoint URL     the server; without it, that of the environment, or AWS
  --region NAME      without it, that of the environment; us-east-1 where the server is not AWS
  --virtual-hosts    the bucket is a part of the host name, although there is an endpoint
  --json             one JSON document

Asks with objects of its own that it removes again, and leaves the verdict in the bucket as a certificate. Credentials and
region come from the environment and the files of the AWS SDK.
Exit code: 0 the server can be relied on; ${EXIT_UNSAFE} it cannot; ${EXIT_NOTHING_LEARNT} nothing was learnt, since it did not answer or the set-up is wrong.`,

  async run(args) {
    const { bucket, prefix, json, ...server } = parse(args);
    const client = new S3Client(server);
    try {
      const verdict = await judge(bucket, new FencedS3({ client, bucket, prefix }));
      if (json) printJson(verdict);
      else show(verdict);
      if (verdict.safe) return 0;
      return verdict.error?.code === 'unsafe-store' ? EXIT_UNSAFE : EXIT_NOTHING_LEARNT;
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

function show({ bucket, error, capabilities, report }: Verdict): void {
  const rows = report.map(({ check, sent, answered, verdict }) => [check, sent, answered, verdict]);
  if (rows.length > 0) {
    printTable([['check', 'sent', 'answered', 'verdict'], ...rows]);
    print('');
  }
  if (capabilities === undefined) {
    print(error?.message ?? '');
    return;
  }
  const { etagForm, conditionalComplete, versionIds } = capabilities;
  print(`s3://${bucket} enforces what fencing rests on. ETags are sent ${etagForm}.`);
  print(
    conditionalComplete
      ? 'Multipart uploads are completed under a condition, so streams go up in parts.'
      : 'Multipart uploads are completed whatever their condition, so streams go through a temporary file and one PUT.',
  );
  if (versionIds === 'new') print('The bucket keeps old versions.');
}

function parse(args: readonly string[]) {
  const { values, positionals } = understood(() =>
    parseArgs({ args: [...args], allowPositionals: true, options }),
  );
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
