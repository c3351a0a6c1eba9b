import type { Clock } from '../base/clock.ts';
import type { Session } from './session.ts';

/** Sessions that wait for another message to the same server. */
export interface SessionPool {
  /** The one used last, which is the least likely to be closed by now. */
  take(way: string): Session | undefined;
  /** Keeps a session, or ends it when it has done enough or enough are kept. */
  keep(way: string, session: Session): void;
  /** Ends all of them, and those that are handed in from now on. */
  stop(): void;
}

/** In all: each is a file descriptor here and a place at somebody else's. */
const MOST = 500;
const IDLE_MS = 10_000;
/** Many servers end a session after about as many. */
const MOST_MESSAGES = 100;

interface Kept {
  readonly session: Session;
  readonly cancel: () => void;
}

export function createSessionPool({ mostPerWay }: { readonly mostPerWay: number }, clock: Clock): SessionPool {
  const ways = new Map<string, Kept[]>();
  let count = 0;
  let stopped = false;

  function remove(way: string, kept: Kept): void {
    const others = (ways.get(way) ?? []).filter((other) => other !== kept);
    if (others.length > 0) ways.set(way, others);
    else ways.delete(way);
    kept.cancel();
    count--;
  }

  function add(way: string, session: Session): void {
    const kept: Kept = {
      session,
      cancel: clock.after(IDLE_MS, () => {
        remove(way, kept);
        session.end();
      }),
    };
    ways.set(way, [...(ways.get(way) ?? []), kept]);
    count++;
  }

  return Object.freeze({
    take(way: string) {
      for (;;) {
        const kept = ways.get(way)?.at(-1);
        if (!kept) return undefined;
        remove(way, kept);
        if (kept.session.alive()) return kept.session;
      }
    },
    keep(way: string, session: Session) {
      const full = count >= MOST || (ways.get(way)?.length ?? 0) >= mostPerWay;
      if (stopped || full || session.sent() >= MOST_MESSAGES || !session.alive()) session.end();
      else add(way, session);
    },
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
