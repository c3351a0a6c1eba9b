import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { networkOf, SITE_LIMIT_FACTOR, siteOf } from '../base/networks.ts';
import type { Tools } from '../base/tools.ts';
import type { Notes } from '../journal/types.ts';
import type { ListenerSettings } from './listener.ts';
import { REFUSALS, type Reply, refusalReason } from './replies.ts';
import type { SessionMeters } from './session-log.ts';

/** Admits clients: counts the sessions of a listener across all threads. */
export interface Admission {
  open(): void;
  close(): void;
  /** Takes a slot in the total and, unless a proxy has yet to name the client, in the count of its address. */
  enter(client: string, behindProxy: boolean): AdmissionResult | Promise<AdmissionResult>;
  /** Whether most slots are taken: sessions that send no mail have short timeouts then. */
  crowded(): boolean;
}

/** A slot, or a refusal. */
export type AdmissionResult =
  | { readonly refused: Reply }
  | { readonly refused?: undefined; readonly slot: SessionSlot };

/**
 * The activity of a session, which decides whether it yields to a new client. slow: in DATA, with hardly any bytes
 * arriving · mail: it waits for the next message after an accepted one · login: it belongs to an account.
 */
export type SessionActivity = 'waiting' | 'data' | 'slow' | 'mail' | 'login';

/** The slot of one session. */
export interface SessionSlot {
  /** Counts the client that the proxy has named. A refusal releases the slot. */
  nameClient(client: string): Reply | undefined | Promise<Reply | undefined>;
  doing(what: SessionActivity): void;
  /** `end` is called when the slot is given to a new client. */
  onEvicted(end: () => void): void;
  /** Releases the slot; may be called again. */
  leave(): void;
}

/** `Admission` on the main thread, which answers synchronously. */
export interface LocalAdmission extends Admission {
  enter(client: string, behindProxy: boolean): LocalEntry;
  /** Counts and logs a client that is rejected for another reason. */
  refuse(refused: Reply, client: string): { readonly refused: Reply };
}

type LocalEntry = { readonly refused: Reply } | { readonly refused?: undefined; readonly slot: LocalSlot };

export interface LocalSlot extends SessionSlot {
  nameClient(client: string): Reply | undefined;
}

interface AdmissionParts extends Pick<Tools, 'clock' | 'log'> {
  /** Its name in the history. */
  readonly listener: string;
  readonly notes: Notes;
  readonly meters: Pick<SessionMeters, 'refused'>;
}

/** The record of a rejected connection, which has sent nothing yet. */
const REJECTED_CONNECTION = {
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
): LocalAdmission {
  const lag = createLagProbe(settings.maxLoopLagMs, clock);
  const slots = createSlots(settings, clock);
  let loggedAt = -Infinity;

  function refuse(refused: Reply, client: string): { readonly refused: Reply } {
    const now = clock.monotonic();
    const write = now - loggedAt >= QUIET_MS ? log.info : log.debug;
    if (write === log.info) loggedAt = now;
    meters.refused(refused);
    const reply = refused.line.trimEnd();
    write('smtp.refused', { client, reply });
    notes.note({ ...REJECTED_CONNECTION, at: clock.now(), listener, reply, reason: refusalReason(refused), client });
    return { refused };
  }

  function slotOf(held: Held): LocalSlot {
    return frozen({
      nameClient(client) {
        const refused = slots.nameClient(held, client);
        if (refused) slots.leave(held);
        return refused && refuse(refused, client).refused;
      },
      doing: (what) => slots.doing(held, what),
      onEvicted(end) {
        held.end = end;
      },
      leave: () => slots.leave(held),
    });
  }

  return frozen({
    open: lag.start,
    close: lag.stop,
    refuse,
    crowded: slots.crowded,
    enter(client, behindProxy): LocalEntry {
      const entered = lag.lagging() ? REFUSALS.busy : slots.enter(behindProxy ? undefined : client);
      return 'code' in entered ? refuse(entered, client) : { slot: slotOf(entered) };
    },
  });
}

/** A slot that is taken. */
interface Held {
  /** The client's keys; undefined until a proxy has named it. */
  client: { readonly network: string; readonly site: string } | undefined;
  doing: 'waiting' | 'data' | 'slow';
  loggedIn: boolean;
  /** When the session began, or last sent a message. */
  since: number;
  /** Undefined: it has no session yet. */
  end: (() => void) | undefined;
}

