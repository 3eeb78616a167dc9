// Ends the process with SIGKILL before its n-th script: n is DIES_AT.
import { Redis } from 'ioredis';

let left = Number(process.env.DIES_AT);
for (const name of ['evalsha', 'eval']) {
  const send = Redis.prototype[name];
  Redis.prototype[name] = function (...values) {
    left -= 1;
    if (left < 0) process.kill(process.pid, 'SIGKILL');
    return send.apply(this, values);
  };
}
