import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const FOLDER = join(import.meta.dirname, '..', '..', 'docs', 'paper');
const pdf = readFileSync(join(FOLDER, 'paper.pdf'), 'latin1');

test('the PDF of the paper was made from its present text and style: npm run paper', () => {
  const hash = createHash('sha256');
  for (const name of ['README.md', 'paper.css']) hash.update(readFileSync(join(FOLDER, name)));
  expect(pdf).toContain(`/Creator (sources SHA-256 ${hash.digest('hex')})`);
});

test('the PDF of the paper has at most eight pages', () => {
  const pages = pdf.match(/\/Type \/Page\b/g) ?? [];
  expect(pages.length).toBeGreaterThan(1);
  expect(pages.length).toBeLessThanOrEqual(8);
});

test('the PDF of the paper names no file of the machine that printed it, and no date', () => {
  expect(pdf).not.toContain('file:');
  expect(pdf.match(/Date \(D:0{14}\+00'00'\)/g)).toHaveLength(2);
});