/** The share of taken slots from which on timeouts are short. */
const CROWDED_SHARE = 0.8;

/**
 * Counts sessions: in total, by address and by site. If all slots are taken, a new client gets that of the session
 * that has waited longest without mail. The time is multiplied by the number of sessions of its site, so that a few
 * addresses cannot hold all slots. No site displaces one with fewer sessions. A session in DATA ends only if its bytes
 * hardly arrive, and after those that wait; one with a login ends after all others.
 */
function createSlots(settings: Pick<ListenerSettings, 'maxSessions' | 'maxSessionsPerAddress'>, clock: Clock) {
  const { maxSessions, maxSessionsPerAddress } = settings;
  const all = new Set<Held>();
  const networks = createTally();
  const sites = createTally();

  function leave(held: Held): void {
    if (!all.delete(held) || !held.client) return;
    networks.remove(held.client.network);
    sites.remove(held.client.site);
  }

  function nameClient(held: Held, address: string): Reply | undefined {
    const client = { network: networkOf(address), site: siteOf(address) };
    const isOver =
      networks.of(client.network) >= maxSessionsPerAddress ||
      sites.of(client.site) >= maxSessionsPerAddress * SITE_LIMIT_FACTOR;
    if (isOver) return all.size > maxSessions ? REFUSALS.tooManySessions : REFUSALS.tooManyFromAddress;
    networks.add(client.network);
    sites.add(client.site);
    held.client = client;
    return all.size <= maxSessions || evictFor(client.site) ? undefined : REFUSALS.tooManySessions;
  }

  /** Ends the session that has the least claim to its slot; false if none may be ended. */
  function evictFor(site: string): boolean {
    const now = clock.monotonic();
    let least: Held | undefined;
    let leastClass = Infinity;
    let most = -1;
    for (const held of all) {
      if (!held.end || !held.client || held.client.site === site || held.doing === 'data') continue;
      const siblings = sites.of(held.client.site);
      if (siblings < sites.of(site)) continue;
      const inClass = (held.doing === 'slow' ? 1 : 0) + (held.loggedIn ? 2 : 0);
      const waited = (now - held.since) * siblings;
      if (inClass > leastClass || (inClass === leastClass && waited <= most)) continue;
      [least, leastClass, most] = [held, inClass, waited];
    }
    if (!least) return false;
    leave(least);
    least.end?.();
    return true;
  }

  return frozen({
    crowded: () => all.size >= maxSessions * CROWDED_SHARE,
    /** Takes a slot, or returns a refusal. */
    enter(address: string | undefined): Held | Reply {
      const held: Held = {
        client: undefined,
        doing: 'waiting',
        loggedIn: false,
        since: clock.monotonic(),
        end: undefined,
      };
      // Behind a proxy the client is not known yet, and so neither is the session that would yield to it.
      if (all.size >= maxSessions + maxSessionsPerAddress) return REFUSALS.tooManySessions;
      all.add(held);
      const refused = address === undefined ? undefined : nameClient(held, address);
      if (!refused) return held;
      leave(held);
      return refused;
    },
    nameClient,
    doing(held: Held, what: SessionActivity): void {
      if (what === 'login') held.loggedIn = true;
      else if (what === 'mail') {
        held.doing = 'waiting';
        held.since = clock.monotonic();
      } else held.doing = what;
    },
    leave,
  });
}

function createTally() {
  const counts = new Map<string, number>();
  return {
    of: (key: string) => counts.get(key) ?? 0,
    add(key: string): void {
      counts.set(key, (counts.get(key) ?? 0) + 1);
    },
    remove(key: string): void {
      const left = (counts.get(key) ?? 1) - 1;
      if (left > 0) counts.set(key, left);
      else counts.delete(key);
    },
  };
}

const PROBE_MS = 100;
/** How long the event loop must lag before new sessions are rejected: a single long pause is no overload. */
const PATIENCE_MS = 1000;

/** Measures the lag of the event loop by how late timers fire. */
export function createLagProbe(maxLagMs: number, clock: Clock) {
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
    /** Whether the loop has lagged by more than the limit for a second. */
    lagging: (): boolean => laggingSince !== undefined && clock.monotonic() - laggingSince >= PATIENCE_MS,
  });
}
