/** Strings and comments, in the order in which they begin. A backslash escapes in Lua only. */
const tokens = {
  lua: /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[ \t]*--[^\n]*/g,
  sql: /'[^']*'|"[^"]*"|[ \t]*--[^\n]*/g,
};

/** Unknown to the scanners: long brackets in Lua, block comments and escaped quotes in SQL. */
const foreign = { lua: /\[=*\[/, sql: /\/\*|\\'/ };

/**
 * The same program without its comments and empty lines. Bodies between dollar quotes count as SQL.
 *
 * @throws Error the source has a construct that this function does not know
 */
export function stripComments(source: string, language: 'lua' | 'sql'): string {
  const stripped = source.replace(tokens[language], (token) =>
    /^[ \t]*--/.test(token) ? '' : token,
  );
  const [found] = foreign[language].exec(stripped) ?? [];
  if (found !== undefined)
    throw new Error(`cannot strip the comments of ${language} with ${found}`);
  return stripped.replace(/^[ \t]*\n/gm, '');
}
