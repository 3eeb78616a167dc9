import { uptime } from 'node:os';

/**
 * Milliseconds of a clock that all processes of this machine share. Nobody can set it, and it also
 * runs while the machine sleeps.
 */
export function machineMs(): number {
  // Linux stops its monotonic clock during sleep, but not the uptime, which has steps of 10 ms.
  if (process.platform === 'linux') return uptime() * 1_000;
  return Number(process.hrtime.bigint()) / 1e6;
}
