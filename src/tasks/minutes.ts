import type { Clock } from '../base/clock.ts';

const MINUTE_MS = 60_000;

/**
 * Calls `tick` when a minute of the wall clock begins, with its start (milliseconds since 1970), until the answer is called. The
 * pause before each is a minute at most, whatever the wall clock does: one that is set back by an hour must not hold up tasks for
 * that hour, and one that is set ahead by days (or a machine that slept) owes one tick and not thousands.
 */
export function everyMinute(clock: Clock, tick: (minute: number) => void): () => void {
  const present = () => Math.floor(clock.now() / MINUTE_MS) * MINUTE_MS;
  const arm = () => clock.after(MINUTE_MS - (clock.now() % MINUTE_MS), look);
  let last = present();
  let cancel = arm();

  function look(): void {
    const minute = present();
    cancel = arm();
    // A timer may fire a little before its minute, and a leap second shows a minute twice.
    if (minute === last) return;
    last = minute;
    tick(minute);
  }

  return () => cancel();
}
