const PLAINLY_LINEAR = 32;

/**
 * How much more processor time sixteen times the input takes: near 16 for linear work, near 256 for quadratic work.
 * Time of this thread only, so that a busy machine does not count; tiny times are taken for a millisecond. What looks as
 * if it grew faster than `bound` times is run again, up to nine times, and the least counts: work that is really quadratic
 * is so every time.
 */
export function growth(run: (size: number) => void, size: number, bound = PLAINLY_LINEAR): number {
  let [large, small] = [Infinity, Infinity];
  for (let runs = 0; runs < 9 && !(large / small < bound); runs++) {
    const took = usedMs(() => run(16 * size));
    large = Math.max(1, Math.min(large, took));
    if (runs % 3 > 0) continue;
    const tookSmall = processorMs(() => run(size));
    small = Math.min(small, tookSmall);
  }
  return large / small;
}

/** Milliseconds of this thread's processor that it takes: the least of three, and at least one. */
export function processorMs(run: () => void): number {
  return Math.max(1, Math.min(usedMs(run), usedMs(run), usedMs(run)));
}

function usedMs(run: () => void): number {
  const before = process.threadCpuUsage();
  run();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** A text of about that length. */
export function repeated(unit: string, length: number): string {
  return unit.repeat(Math.ceil(length / unit.length));
}
