import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Delivery, QueuedDelivery, Selection, Spool } from '../queue/delivery.ts';
import { type Journal, JournalAway } from './journal.ts';

/** How many deliveries are compared in one step. */
const STEP = 500;
/** How long a comparison waits for further changes to be in it. */
const GATHER_MS = 5000;
/** With much that waits a comparison is work: it rests so many times as long. */
const REST = 10;

/** The queue of this host, watched by the journal. */
export interface Watched {
  /** The same queue; what happens to its mail is noted. */
  readonly spool: Spool;
  /** Compares the journal with the queue: after a start, and when something outside this process changed the queue. */
  start(): void;
  stop(): Promise<void>;
}

/** Notes what happens to the mail of a queue. Batches of events are no mail. */
export function watch(
  spool: Spool,
  { journal, clock, log }: { readonly journal: Journal; readonly clock: Clock; readonly log: Log },
): Watched {
  const { deliveries: notes } = journal;
  let cancel: (() => void) | undefined;
  let stopped = false;
  let comparing = Promise.resolve();
  let took = 0;

  /** After a change of named deliveries the journal notes those; after another one it compares. */
  async function changed(selection: Selection, what: 'replayed' | 'dropped', at: number): Promise<void> {
    const { ids, account } = selection;
    if (!ids) return compareSoon();
    const state = what === 'replayed' ? 'waiting' : 'dropped';
    for (const one of await spool.list({ ids, account }, ids.length))
      if (one.state === state) notes.changed(one.id, what, at);
  }

  function compareSoon(): void {
    if (stopped) return;
    cancel ??= clock.after(Math.max(GATHER_MS, took * REST), () => {
      cancel = undefined;
      comparing = comparing.then(compare);
    });
  }

  async function compare(): Promise<void> {
    const began = clock.monotonic();
    try {
      await journal.flush();
      await addMissing();
      await correctStates();
    } catch (error) {
      if (!(error instanceof JournalAway) && !stopped) log.error('journal.fault', { error });
    }
    took = clock.monotonic() - began;
  }

  /** Deliveries that wait in the queue, and that the journal does not know or takes for ended. */
  async function addMissing(): Promise<void> {
    for await (const page of spool.scan({ states: ['waiting'], kinds: MAIL })) {
      if (stopped) return;
      const ids = page.map(({ id }) => id);
      const states = await journal.ask('states', ids);
      for (const [i, one] of page.entries()) {
        if (states[i] === null) add(one);
        else if (states[i] !== 'waiting') notes.found(one.id, 'waiting', null);
      }
      await journal.flush();
    }
  }

  function add(one: QueuedDelivery): void {
    notes.accepted({ delivery: one, receivedAt: one.createdAt, size: one.size ?? 0, envelope: undefined });
  }

  /** Rows that say they wait, and do not. */
  async function correctStates(): Promise<void> {
    for (let from = 0; !stopped; ) {
      const page = await journal.ask('waiting', from, STEP);
      const queued = new Map((await spool.list({ ids: page.map(([, id]) => id) }, STEP)).map((one) => [one.id, one]));
      for (const [, id] of page) {
        const { state = 'unknown', endedAt = null } = queued.get(id) ?? {};
        if (state !== 'waiting') notes.found(id, state, endedAt);
      }
      await journal.flush();
      const last = page.at(-1);
      if (!last || page.length < STEP) return;
      [from] = last;
    }
  }

  spool.onChange((fresh) => {
    if (fresh.length === 0) compareSoon();
  });

  return frozen({
    spool: frozen({
      ...spool,
      async accept(message, deliveries) {
        const { receivedAt, envelope, body } = message;
        // The bytes are given away with the message.
        const size = body.kind === 'blob' ? body.size : body.bytes.byteLength;
        const outcome = await spool.accept(message, deliveries);
        if (outcome === 'accepted')
          for (const delivery of deliveries) notes.accepted({ delivery, receivedAt, size, envelope });
        return outcome;
      },
      async settle(settlement, fresh) {
        await spool.settle(settlement, fresh);
        const { deliveryId, state, at, attempt } = settlement;
        notes.settled(deliveryId, state, at, attempt);
      },
      async replay(selection, now, progress) {
        const count = await spool.replay(selection, now, progress);
        if (count > 0) await changed(selection, 'replayed', now);
        return count;
      },
      async drop(selection, now, progress) {
        const count = await spool.drop(selection, now, progress);
        if (count > 0) await changed(selection, 'dropped', now);
        return count;
      },
    } satisfies Spool),
    start: compareSoon,
    async stop() {
      stopped = true;
      cancel?.();
      await comparing;
    },
  });
}

const MAIL: readonly Delivery['kind'][] = ['inbound', 'outbound', 'return'];
