import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { networkOf } from '../base/networks.ts';
import type { Notes } from '../journal/types.ts';
import type { ListenerSettings } from './listener.ts';
import { REFUSALS, type Reply, reasonOf } from './replies.ts';
import type { Meters } from './session-log.ts';

/** Admits clients: counts the sessions of a listener across all threads. */
export interface Admission {
  open(): void;
  close(): void;
  /** Takes a place in the total and, unless a proxy has yet to name the client, in the count of its address. */
  enter(client: string, behindProxy: boolean): Entry | Promise<Entry>;
}

/** A place, or a refusal. */
export type Entry = { readonly refused: Reply } | { readonly refused?: undefined; readonly place: Place };

/** The place of one session. */
export interface Place {
  /** Counts the client that the proxy has named. A refusal releases the place. */
  nameClient(client: string): Reply | undefined | Promise<Reply | undefined>;
  /** Releases the place; may be called again. */
  leave(): void;
}

/** `Admission` on the main thread, which answers synchronously. */
export interface Counting extends Admission {
  enter(client: string, behindProxy: boolean): CountedEntry;
  /** Counts and logs a client that is rejected for another reason. */
  refuse(refused: Reply, client: string): { readonly refused: Reply };
}

export type CountedEntry = { readonly refused: Reply } | { readonly refused?: undefined; readonly place: CountedPlace };

export interface CountedPlace extends Place {
  nameClient(client: string): Reply | undefined;
}

interface AdmissionParts {
  readonly clock: Clock;
  /** Its name in the history. */
  readonly listener: string;
  readonly log: Log;
  readonly notes: Notes;
  readonly meters: Pick<Meters, 'refused'>;
}

/** What is noted of a session that was not let in: it has said nothing yet. */
const NOT_LET_IN = {
  what: 'refused',
  session: null,
  transaction: null,
  stage: 'CONNECT',
  helo: null,
  tls: null,
  sender: null,
  recipient: null,
  account: null,
} as const;

/** One rejected client per interval is logged at level info, the others at debug. */
const QUIET_MS = 1_000;

export function createAdmission(
  settings: Pick<ListenerSettings, 'maxSessions' | 'maxSessionsPerAddress' | 'maxLoopLagMs'>,
  { listener, clock, log, notes, meters }: AdmissionParts,
): Counting {
  const lag = createLagProbe(settings.maxLoopLagMs, clock);
  const caps = createCaps(settings);
  let loggedAt = -Infinity;

  function refuse(refused: Reply, client: string): { readonly refused: Reply } {
    const now = clock.monotonic();
    const write = now - loggedAt >= QUIET_MS ? log.info : log.debug;
    if (write === log.info) loggedAt = now;
    meters.refused(refused);
    const reply = refused.line.trimEnd();
    write('smtp.refused', { client, reply });
    notes.note({ ...NOT_LET_IN, at: clock.now(), listener, reply, reason: reasonOf(refused), client });
    return { refused };
  }

  function takePlace(): CountedPlace {
    let key: string | undefined;
    let left = false;
    const leave = () => {
      if (left) return;
      left = true;
      caps.leave();
      if (key !== undefined) caps.leaveFrom(key);
    };
    return frozen({
      nameClient(client) {
        const network = networkOf(client);
        const refused = caps.enterFrom(network);
        if (!refused) key = network;
        else leave();
        return refused && refuse(refused, client).refused;
      },
      leave,
    });
  }

  return frozen({
    open: lag.start,
    close: lag.stop,
    refuse,
    enter(client, behindProxy): CountedEntry {
      const refused = lag.lagging() ? REFUSALS.busy : caps.enter();
      if (refused) return refuse(refused, client);
      const place = takePlace();
      const over = behindProxy ? undefined : place.nameClient(client);
      return over ? { refused: over } : { place };
    },
  });
}

/** Counts sessions, in total and by address. */
interface Caps {
  /** Takes a place, or returns a refusal. */
  enter(): Reply | undefined;
  leave(): void;
  /** As `enter`, for the address `key` (base/networks.ts `networkOf`). */
  enterFrom(key: string): Reply | undefined;
  leaveFrom(key: string): void;
}

function createCaps(settings: Pick<ListenerSettings, 'maxSessions' | 'maxSessionsPerAddress'>): Caps {
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
  });
}

const PROBE_MS = 100;
/** How long the event loop must lag before new sessions are rejected: a single long pause is no overload. */
const PATIENCE_MS = 1000;

/** Measures the lag of the event loop by how late timers fire. */
export interface LagProbe {
  start(): void;
  stop(): void;
  /** Whether the loop has lagged by more than the limit for a second. */
  lagging(): boolean;
}

export function createLagProbe(maxLagMs: number, clock: Clock): LagProbe {
  let cancel: (() => void) | undefined;
  let laggingSince: number | undefined;

  function probe() {
    const due = clock.monotonic() + PROBE_MS;
    cancel = clock.after(PROBE_MS, () => {
      if (clock.monotonic() - due <= maxLagMs) laggingSince = undefined;
      else laggingSince ??= due;
      probe();
    });
  }

  return frozen({
    start() {
      if (!cancel) probe();
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
    lagging: () => laggingSince !== undefined && clock.monotonic() - laggingSince >= PATIENCE_MS,
  });
}
