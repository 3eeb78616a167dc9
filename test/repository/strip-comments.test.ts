import { expect, test } from 'vitest';
import { stripComments } from '../../tools/strip-comments.ts';

test('comments and empty lines are removed, strings that look like comments stay', () => {
  const lua = `-- first\nlocal a = '--' -- it's\n\n  -- indented\nreturn "\\"--" .. a\n`;
  expect(stripComments(lua, 'lua')).toBe(`local a = '--'\nreturn "\\"--" .. a\n`);
  const sql = `-- it's\nSELECT 'it''s -- here', "a--b"; -- end\nDO $$BEGIN\n  -- inside\n  NULL; END$$;\n`;
  expect(stripComments(sql, 'sql')).toBe(
    `SELECT 'it''s -- here', "a--b";\nDO $$BEGIN\n  NULL; END$$;\n`,
  );
});

test.each([
  ['lua', 'local a = [[--]]'],
  ['sql', '/* -- */ SELECT 1'],
  ['sql', String.raw`SELECT E'\'--'`],
] as const)('%s: %s is refused', (language, source) => {
  expect(() => stripComments(source, language)).toThrow('cannot strip');
});
