/**
 * How much more processor time sixteen times the input takes: near 16 for linear work, near 256 for quadratic work.
 * Least of a few runs, and time of this thread only, so that a busy machine does not count; tiny times are taken for a
 * millisecond. What looks as if it grew faster is looked at again: work that is really quadratic is so every time.
 */
export function growth(run: (size: number) => void, size: number): number {
  let found = Infinity;
  for (let tries = 0; tries < 3 && found > PLAINLY_LINEAR; tries++)
    found = Math.min(found, processorMs(() => run(16 * size)) / processorMs(() => run(size)));
  return found;
}

const PLAINLY_LINEAR = 32;

/** Milliseconds of this thread's processor that it takes: the least of three, and at least one. */
export function processorMs(run: () => void): number {
  const times = Array.from({ length: 3 }, () => {
    const before = process.threadCpuUsage();
    run();
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1000;
  });
  return Math.max(1, ...[Math.min(...times)]);
}

/** A text of about that length. */
export function repeated(unit: string, length: number): string {
  return unit.repeat(Math.ceil(length / unit.length));
}
