import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import { expect, test } from 'vitest';

const ROOT = new URL('../../', import.meta.url);

/** The rights that S3 demands for each kind of request that the code sends. */
const RIGHTS: Readonly<Record<string, readonly string[]>> = {
  HeadObject: ['GetObject'],
  GetObject: ['GetObject'],
  GetObjectTagging: ['GetObjectTagging'],
  GetObjectAcl: ['GetObjectAcl'],
  ListObjectsV2: ['ListBucket'],
  // A claim writes the object's tags and ACL again, to keep them.
  PutObject: ['PutObject', 'PutObjectTagging', 'PutObjectAcl'],
  CreateMultipartUpload: ['PutObject', 'PutObjectTagging', 'PutObjectAcl'],
  UploadPart: ['PutObject'],
  UploadPartCopy: ['GetObject', 'PutObject'],
  CompleteMultipartUpload: ['PutObject'],
  AbortMultipartUpload: ['AbortMultipartUpload'],
  DeleteObject: ['DeleteObject'],
};

test('the policy of main.tf allows the requests of the code, and nothing else', async () => {
  const requests = new Set<string>();
  for await (const file of glob('packages/fenced-store/src/s3/**/*.ts', { cwd: ROOT.pathname })) {
    if (file.endsWith('.test.ts')) continue;
    const source = readFileSync(new URL(file, ROOT), 'utf8');
    for (const [, request = ''] of source.matchAll(/new (\w+)Command\(/g)) requests.add(request);
  }
  const needed = new Set([...requests].flatMap((request) => RIGHTS[request] ?? [request]));
  const policy = readFileSync(new URL('deploy/terraform/main.tf', ROOT), 'utf8');
  const allowed = [...policy.matchAll(/Effect += "Allow"\s+Action += \[([^\]]*)\]/g)].flatMap(
    ([, actions = '']) => [...actions.matchAll(/"s3:(\w+)"/g)].map(([, action]) => action),
  );
  expect(allowed.toSorted()).toEqual([...needed].toSorted());
});
