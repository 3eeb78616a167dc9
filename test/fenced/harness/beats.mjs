// Appends the time to a file every 10 ms, and ignores SIGTERM. The second argument is a number of
// child processes, which do the same.
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';

const [, self, file, children = '0'] = process.argv;
process.on('SIGTERM', () => appendFileSync(file, 'SIGTERM\n'));
for (let at = 0; at < Number(children); at += 1)
  spawn(process.execPath, [self, file], { stdio: 'ignore' });
setInterval(() => appendFileSync(file, `${process.pid} ${Date.now()}\n`), 10);
