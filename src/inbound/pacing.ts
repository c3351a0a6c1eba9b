import { createPauses } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { Backlog } from '../queue/schedule/backlog.ts';

interface PacingSettings {
  /** Replies are delayed while more deliveries than this are waiting for us; 0 disables delays. */
  readonly above: number;
  /** The longest delay, in milliseconds. */
  readonly longestMs: number;
}

interface PacingDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly backlog: Pick<Backlog, 'before' | 'total'>;
}

/** Slows down senders while more mail arrives than this host can deliver. */
export type Pacing = ReturnType<typeof createPacing>;

/** The delay reaches its maximum at this many times `above`. */
const FULL = 21;
/** Logged when delays begin, and again when no reply was delayed for this many milliseconds. */
const LOG_INTERVAL_MS = 60_000;

/**
 * Delays the replies to accepted messages, in proportion to the deliveries above the limit, so that the rate settles:
 * senders have a limited number of connections, and each waits for its reply, so mail comes in as fast as it goes out.
 * The delay is short enough for any client (RFC 5321 section 4.5.3.2.6: ten minutes).
 */
export function createPacing({ above, longestMs }: PacingSettings, deps: PacingDeps) {
  const { backlog, clock, log, metrics } = deps;
  const pauses = createPauses(clock);
  const delays = metrics.histogram('postern_accept_delay_seconds');
  metrics.gauge('postern_deliveries_behind', () => [[{}, backlog.total()]]);
  let slowed: { messages: number; longest: number; last: number } | undefined;

  function delayFor(behind: number): number {
    if (above === 0 || behind <= above) return 0;
    return Math.min(longestMs, (longestMs * (behind - above)) / (above * (FULL - 1)));
  }

  function note(behind: number, ms: number): void {
    const now = clock.monotonic();
    if (!slowed) {
      slowed = { messages: 0, longest: 0, last: now };
      log.warn('accept.slowed', { behind, delay_ms: Math.round(ms) });
      clock.after(LOG_INTERVAL_MS, checkEnd);
    }
    slowed.messages++;
    slowed.longest = Math.max(slowed.longest, ms);
    slowed.last = now;
  }

  /** Logs the end once no reply was delayed for `LOG_INTERVAL_MS`. */
  function checkEnd(): void {
    if (!slowed) return;
    const rest = slowed.last + LOG_INTERVAL_MS - clock.monotonic();
    if (rest > 0) return void clock.after(rest, checkEnd);
    log.info('accept.resumed', { messages: slowed.messages, longest_ms: Math.round(slowed.longest) });
    slowed = undefined;
  }

  return frozen({
    /** Resolves when the reply to an accepted message may be sent; undefined: immediately. */
    delay(deliveries: readonly Pick<Delivery, 'account' | 'url'>[]): Promise<void> | undefined {
      const behind = backlog.before(deliveries);
      const ms = Math.round(delayFor(behind));
      if (ms === 0) return undefined;
      note(behind, ms);
      delays.observe(ms / 1000);
      return pauses.wait(ms);
    },
    /** Ends all delays. */
    stop: (): void => pauses.end(),
  });
}
