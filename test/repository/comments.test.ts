import { expect, test } from 'vitest';
import { commentsOf } from '../../tools/comments.ts';

test('a doc comment keeps its lines, without the marks', () => {
  const source = [
    '/**',
    ' * Returns the token.',
    ' *',
    ' * @throws {Error} if stale',
    ' */',
    'f();',
  ];
  expect(commentsOf('.ts', source.join('\n'))).toEqual([
    '',
    'Returns the token.',
    '',
    '- if stale',
    '',
    '',
  ]);
});

test('code between two comments separates them', () => {
  expect(commentsOf('.ts', '/** One. */\nlet a = 1;\n// Two.\n// Three.\nlet b; // Four.')).toEqual(
    [...['One.', '', 'Two.', 'Three.', 'Four.']],
  );
});

test.for([
  "const url = 'http://127.0.0.1';",
  'const url = "http://127.0.0.1";',
  'const url = `http://host/* `;',
  'const slashes = /[/*]\\/\\/ no/.test(text);',
  "const quote = 'it\\'s // not'",
  '// biome-ignore lint/suspicious/noConsole: a program',
])('no comment: %s', (line) => {
  expect(commentsOf('.ts', line)).toEqual(['']);
});

test('a comment behind a regular expression with a quote is found', () => {
  expect(commentsOf('.ts', "const quote = /'/;\n// Seen.")).toEqual(['', 'Seen.']);
});

test('line and block comments of Lua and SQL are found', () => {
  expect(commentsOf('.lua', "local a = '-- no' -- One.\n--[[ Two.\nThree. ]]")).toEqual([
    ...['One.', 'Two.', 'Three.'],
  ]);
  expect(commentsOf('.sql', "SELECT 'it''s -- no'; -- One.\n/* Two.\n * Three. */")).toEqual([
    ...['One.', 'Two.', 'Three.'],
  ]);
});

test('other files have no comments', () => {
  expect(commentsOf('.sh', '# One.')).toEqual(['']);
});
