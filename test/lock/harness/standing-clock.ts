// Lets the monotonic clock stand still while the process is stopped. Linux does that while the
// machine sleeps, and a test cannot let it sleep.
const SLEEP_MIN_MS = 300;

const real = performance.now.bind(performance);
let lastMs = real();
let sleptMs = 0;

performance.now = () => {
  const nowMs = real();
  if (nowMs - lastMs > SLEEP_MIN_MS) sleptMs += nowMs - lastMs;
  lastMs = nowMs;
  return nowMs - sleptMs;
};
// While the process runs, two calls are never far apart.
setInterval(performance.now, SLEEP_MIN_MS / 20).unref();
