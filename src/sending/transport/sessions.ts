import { createExpiringCache } from '../../base/cache.ts';
import { type Clock, withDeadline } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import { type Hop, sourcesFor } from './hops.ts';
import {
  type ClientSession,
  failureReason,
  isSourceMissing,
  isTlsFault,
  openConnection,
  openSession,
  type SmtpMessage,
  type TransactionResult,
} from './session.ts';
import type { SourceNames } from './sources.ts';
import { type Transcript, withoutPassword } from './transcript.ts';

/** The result of a message at one server. `unopened`: the session never got as far as MAIL FROM. */
export type HostResult =
  | { readonly kind: 'unopened'; readonly reason: string }
  | (TransactionResult & { readonly source: string | null; readonly tls: boolean });

/** A message to be sent to one of its servers. */
export interface SendAttempt {
  readonly letter: SmtpMessage;
  /** Our source addresses, in the order in which they are tried. */
  readonly sources: readonly string[];
  /** Ends the attempt. */
  readonly signal: AbortSignal;
  readonly transcript: Transcript;
}

interface SessionsDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly names: SourceNames;
}

/** How long an address that is not on this machine is skipped. */
const MISSING_MS = 60_000;
/** Far more addresses than a machine has. */
const MAX_MISSING = 1000;

interface SessionsSettings {
  /** The time limit for one address to get as far as MAIL FROM. */
  readonly hostTimeoutMs: number;
  /** Idle sessions kept per server and source address. */
  readonly mostPerWay: number;
}

/** Sessions with servers, reused for further messages. */
export function createClientSessions(
  { hostTimeoutMs, mostPerWay }: SessionsSettings,
  { clock, log, names }: SessionsDeps,
) {
  const pool = createSessionPool({ mostPerWay }, clock);
  const missing = createExpiringCache<true>({ most: MAX_MISSING }, clock);

  /** The source addresses to try, in order; undefined at the end is the system's own choice. */
  function candidates(hop: Hop, sources: readonly string[]): readonly (string | undefined)[] {
    return [...sourcesFor(hop.address, sources).filter((source) => !missing.get(source)), undefined];
  }

  async function open(hop: Hop, from: readonly (string | undefined)[], sending: SendAttempt): Promise<ClientSession> {
    for (const source of from) {
      try {
        return await openFrom(hop, source, sending);
      } catch (error) {
        if (source === undefined || !isSourceMissing(error)) throw error;
        missing.set(source, true, MISSING_MS);
        log.error('ip.missing', { ip: source, host: hop.host });
      }
    }
    throw new Error('no source address is available');
  }

  async function openFrom(
    hop: Hop,
    source: string | undefined,
    { signal, transcript }: SendAttempt,
  ): Promise<ClientSession> {
    return withDeadline(clock, hostTimeoutMs, async (late) => {
      const either = AbortSignal.any([signal, late]);
      const name = await names(source);
      const begin = async (one: Hop) => {
        const notes = transcript.begin(one, false);
        try {
          const socket = await openConnection({ address: one.address, port: one.port, source }, clock, either);
          return await openSession(socket, one, name, either, notes);
        } catch (error) {
          notes.failed(failureReason(error));
          throw error;
        }
      };
      return begin(hop).catch((error: unknown) => {
        if (hop.tls !== 'any' || !isTlsFault(error) || either.aborted) throw error;
        return begin({ ...hop, tls: 'none' });
      });
    });
  }

  /** Sends the message; an abort destroys the session. */
  async function use(session: ClientSession, { letter, signal }: SendAttempt): Promise<TransactionResult> {
    signal.addEventListener('abort', session.destroy, { once: true });
    try {
      return await session.send(letter);
    } finally {
      signal.removeEventListener('abort', session.destroy);
    }
  }

  /** Uses a session that was kept; undefined if it had ended. */
  async function again(session: ClientSession, hop: Hop, sending: SendAttempt): Promise<TransactionResult | undefined> {
    const { signal, transcript } = sending;
    const notes = transcript.begin(hop, true);
    session.noteTo(notes);
    notes.opened(session.source, session.tlsVersion);
    signal.addEventListener('abort', session.destroy, { once: true });
    const usable = await session.reset().finally(() => signal.removeEventListener('abort', session.destroy));
    const handover = usable ? await use(session, sending) : undefined;
    return handover && !isStale(handover) ? handover : undefined;
  }

  return frozen({
    async visit(hop: Hop, sending: SendAttempt): Promise<HostResult> {
      const from = candidates(hop, sending.sources);
      const way = (source: string | undefined) => `${hop.host} ${hop.address} ${hop.port} ${hop.tls} ${source ?? ''}`;
      const conclude = (
        session: ClientSession,
        source: string | undefined,
        handover: TransactionResult,
      ): HostResult => {
        session.noteTo(undefined);
        pool.keep(way(source), session);
        return { ...handover, source: session.source, tls: session.tls };
      };
      const kept = pool.take(way(from[0]));
      const handover = kept && (await again(kept, hop, sending));
      if (kept && handover) return conclude(kept, from[0], handover);
      kept?.destroy();
      try {
        const session = await open(hop, from, sending);
        const source = from.find((one) => one === session.source);
        return conclude(session, source, await use(session, sending));
      } catch (error) {
        return { kind: 'unopened', reason: withoutPassword(hop, failureReason(error)) };
      }
    },
    stop: pool.stop,
  });
}

/** Whether a kept session ended before the message was sent: 421 closes it, 503 says it is out of sequence. */
function isStale(handover: TransactionResult): boolean {
  return handover.kind === 'lost'
    ? !handover.given
    : !handover.given && (handover.code === 421 || handover.code === 503);
}

/** Maximum in total: each uses a file descriptor here and a slot of a server. */
const MOST = 500;
const IDLE_MS = 10_000;
/** Many servers end a session after about this many. */
const MAX_MESSAGES = 100;

interface IdleSession {
  readonly session: ClientSession;
  readonly cancel: () => void;
}

/** Idle sessions, each waiting for another message to the same server. */
function createSessionPool({ mostPerWay }: { readonly mostPerWay: number }, clock: Clock) {
  const ways = new Map<string, IdleSession[]>();
  let count = 0;
  let stopped = false;

  function remove(way: string, kept: IdleSession): void {
    const others = (ways.get(way) ?? []).filter((other) => other !== kept);
    if (others.length > 0) ways.set(way, others);
    else ways.delete(way);
    kept.cancel();
    count--;
  }

  function add(way: string, session: ClientSession): void {
    const kept: IdleSession = {
      session,
      cancel: clock.after(IDLE_MS, () => {
        remove(way, kept);
        session.end();
      }),
    };
    ways.set(way, [...(ways.get(way) ?? []), kept]);
    count++;
  }

  return frozen({
    /** Takes the most recently used session, the least likely to have been closed. */
    take(way: string): ClientSession | undefined {
      for (;;) {
        const kept = ways.get(way)?.at(-1);
        if (!kept) return undefined;
        remove(way, kept);
        if (kept.session.alive()) return kept.session;
      }
    },
    /** Keeps a session, or ends it if it is used up or enough are kept. */
    keep(way: string, session: ClientSession) {
      const full = count >= MOST || (ways.get(way)?.length ?? 0) >= mostPerWay;
      if (stopped || full || session.sent() >= MAX_MESSAGES || !session.alive()) session.end();
      else add(way, session);
    },
    /** Ends all sessions, and those handed in later. */
    stop() {
      stopped = true;
      for (const [way, all] of ways) {
        for (const kept of all) {
          remove(way, kept);
          kept.session.end();
        }
      }
    },
  });
}
