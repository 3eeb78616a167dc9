import { existsSync } from 'node:fs';

const SHELL = '/bin/sh';

/** Starts its arguments, passes signals to them, and ends with their exit code. */
const SCRIPT = `for name in HUP INT QUIT TERM USR1 USR2 WINCH; do
  trap "kill -s $name \\$child" $name
done
exec 3<&0
"$@" <&3 3<&- &
child=$! code=0
while wait $child; code=$?; kill -s 0 $child 2>/dev/null; do :; done
exit $code`;

/**
 * As the first process of a container, replaces this process by a shell that starts it anew.
 *
 * The first process inherits every orphan, and has to ask for its status when it ends. Otherwise
 * the orphan stays a zombie and occupies a process id. Node asks only for the children that it has
 * started. A shell that waits asks for all of them.
 */
export function startUnderInit(): void {
  // Node 22.14 has no `execve`.
  if (process.pid !== 1 || !process.execve || !existsSync(SHELL)) return;
  const own = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  process.execve(SHELL, [SHELL, '-c', SCRIPT, 'fenced-init', ...own], process.env);
}
