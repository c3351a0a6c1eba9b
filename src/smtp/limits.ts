import { frozen } from '../base/frozen.ts';
import { isTooSlow } from '../base/shares.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { ListenerSettings } from './settings.ts';

/** Commands that bring no message forward (NOOP, RSET, MAIL, EHLO, …) between two messages. Postfix ends at 100 too. */
export const MAX_IDLE_COMMANDS = 100;
/** Unknown commands in a session. */
export const MAX_UNKNOWN_COMMANDS = 10;
/** Bytes of a command line. RFC 5321 section 4.5.3.1.4 asks for 512, SMTPUTF8 and parameters for some more. */
export const MAX_LINE = 2048;
/** How long an answer waits once a session has collected too many refused recipients. */
export const SLOW_ANSWER_MS = 500;
/** The window of the floor for the DATA rate, in seconds. */
export const RATE_WINDOW_S = 30;

/** What the deadlines look at. Times are those of `Clock.monotonic`. */
export interface Pulse {
  readonly startedAt: number;
  /** When the client last sent something, or last got an answer. */
  quietSince: number;
  /** When the first byte of an unfinished command line came, or a TLS handshake began. */
  lineSince: number | undefined;
  /** It is our turn: no deadline runs, or the client would be told 421 for a message that is about to be accepted. */
  busy: boolean;
  /** Bytes of the present DATA at each of the last seconds, the newest last; undefined outside DATA. */
  data: { bytes: number; readonly seconds: number[] } | undefined;
}

export function createPulse(now: number): Pulse {
  return { startedAt: now, quietSince: now, lineSince: undefined, busy: false, data: undefined };
}

/** Notes bytes in command mode: when the unfinished line at their end, if there is one, was begun. */
export function notePulse(pulse: Pulse, chunk: Buffer, now: number): void {
  pulse.quietSince = now;
  const end = chunk.lastIndexOf(10);
  if (end === chunk.length - 1) pulse.lineSince = undefined;
  else if (end >= 0) pulse.lineSince = now;
  else pulse.lineSince ??= now;
}

/** Looks at a session once a second and answers how it ends when a deadline has passed. */
export function overdue(pulse: Pulse, now: number, settings: ListenerSettings): Reply | undefined {
  if (pulse.busy) {
    // While we write to disk the client cannot send: those seconds must not count against its rate.
    pulse.data?.seconds.splice(0);
    pulse.quietSince = now;
    return undefined;
  }
  if (now - pulse.startedAt > settings.sessionTimeoutMs) return REFUSALS.sessionTooLong;
  const floor = { rate: settings.minDataRate, seconds: RATE_WINDOW_S };
  if (pulse.data && isTooSlow(pulse.data.seconds, pulse.data.bytes, floor)) return REFUSALS.dataTooSlow;
  if (pulse.lineSince !== undefined && now - pulse.lineSince > settings.commandTimeoutMs)
    return REFUSALS.commandTooSlow;
  return now - pulse.quietSince > settings.idleTimeoutMs ? REFUSALS.idle : undefined;
}

/** Counts sessions, in all and by address. */
export interface Caps {
  /** Takes a place, or answers why there is none. */
  enter(): Reply | undefined;
  leave(): void;
  /** As `enter`, for the address `key` (base/networks.ts `networkOf`). */
  enterFrom(key: string): Reply | undefined;
  leaveFrom(key: string): void;
  count(): number;
}

export function createCaps(settings: Pick<ListenerSettings, 'maxSessions' | 'maxSessionsPerAddress'>): Caps {
  let all = 0;
  const byKey = new Map<string, number>();
  return frozen({
    enter() {
      if (all >= settings.maxSessions) return REFUSALS.tooManySessions;
      all++;
      return undefined;
    },
    leave() {
      all--;
    },
    enterFrom(key) {
      const there = byKey.get(key) ?? 0;
      if (there >= settings.maxSessionsPerAddress) return REFUSALS.tooManyFromAddress;
      byKey.set(key, there + 1);
      return undefined;
    },
    leaveFrom(key) {
      const left = (byKey.get(key) ?? 1) - 1;
      if (left > 0) byKey.set(key, left);
      else byKey.delete(key);
    },
    count: () => all,
  });
}
