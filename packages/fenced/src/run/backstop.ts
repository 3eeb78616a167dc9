import { spawn } from 'node:child_process';
import { hasOwnProcesses } from './job.js';

/**
 * Waits until the guard is gone, and then kills every process that has the id of the job in its
 * environment. Ten rounds also find the children that were just being created.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM
read -r _
for round in 1 2 3 4 5 6 7 8 9 10; do
  for file in $(grep -lF "$1" /proc/[0-9]*/environ); do
    process=\${file%/environ}
    kill -s KILL "\${process#/proc/}"
  done
done`;

/**
 * Starts a shell that kills the job if the guard dies, even if `fenced run` died at the same
 * moment. The kernel tells it: the guard holds the other end of its standard input.
 *
 * It is a shell because a small process outlives most causes of such a death. The kernel's OOM
 * killer prefers large processes, and `pkill node` does not match it.
 *
 * @returns a function that ends it
 */
export function startBackstop(id: string): () => void {
  if (!hasOwnProcesses()) return () => {};
  const backstop = spawn('/bin/sh', ['-c', SCRIPT, 'fenced-backstop', id], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  // Without a shell, there is no backstop. The guard still works.
  backstop.on('error', () => {});
  backstop.stdin.on('error', () => {});
  return () => void backstop.kill('SIGKILL');
}
