import { type Clock, createPauses } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { Backlog } from '../queue/schedule/backlog.ts';

export interface PacingSettings {
  /** Replies wait when more deliveries than this wait for us; 0: they never do. */
  readonly above: number;
  /** The longest that a reply waits, in milliseconds. */
  readonly longestMs: number;
}

interface PacingDeps {
  readonly backlog: Pick<Backlog, 'before' | 'total'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Slows down who sends more than this host can deliver. */
export interface Pacing {
  /** The reply to an accepted message may leave; undefined: at once. */
  turn(deliveries: readonly Pick<Delivery, 'account' | 'url'>[]): Promise<void> | undefined;
  /** Lets all go that wait. */
  stop(): void;
}

/** The delay is the longest at this many times `above`. */
const FULL = 21;
/** A log line when replies begin to wait, and one when none has waited for so long. */
const SAY_EVERY = 60_000;

/**
 * Holds back the replies to accepted messages, each the longer the more deliveries wait for us: senders have so many
 * connections, and each of them waits for its reply, so mail comes in as fast as it goes out. The delay is proportional
 * to what is too much, so that it settles, and short enough for any client (RFC 5321 section 4.5.3.2.6: ten minutes).
 */
export function createPacing({ above, longestMs }: PacingSettings, deps: PacingDeps): Pacing {
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
      clock.after(SAY_EVERY, look);
    }
    slowed.messages++;
    slowed.longest = Math.max(slowed.longest, ms);
    slowed.last = now;
  }

  /** Says that it is over once no reply had to wait for as long as that. */
  function look(): void {
    if (!slowed) return;
    const rest = slowed.last + SAY_EVERY - clock.monotonic();
    if (rest > 0) return void clock.after(rest, look);
    log.info('accept.resumed', { messages: slowed.messages, longest_ms: Math.round(slowed.longest) });
    slowed = undefined;
  }

  return frozen({
    turn(deliveries) {
      const behind = backlog.before(deliveries);
      const ms = Math.round(delayFor(behind));
      if (ms === 0) return undefined;
      note(behind, ms);
      delays.observe(ms / 1000);
      return pauses.wait(ms);
    },
    stop: () => pauses.end(),
  });
}
