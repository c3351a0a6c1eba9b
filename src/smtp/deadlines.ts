import { frozen } from '../base/frozen.ts';
import { isTooSlow } from '../base/shares.ts';
import { REFUSALS, type Reply } from './replies.ts';

/** The window of the floor for the DATA rate, in seconds. */
const RATE_WINDOW_S = 30;

interface DeadlineSettings {
  readonly sessionTimeoutMs: number;
  readonly commandTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Bytes per second, over any half minute of DATA. 0: no floor. */
  readonly minDataRate: number;
}

/** How long a client may take, for one session. `now` is the time of `Clock.monotonic`. */
export interface Deadlines {
  readonly startedAt: number;
  /** Bytes came in command mode. */
  received(chunk: Buffer, now: number): void;
  /** A TLS handshake begins; it may take as long as a command line. */
  handshake(now: number): void;
  secured(): void;
  /** It is our turn: no deadline runs, or the client would be told 421 for a message that is about to be accepted. */
  pause(): void;
  resume(now: number): void;
  beginData(): void;
  /** So many bytes came in DATA. */
  receivedData(bytes: number): void;
  endData(): void;
  inData(): boolean;
  /** Asked once a second: how the session ends, when a deadline has passed. */
  overdue(now: number): Reply | undefined;
}

export function createDeadlines(settings: DeadlineSettings, startedAt: number): Deadlines {
  const floor = { rate: settings.minDataRate, seconds: RATE_WINDOW_S };
  /** When the client last sent something, or last got an answer. */
  let quietSince = startedAt;
  /** When the first byte of an unfinished command line came, or a TLS handshake began. */
  let lineSince: number | undefined;
  let paused = false;
  /** Bytes of the present DATA, and at each of the last seconds, the newest last; undefined outside DATA. */
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
        // While we write to disk the client cannot send: those seconds must not count against its rate.
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
