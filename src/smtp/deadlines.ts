import { frozen } from '../base/frozen.ts';
import { isTooSlow } from '../base/shares.ts';
import { REFUSALS } from './replies.ts';

/** The window over which the minimum DATA rate is measured, in seconds. */
const RATE_WINDOW_S = 30;

/** Timeouts in milliseconds while most slots are taken: for a command, and from one message to the next. */
const CROWD = { commandMs: 10_000, mailMs: 60_000 };
/** While most slots are taken, a message that arrives more slowly than this many times the minimum rate is slow. */
const CROWD_RATE = 8;
const CROWD_WINDOW_S = 10;

interface DeadlineSettings {
  readonly sessionTimeoutMs: number;
  readonly commandTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Bytes per second, over any 30 seconds of DATA. 0: no minimum. */
  readonly minDataRate: number;
}

/** The timeouts of one session. `now` is the time of `Clock.monotonic`. */
export type Deadlines = ReturnType<typeof createDeadlines>;

export function createDeadlines(settings: DeadlineSettings, startedAt: number) {
  const floor = { rate: settings.minDataRate, seconds: RATE_WINDOW_S };
  /** When the client last sent bytes or got a reply. */
  let quietSince = startedAt;
  /** When the first byte of an unfinished command line arrived, or a TLS handshake started. */
  let lineSince: number | undefined;
  let paused = false;
  /** When the session began, or its last message was accepted. */
  let mailSince = startedAt;
  /** Bytes of the current DATA, and the totals at each of the last seconds, newest last; undefined outside DATA. */
  let data: { bytes: number; readonly seconds: number[] } | undefined;

  return frozen({
    startedAt,
    /** Notes bytes received in command mode. */
    received(chunk: Buffer, now: number) {
      quietSince = now;
      const end = chunk.lastIndexOf(10);
      if (end === chunk.length - 1) lineSince = undefined;
      else if (end >= 0) lineSince = now;
      else lineSince ??= now;
    },
    /** Notes the start of a TLS handshake, which has the timeout of a command line. */
    handshake(now: number) {
      lineSince = now;
    },
    secured() {
      lineSince = undefined;
    },
    /** Stops the deadlines while Postern works: a client must not get 421 for a message that is being accepted. */
    pause() {
      paused = true;
    },
    resume(now: number) {
      paused = false;
      quietSince = now;
    },
    beginData() {
      data = { bytes: 0, seconds: [] };
      lineSince = undefined;
    },
    /** Notes bytes received in DATA. */
    receivedData(bytes: number) {
      if (data) data.bytes += bytes;
    },
    /** `accepted`: a message was accepted. */
    endData(accepted: boolean, now: number) {
      data = undefined;
      if (accepted) mailSince = now;
    },
    inData: () => data !== undefined,
    /** Whether the message arrives too slowly to keep its slot, as measured by `overdue`. */
    isSlow() {
      if (!data || data.seconds.length < CROWD_WINDOW_S) return false;
      return data.bytes - (data.seconds.at(-CROWD_WINDOW_S) ?? 0) < CROWD_RATE * settings.minDataRate * CROWD_WINDOW_S;
    },
    /**
     * To be called once a second. Returns the reply that ends the session if a deadline has passed. `crowded`: most
     * slots are taken, and others need them.
     */
    overdue(now: number, crowded: boolean) {
      if (paused) {
        // The client cannot send while Postern writes to disk: these seconds must not count against its rate.
        data?.seconds.splice(0);
        quietSince = now;
        return undefined;
      }
      if (now - startedAt > settings.sessionTimeoutMs) return REFUSALS.sessionTooLong;
      if (data && isTooSlow(data.seconds, data.bytes, floor)) return REFUSALS.dataTooSlow;
      const most = crowded && !data ? CROWD.commandMs : Infinity;
      if (lineSince !== undefined && now - lineSince > Math.min(settings.commandTimeoutMs, most))
        return REFUSALS.commandTooSlow;
      if (crowded && !data && now - mailSince > CROWD.mailMs) return REFUSALS.idle;
      return now - quietSince > Math.min(settings.idleTimeoutMs, most) ? REFUSALS.idle : undefined;
    },
  });
}
