import { parseArgs } from 'node:util';
import { S3Client } from '@aws-sdk/client-s3';
import { type CheckReport, FencedStoreError, UnsafeStoreError } from '@fenced/store';
import { FencedS3, type StoreCapabilities } from '@fenced/store/s3';
import { type Command, print, printJson, printTable, UsageError, understood } from '../command.js';
import { bucketOf, s3Config } from '../s3.js';

const EXIT_UNSAFE = 1;
const EXIT_UNKNOWN = 3;

const options = {
  endpoint: { type: 'string' },
  region: { type: 'string' },
  'virtual-hosts': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** The result, as `--json` prints it. */
interface Verdict {
  readonly bucket: string;
  readonly safe: boolean;
  readonly error?: { readonly code: string; readonly message: string };
  readonly capabilities?: Omit<StoreCapabilities, 'report' | 'checks'>;
  readonly report: readonly CheckReport[];
}

export const probe: Command = {
  summary: 'tests if an S3 server enforces the conditions that fencing needs',
  usage: `fenced probe s3://bucket[/prefix] [OPTION]…

  --endpoint URL     the server; by default the one of the environment, else AWS
  --region NAME      by default the one of the environment, else us-east-1 if
                     the server is not AWS
  --virtual-hosts    the bucket is part of the host name, although there is an
                     endpoint
  --json             print one JSON document

Writes objects of its own, and removes them. Leaves its verdict in the bucket as
a certificate. A verdict that the server is unsafe counts for every process,
until this command passes. Credentials and region come from the environment and
the files of the AWS SDK.

Exit codes:
  0   the server is safe
  ${EXIT_UNSAFE}   it is not
  ${EXIT_UNKNOWN}   unknown: it did not answer, or the set-up is wrong`,

  async run(args) {
    const { bucket, prefix, json, ...server } = parse(args);
    const client = new S3Client(server);
    try {
      const verdict = await verdictOn(bucket, new FencedS3({ client, bucket, prefix }));
      if (json) printJson(verdict);
      else show(verdict);
      if (verdict.safe) return 0;
      return verdict.error?.code === 'unsafe-store' ? EXIT_UNSAFE : EXIT_UNKNOWN;
    } finally {
      client.destroy();
    }
  },
};

async function verdictOn(bucket: string, store: FencedS3): Promise<Verdict> {
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
  print(`s3://${bucket} enforces the conditions that fencing needs. ETags are sent ${etagForm}.`);
  print(
    conditionalComplete
      ? 'It completes multipart uploads under a condition, so streams are sent in parts.'
      : 'It ignores the condition of a multipart upload, so streams go through a temporary file and one PUT.',
  );
  if (versionIds === 'new') print('The bucket keeps old versions.');
}

function parse(args: readonly string[]) {
  const { values, positionals } = understood(() =>
    parseArgs({ args: [...args], allowPositionals: true, options }),
  );
  const [target, ...more] = positionals;
  if (more.length > 0)
    throw new UsageError(`name one bucket, as s3://bucket: ${positionals.join(' ')}`);
  const { json = false, ...server } = values;
  return { ...bucketOf(target), ...s3Config(server), json };
}
