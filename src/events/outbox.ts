import type { Clock } from '../base/clock.ts';
import type { Wanted } from '../spool/event-types.ts';
import type { Spool } from '../spool/types.ts';
import { DEFAULT_EVENTS, type HookEvent, type UnsentEvent } from '../store/outbox.ts';
import type { Store } from '../store/store.ts';
import type { WebhookRow } from '../store/webhooks.ts';
import type { Outbox } from './types.ts';

/** How long the webhooks of an account are remembered: another host's change of them is noticed by then. */
const FRESH_MS = 1000;
/** Accounts above which all are forgotten, so that memory stays bounded. */
const MANY = 10_000;

/** An outbox that can be told that webhooks changed. */
export interface WebhookOutbox extends Outbox {
  /** The webhooks of the account changed: whatever is published from now on goes by what the store has now. */
  forget(account: string): void;
}

/** Puts events onto the spool for every webhook of the account that asked for them. */
export function createOutbox(deps: {
  store: Pick<Store, 'webhooks'>;
  spool: Pick<Spool, 'events'>;
  clock: Clock;
}): WebhookOutbox {
  const { store, spool, clock } = deps;
  const known = new Map<string, { readonly rows: Promise<readonly WebhookRow[]>; readonly readAt: number }>();

  function webhooksOf(account: string): Promise<readonly WebhookRow[]> {
    const last = known.get(account);
    if (last && clock.monotonic() - last.readAt < FRESH_MS) return last.rows;
    if (known.size >= MANY) known.clear();
    const read = { rows: store.webhooks.many({ account }), readAt: clock.monotonic() };
    known.set(account, read);
    read.rows.catch(() => {
      if (known.get(account) === read) known.delete(account);
    });
    return read.rows;
  }

  return Object.freeze({
    async publish(account: string, events: readonly UnsentEvent[]) {
      if (events.length === 0) return;
      const wanted = (await webhooksOf(account))
        .map((row) => toWanted(row, events))
        .filter((one) => one.events.length > 0);
      if (wanted.length > 0) await spool.events.publish(wanted, clock.now());
    },
    forget(account: string) {
      known.delete(account);
    },
  });
}

function toWanted({ id, account, url, events: named }: WebhookRow, events: readonly UnsentEvent[]): Wanted {
  return { hook: { id, account, url }, events: events.filter(({ event }) => wants(named, event)) };
}

function wants(named: readonly HookEvent[], event: HookEvent): boolean {
  return (named.length === 0 ? DEFAULT_EVENTS : named).includes(event);
}
