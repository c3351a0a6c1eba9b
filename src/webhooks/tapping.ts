import { heldBy } from '../base/bytes.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import type { Scanning } from '../scan/scanning.ts';
import type { Preparation } from './preparation.ts';
import { createDiscard, type PreparedDelivery } from './pull-preparation.ts';
import { createMailWaiters } from './waiters.ts';

// Watches the mail of a live route: renders the POST of each new message once more, without keeping anything.

interface TappingDeps {
  readonly spool: Pick<Spool, 'delivery' | 'message' | 'onChange'>;
  readonly preparation: Pick<Preparation, 'renderForTap' | 'discard'>;
  /** Undefined if no scanner is configured. */
  readonly scanning: Pick<Scanning, 'of'> | undefined;
  readonly clock: Clock;
}

/** The route to watch. */
interface Tapped {
  readonly account: string;
  readonly routeId: string;
}

interface TapOptions {
  /** `cursor` of the previous answer; undefined: begin now. */
  readonly cursor: number | undefined;
  readonly limit: number;
  readonly waitMs: number;
  readonly gone: AbortSignal;
}

/** Mail since the cursor. Its bodies stay until `discard`, which may be called twice. */
interface TappedMails {
  readonly cursor: number;
  readonly mails: readonly PreparedDelivery[];
  /** Whether older messages were already forgotten. */
  readonly gap: boolean;
  discard(): void;
}

export type Tapping = ReturnType<typeof createTapping>;

/** Maximum number of watched routes, per account and in all; and of messages that are remembered per route. */
const MOST = { each: 10, all: 100 };
const REMEMBERED = 1000;
/** The idle timeout of a watched route, in milliseconds. */
const FORGET = 120_000;
/**
 * How long a message waits for the verdicts of its first attempt, or for its scan, before it is shown without. Showing
 * it at once would compute the verdicts twice. Milliseconds.
 */
const PATIENCE = 3000;
const LOOK_AGAIN = 200;
/** Bytes of posts in one answer; a single one may be larger. */
const MAX_BYTES = 8 * 1024 * 1024;

interface Tap extends Tapped {
  /** The number of the next message. Numbers begin with a time, so that those of an earlier process are older. */
  next: number;
  readonly fresh: { readonly n: number; readonly id: string; readonly at: number }[];
  usedAt: number;
}

export function createTapping({ spool, preparation, scanning, clock }: TappingDeps) {
  const taps = new Map<string, Tap>();
  const waiters = createMailWaiters(clock);

  spool.onChange((fresh) => {
    if (taps.size > 0) for (const delivery of fresh) hear(delivery);
  });

  function hear({ account, routeId, kind, id }: Delivery): void {
    const tap = kind === 'inbound' ? taps.get(keyOf({ account, routeId })) : undefined;
    if (!tap) return;
    if (clock.monotonic() - tap.usedAt > FORGET) return void taps.delete(keyOf(tap));
    tap.fresh.push({ n: tap.next++, id, at: clock.monotonic() });
    if (tap.fresh.length > REMEMBERED) tap.fresh.shift();
    waiters.wake(tap);
  }

  function open(route: Tapped): Tap | undefined {
    const known = taps.get(keyOf(route));
    if (known) return known;
    const now = clock.monotonic();
    for (const [key, { usedAt }] of taps) if (now - usedAt > FORGET) taps.delete(key);
    const own = [...taps.values()].filter(({ account }) => account === route.account).length;
    if (own >= MOST.each || taps.size >= MOST.all) return undefined;
    const tap = { ...route, next: clock.now(), fresh: [], usedAt: now };
    taps.set(keyOf(route), tap);
    return tap;
  }

  /** The POST of a message; `soon`: it must wait; undefined: the message is gone. */
  async function show({ id, at }: Tap['fresh'][number]): Promise<PreparedDelivery | 'soon' | undefined> {
    const delivery = await spool.delivery(id);
    const found = delivery && (await spool.message(delivery.messageId));
    if (!found) return undefined;
    const { message, body } = found;
    const known = message.verdicts !== null && (!scanning || message.scan);
    if (!known && delivery.state === 'waiting' && clock.monotonic() - at < PATIENCE) return 'soon';
    const { attempts, budgetFrom } = delivery;
    const post = await preparation.renderForTap([
      { delivery, attempts, budgetFrom },
      { delivery, message, body },
    ]);
    return post === 'store away' ? 'soon' : { delivery, post };
  }

  /** The messages from `cursor` on that can be shown, in order. */
  async function look(tap: Tap, cursor: number, limit: number): Promise<Omit<TappedMails, 'discard' | 'gap'>> {
    const mails: PreparedDelivery[] = [];
    let bytes = 0;
    for (const one of [...tap.fresh]) {
      if (one.n < cursor) continue;
      if (mails.length >= limit || bytes > MAX_BYTES) break;
      const shown = await show(one);
      if (shown === 'soon') break;
      cursor = one.n + 1;
      if (!shown) continue;
      mails.push(shown);
      bytes += heldBy(shown.post.body);
    }
    return { mails, cursor };
  }

  return frozen({
    /** Undefined: too many routes of the account, or of all, are watched. */
    async tap(route: Tapped, { cursor, limit, ...patience }: TapOptions): Promise<TappedMails | undefined> {
      const tap = open(route);
      if (!tap) return undefined;
      const first = tap.fresh[0]?.n ?? tap.next;
      const from = cursor === undefined ? tap.next : Math.min(Math.max(cursor, first), tap.next);
      const gap = cursor !== undefined && cursor !== from;
      const seen = await waiters.find(
        route,
        patience,
        async () => {
          tap.usedAt = clock.monotonic();
          return look(tap, from, limit);
        },
        ({ mails, cursor: seenTo }) =>
          mails.length > 0 ? undefined : seenTo < tap.next ? LOOK_AGAIN : Number.POSITIVE_INFINITY,
      );
      return { ...seen, gap, discard: createDiscard(preparation, seen.mails) };
    },
    stop: waiters.stop,
  });
}

const keyOf = ({ account, routeId }: Tapped): string => `${account}\0${routeId}`;
