/**
 * Bounds are there for what hangs, so they are wide: a busy machine is no fault. Smaller (TEST_PATIENCE) shows sooner
 * what hangs.
 */
export const PATIENCE = Number(process.env['TEST_PATIENCE'] ?? 4);

/** A look may cost as much as what is waited for: a call of the API, a run of the command line. */
const MAX_PAUSE_MS = 60;

/**
 * Waits for a condition instead of for a time: the answer of `probe` once it is neither false nor undefined. Fails
 * after `ms`. Pauses grow up to `mostPauseMs`, which is short where each look moves the test clock.
 */
export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  ms = 8000 * PATIENCE,
  mostPauseMs = MAX_PAUSE_MS,
): Promise<Exclude<T, undefined | false>> {
  const end = performance.now() + ms;
  for (let pause = 5; ; pause = Math.min(pause * 1.3, mostPauseMs)) {
    const value = await probe();
    if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    if (performance.now() > end) throw new Error(`waited ${ms} ms in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
