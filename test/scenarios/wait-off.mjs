// Loaded into the demo's clients by `--import`: takes the wait of a node that lost its memory out of the script that admits it.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const WAIT = 'if left > 0 then';

const { readFileSync } = fs;
fs.readFileSync = (path, ...options) => {
  const content = readFileSync(path, ...options);
  if (!String(path).endsWith('/admit.lua')) return content;
  if (!content.includes(WAIT)) throw new Error('the wait is not where this test takes it out');
  return content.replace(WAIT, 'if false then');
};
syncBuiltinESMExports();
