import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded into a daemon by `node --import`: measures from inside how late its loop is, and writes that down, in
 * milliseconds, at each SIGUSR2; then it begins anew. `held` is the most processor that the loop's thread used between
 * two looks: how late it would be at most if nothing else used the processor.
 */
const file = process.env['ATTACK_GAUGE'];
if (isMainThread && file !== undefined) {
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  let held = 0;
  let used = usedMs();
  setInterval(() => {
    const now = usedMs();
    held = Math.max(held, now - used);
    used = now;
  }, 5).unref();
  process.on('SIGUSR2', () => {
    // It counts the time between two looks, of which 5 ms are its own.
    writeFileSync(
      file,
      JSON.stringify({ p99: delay.percentile(99) / 1e6 - 5, most: delay.max / 1e6 - 5, looks: delay.count, held }),
    );
    delay.reset();
    held = 0;
  });
}

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
