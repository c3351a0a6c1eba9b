import { frozen } from '../base/frozen.ts';
import { isTooSlow } from '../base/shares.ts';
import { REFUSALS, type Reply } from './replies.ts';

/** The window over which the minimum DATA rate is measured, in seconds. */
const RATE_WINDOW_S = 30;

interface DeadlineSettings {
  readonly sessionTimeoutMs: number;
  readonly commandTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Bytes per second, over any 30 seconds of DATA. 0: no minimum. */
  readonly minDataRate: number;
}

/** The timeouts of one session. `now` is the time of `Clock.monotonic`. */
export interface Deadlines {
  readonly startedAt: number;
  /** Notes bytes received in command mode. */
  received(chunk: Buffer, now: number): void;
  /** Notes the start of a TLS handshake, which has the timeout of a command line. */
  handshake(now: number): void;
  secured(): void;
  /** Stops the deadlines while Postern works: a client must not get 421 for a message that is about to be accepted. */
  pause(): void;
  resume(now: number): void;
  beginData(): void;
  /** Notes bytes received in DATA. */
  receivedData(bytes: number): void;
  endData(): void;
  inData(): boolean;
  /** To be called once a second. Returns the reply that ends the session if a deadline has passed. */
  overdue(now: number): Reply | undefined;
}

export function createDeadlines(settings: DeadlineSettings, startedAt: number): Deadlines {
  const floor = { rate: settings.minDataRate, seconds: RATE_WINDOW_S };
  /** When the client last sent bytes or got a reply. */
  let quietSince = startedAt;
  /** When the first byte of an unfinished command line arrived, or a TLS handshake started. */
  let lineSince: number | undefined;
  let paused = false;
  /** Bytes of the current DATA, and the totals at each of the last seconds, newest last; undefined outside DATA. */
  let data: { bytes: number; readonly seconds: number[] } | undefined;

  return frozen({
    startedAt,
    received(chunk, now) {
      quietSince = now;
      const end = chunk.lastIndexOf(10);
      if (end === chunk.length - 1) lineSince = undefined;
      else if (end >= 0) lineSince = now;
      else lineSince ??= now;
    },
    handshake(now) {
      lineSince = now;
    },
    secured() {
      lineSince = undefined;
    },
    pause() {
      paused = true;
    },
    resume(now) {
      paused = false;
      quietSince = now;
    },
    beginData() {
      data = { bytes: 0, seconds: [] };
      lineSince = undefined;
    },
    receivedData(bytes) {
      if (data) data.bytes += bytes;
    },
    endData() {
      data = undefined;
    },
    inData: () => data !== undefined,
    overdue(now) {
      if (paused) {
        // The client cannot send while Postern writes to disk: these seconds must not count against its rate.
        data?.seconds.splice(0);
        quietSince = now;
        return undefined;
      }
      if (now - startedAt > settings.sessionTimeoutMs) return REFUSALS.sessionTooLong;
      if (data && isTooSlow(data.seconds, data.bytes, floor)) return REFUSALS.dataTooSlow;
      if (lineSince !== undefined && now - lineSince > settings.commandTimeoutMs) return REFUSALS.commandTooSlow;
      return now - quietSince > settings.idleTimeoutMs ? REFUSALS.idle : undefined;
    },
  });
}
