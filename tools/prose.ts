import { globSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { parseArgs } from 'node:util';
import type { TxtNode, TxtParentNode } from '@textlint/ast-node-types';
import { parse } from '@textlint/markdown-to-ast';
import { StringSource } from 'textlint-util-to-string';
import { readCommandLine } from '../packages/testbed/src/command-line.ts';
import config from '../prose.json' with { type: 'json' };
import { commentsOf } from './comments.ts';

const USAGE = `npm run prose -- [PATH]…

Reads Markdown and the comments of TypeScript, Lua and SQL. Lists long sentences, phrases that
prose.json bans, and comment lines that are too wide. CONTRIBUTING.md has the rules.

  PATH   lists the findings of files whose paths begin so, in place of all

Exit code: 0 nothing is listed; 1 otherwise.`;

interface Finding {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

type Block = ConstructorParameters<typeof StringSource>[0];

const english = new Intl.Segmenter('en', { granularity: 'sentence' });
const banned = config.banned.map(({ pattern, say }) => ({ pattern: new RegExp(pattern), say }));

const paths = readCommandLine(USAGE, () => parseArgs({ allowPositionals: true }).positionals);
const findings = globSync('**/*.{md,ts,lua,sql}', { exclude: config.exclude })
  .sort()
  .flatMap(findingsOf);
const listed = findings.filter(isMeant);
for (const { path, line, text } of listed) say(`${path}:${line} ${text}`);
if (listed.length > 0) process.exitCode = 1;

function findingsOf(path: string): Finding[] {
  const source = readFileSync(path, 'utf8');
  const extension = extname(path);
  if (extension === '.md') return sentencesOf(path, source);
  const comments = commentsOf(extension, source);
  const wide = source.split('\n').flatMap((line, at) => {
    const isWide = comments[at] !== '' && line.length > config.commentColumnsMax;
    return isWide ? [{ path, line: at + 1, text: `comment of ${line.length} columns` }] : [];
  });
  return [...wide, ...sentencesOf(path, comments.join('\n'))];
}

function sentencesOf(path: string, markdown: string): Finding[] {
  return blocksOf(parse(markdown)).flatMap((block) => {
    // Code counts as one word, which may begin a sentence.
    const text = new StringSource(block as Block, {
      replacer: ({ node, maskValue }) => (node.type === 'Code' ? maskValue('X') : undefined),
    }).toString();
    // The segmenter takes a line break for the end of a sentence, so it gets none.
    return [...english.segment(text.replaceAll('\n', ' '))].flatMap(({ segment, index }) => {
      const sentence = segment.trim().replace(/ +/g, ' ');

      const line = block.loc.start.line + text.slice(0, index).split('\n').length - 1;
      return remarksOn(sentence).map((remark) => ({
        path,
        line,
        text: `${remark}: ${sentence.slice(0, 100)}`,
      }));
    });
  });
}

function remarksOn(sentence: string): string[] {
  const words = sentence.split(' ').length;
  const phrases = banned.filter(({ pattern }) => pattern.test(sentence)).map(({ say }) => say);
  return words > config.sentenceWordsMax ? [`${words} words`, ...phrases] : phrases;
}

/** Returns the paragraphs and table cells, at any depth. */
function blocksOf(node: TxtNode): TxtParentNode[] {
  if (!('children' in node)) return [];
  const parent = node as TxtParentNode;
  if (parent.type === 'Paragraph' || parent.type === 'TableCell') return [parent];
  return parent.children.flatMap(blocksOf);
}

function isMeant({ path }: Finding): boolean {
  return paths.length === 0 || paths.some((begin) => path.startsWith(begin));
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
