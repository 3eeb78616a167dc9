// Kills processes of `fenced run` when the guard is at a certain point. The variable KILLED names
// the processes, and KILLED_AT the point: `start`, or `before-command` or `after-command`.
import processes from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';

const { KILLED = '', KILLED_AT } = process.env;

function kill() {
  if (KILLED.includes('run')) process.kill(process.ppid, 'SIGKILL');
  if (KILLED.includes('guard')) process.kill(process.pid, 'SIGKILL');
}

if (process.argv[1].endsWith('guard.js')) {
  if (KILLED_AT === 'start') kill();
  const { spawn } = processes;
  processes.spawn = (file, ...rest) => {
    const isCommand = file !== '/bin/sh';
    if (isCommand && KILLED_AT === 'before-command') kill();
    const child = spawn(file, ...rest);
    if (isCommand && KILLED_AT === 'after-command') kill();
    return child;
  };
  syncBuiltinESMExports();
}
