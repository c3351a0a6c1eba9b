import { createReadCache } from '../base/cache.ts';
import { type Clock, HOUR_MS } from '../base/clock.ts';
import { mapConcurrently } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import type { Spool } from '../queue/delivery.ts';
import type { EventNews, EventsForHook, Hook, SpooledEvent } from '../queue/events.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Membership } from '../store/membership.ts';
import type { CopyRow } from '../store/rows/copies.ts';
import type { Store } from '../store/store.ts';

// Events on the queue of this host are also in the store, one row for each event and webhook, until the batch with it
// has ended. Unlike outgoing mail they need no claim: an event that two hosts post has the same `_id`.

interface EventCopiesSettings {
  /** Whether new events are copied. */
  readonly mode: 'none' | 'store';
  /** How long the queue tries to deliver an event. */
  readonly retryHours: number;
}

interface EventCopiesDeps {
  readonly store: Pick<Store, 'copies' | 'webhooks'>;
  readonly spool: Pick<Spool, 'events'>;
  readonly member: Pick<Membership, 'id' | 'epoch'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** The copies of webhook events in the store. */
export type EventCopies = ReturnType<typeof createEventCopies>;

/** The delay before a removal is tried again. Milliseconds. */
const AGAIN_MS = 5000;
/** Maximum number of ended batches whose copies wait for the store to be removed. `tend` finds the others. */
const MAX_ENDED = 10_000;
/** For how long a webhook is cached while the events of a host are taken over. Milliseconds. */
const FRESH_MS = 1000;

export const eventCopyId = (webhook: string, event: string): string => `${webhook} ${event}`;

export function createEventCopies({ mode, retryHours }: EventCopiesSettings, deps: EventCopiesDeps) {
  const { store, spool, member, clock, log } = deps;
  const { copies } = store;
  const webhooks = createReadCache((id) => store.webhooks.one({ id }), FRESH_MS);
  const ended = new Map<string, EndedBatch>();
  let removing: Promise<void> = Promise.resolve();
  let isBusy = false;
  let isStopped = true;
  let cancel = () => {};

  /** Whether to queue the event on this host; false if another host has written the copy, and so has the event. */
  async function copy({ id }: Hook, event: SpooledEvent): Promise<boolean> {
    const key = eventCopyId(id, event.id);
    const row: CopyRow = {
      id: key,
      kind: 'events',
      message: key,
      host: member.id(),
      epoch: member.epoch(),
      state: null,
      result: null,
      deliveries: [],
      content: toContent({ webhook: id, event }),
      parts: 0,
      createdAt: new Date(clock.now()),
    };
    if ((await copies.insert(row)) === 'inserted') {
      // An event that was taken over may still be unsent in its own row. If it has been delivered meanwhile, its copy
      // was removed.
      if ((await spool.events.stage(id, event.id)) !== 'ended') return true;
      await remove(row);
      return false;
    }
    return (await copies.one({ id: key }))?.host === member.id();
  }

  function hear({ delivery, webhook, state }: Extract<EventNews, { kind: 'settled' }>): void {
    if (state === 'waiting' || ended.size >= MAX_ENDED) return;
    ended.set(delivery, { webhook, isDelivered: state === 'delivered' });
    if (!isStopped && !isBusy) removing = removeAll();
  }

  async function removeAll(): Promise<void> {
    isBusy = true;
    cancel();
    for (let [next] = ended; next && !isStopped; [next] = ended) {
      const error = await removeBatch(...next).catch((error: unknown) => error ?? 'unknown');
      if (error instanceof StoreAway) {
        cancel = clock.after(AGAIN_MS, () => {
          removing = removeAll();
        });
        break;
      }
      // Must not block others: its copies are left to `tend`.
      if (error !== undefined) log.error('copy.fault', { delivery: next[0], error });
      ended.delete(next[0]);
    }
    isBusy = false;
  }

  /** Removes all copies if the events were delivered, else only ours: another host may have taken them over. */
  async function removeBatch(delivery: string, { webhook, isDelivered }: EndedBatch): Promise<undefined> {
    const owner = isDelivered ? {} : { host: member.id() };
    const events = await spool.events.inBatch(delivery);
    await mapConcurrently(events, (event) => copies.remove({ id: eventCopyId(webhook, event), ...owner }));
    return undefined;
  }

  const remove = ({ id, host }: CopyRow) => copies.remove({ id, host });

  /** Puts the events of rows on the queue of this host, and makes the rows ours. */
  async function take(rows: readonly CopyRow[]): Promise<boolean> {
    const wanted: EventsForHook[] = [];
    for (const row of rows) {
      const { webhook, event } = fromContent(row);
      // Its URL may have changed. If the webhook was deleted, the event is dropped.
      const hook = await webhooks.get(webhook, clock.monotonic());
      if (hook) wanted.push({ hook: { id: hook.id, account: hook.account, url: hook.url }, events: [event] });
      else await remove(row);
    }
    if (wanted.length > 0) await spool.events.publish(wanted, clock.now());
    // If it has been delivered meanwhile, the row is gone.
    const mine = { host: member.id(), epoch: member.epoch() };
    await mapConcurrently(rows, ({ id, host, epoch }) => copies.change({ id, host, epoch }, mine));
    return true;
  }

  spool.events.onNews((news) => {
    if (mode === 'store' && news.kind === 'settled') hear(news);
  });

  const service: Service = {
    async start() {
      isStopped = false;
      if (ended.size > 0) removing = removeAll();
    },
    async stop() {
      isStopped = true;
      cancel();
      await removing;
    },
  };

  return frozen({
    ...service,
    /**
     * Writes copies of events before they are on the queue. Returns those for the queue of this host. Throws
     * `StoreAway`.
     */
    async write(wanted: readonly EventsForHook[]): Promise<readonly EventsForHook[]> {
      if (mode === 'none') return wanted;
      const ours = await Promise.all(
        wanted.map(async ({ hook, events }) => {
          const isOurs = await mapConcurrently(events, (event) => copy(hook, event));
          return { hook, events: events.filter((_, at) => isOurs[at]) };
        }),
      );
      return ours.filter(({ events }) => events.length > 0);
    },
    take,
    /** Compares a copy of this host with its queue. */
    async tend(row: CopyRow): Promise<'taken' | 'removed' | undefined> {
      const { webhook, event } = fromContent(row);
      const stage = await spool.events.stage(webhook, event.id);
      if (stage === 'left') return undefined;
      // Older than any host retries: it expired here, or its end was not recorded.
      const isOver = clock.now() - row.createdAt.getTime() > retryHours * HOUR_MS;
      if (stage === 'unknown' && !isOver) return (await take([row])) ? 'taken' : undefined;
      await remove(row);
      return 'removed';
    },
    /** Whether no copy waits to be removed. */
    idle: () => !isBusy && ended.size === 0,
  });
}

/** A batch that will not be attempted again. */
interface EndedBatch {
  readonly webhook: string;
  readonly isDelivered: boolean;
}

/** The data that another host needs to queue an event. */
interface CopiedEvent {
  readonly webhook: string;
  readonly event: SpooledEvent;
}

const toContent = ({ webhook, event: { id, body } }: CopiedEvent): string =>
  JSON.stringify({ webhook, event: { id, body } });

/** Written by `toContent` and kept by the store, which is trusted. */
const fromContent = ({ content }: CopyRow): CopiedEvent => JSON.parse(content ?? '');
