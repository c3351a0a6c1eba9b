import { sizeOf } from '../base/bytes.ts';
import { type Clock, createLoop, HOUR_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { summaryFields } from '../mail/summary.ts';
import { type Delivery, kindsOf, type QueuedDelivery, type Selection, type Spool } from '../queue/delivery.ts';
import { type DeliveryState, OPEN_STATES } from '../queue/states.ts';
import { type Journal, JournalAway } from './journal.ts';

/** How many deliveries are compared in one step. */
const STEP = 500;
/** How long a comparison waits for further changes. */
const GATHER_MS = 5000;
/** After a comparison, the next one waits this many times its duration. */
const REST = 10;

export type WatchedQueue = ReturnType<typeof watchQueue>;

/** The queue of this host, watched by the journal, which takes notes about mail, not about batches of events. */
export function watchQueue(
  spool: Spool,
  { journal, clock, log }: { readonly journal: Journal; readonly clock: Clock; readonly log: Log },
) {
  const { deliveries: notes } = journal;
  let cancel: (() => void) | undefined;
  let phase: 'new' | 'running' | 'stopped' = 'new';
  let comparing = Promise.resolve();
  let took = 0;

  /** Actions on single deliveries are noted; changes of others are found by the next comparison. */
  async function changed(selection: Selection, what: 'replayed' | 'dropped', at: number, note?: string): Promise<void> {
    const { ids, account } = selection;
    if (!ids) return;
    for (const one of await spool.list({ ids, account }, ids.length)) {
      const isIt = what === 'replayed' ? one.budgetFrom === at : one.state === 'dropped' && one.endedAt === at;
      if (isIt && MAIL.includes(one.kind)) notes.changed(one.id, what, at, note);
    }
  }

  function failed(error: unknown): void {
    if (!(error instanceof JournalAway) && phase === 'running') log.error('journal.fault', { error });
  }

  function compareSoon(): void {
    if (phase !== 'running') return;
    cancel ??= clock.after(Math.max(GATHER_MS, took * REST), () => {
      cancel = undefined;
      comparing = comparing.then(compare);
    });
  }

  const hourly = createLoop(clock, async () => {
    compareSoon();
    return HOUR_MS;
  });

  async function compare(): Promise<void> {
    const began = clock.monotonic();
    try {
      await journal.flush();
      // The history of a new file begins with all mail in the queue.
      const filled = await journal.ask('isFilled');
      await addMissing(filled ? OPEN_STATES : undefined);
      for (const state of OPEN_STATES) await correct(state);
      if (!filled && phase === 'running') await journal.ask('filled');
    } catch (error) {
      failed(error);
    }
    took = clock.monotonic() - began;
  }

  /** Deliveries in the queue that are missing or different in the journal. */
  async function addMissing(states: readonly DeliveryState[] | undefined): Promise<void> {
    for await (const page of spool.scan({ states, kinds: MAIL })) {
      if (phase !== 'running') return;
      const known = await journal.ask(
        'known',
        page.map(({ id }) => id),
      );
      const missing = page.filter((_, i) => known[i] === null);
      const nameless = page.filter((_, i) => known[i]?.isNameless);
      const envelopes = await spool.envelopes(idsOf(missing));
      const fields = notes.keepsSummaries ? await spool.summaryFields(idsOf([...missing, ...nameless])) : NOTHING;
      for (const one of missing) notes.missed(one, envelopes.get(one.messageId), fields.get(one.messageId));
      for (const { id, messageId } of nameless)
        if (fields.has(messageId)) notes.described(id, fields.get(messageId) ?? '');
      for (const [i, one] of page.entries()) {
        const { state, url } = known[i] ?? one;
        if (state !== one.state || url !== one.url) notes.corrected(one.id, one.state, endOf(one), one.url);
      }
      await journal.flush();
    }
  }

  /** Rows with an outdated state. Mail that the queue has purged stays dead, but does not wait. */
  async function correct(state: (typeof OPEN_STATES)[number]): Promise<void> {
    for (let from = 0; phase === 'running'; ) {
      const page = await journal.ask('inState', state, from, STEP);
      const queued = new Map((await spool.list({ ids: page.map(([, id]) => id) }, STEP)).map((one) => [one.id, one]));
      for (const [, id] of page) {
        const one = queued.get(id);
        if (one && one.state !== state) notes.corrected(id, one.state, endOf(one), one.url);
        else if (!one && state === 'waiting') notes.corrected(id, 'unknown', null, null);
      }
      await journal.flush();
      const last = page.at(-1);
      if (!last || page.length < STEP) return;
      [from] = last;
    }
  }

  /** The summary of a large message, whose bytes are in a file; no reply waits for it. */
  async function describe(messageId: string, deliveries: readonly Delivery[]): Promise<void> {
    const fields = (await spool.summaryFields([messageId])).get(messageId);
    if (fields !== undefined) for (const { id } of deliveries) notes.described(id, fields);
  }

  spool.onChange((fresh) => {
    if (fresh.length === 0) compareSoon();
  });
  journal.onGap(compareSoon);

  return frozen({
    /** The same queue, with notes about its mail. */
    spool: frozen<Spool>({
      ...spool,
      async accept(message, deliveries) {
        const { receivedAt, envelope, body } = message;
        // The bytes are passed on with the message.
        const size = sizeOf(body);
        const isRead = notes.keepsSummaries && !envelope.outgoing;
        const fields = isRead && body.kind === 'memory' ? summaryFields(body.bytes) : undefined;
        const outcome = await spool.accept(message, deliveries);
        if (outcome !== 'accepted') return outcome;
        for (const delivery of deliveries) notes.accepted({ delivery, receivedAt, size, envelope, fields });
        if (isRead && body.kind === 'file') describe(message.id, deliveries).catch(failed);
        return outcome;
      },
      async settle(settlement, fresh) {
        const behind = await spool.settle(settlement, fresh);
        const { deliveryId, state, at, attempt } = settlement;
        notes.settled(deliveryId, state, at, attempt);
        return behind;
      },
      async lease(endpoint, ids, times) {
        const leased = await spool.lease(endpoint, ids, times);
        for (const { id, ranOut } of leased) if (ranOut) notes.settled(id, 'waiting', times.now, ranOut);
        return leased;
      },
      async endLease(account, end) {
        const attempt = await spool.endLease(account, end);
        if (attempt) notes.settled(end.deliveryId, end.state, end.at, attempt);
        return attempt;
      },
      async replay(selection, now, of) {
        const count = await spool.replay(selection, now, of);
        if (count > 0) await changed(selection, 'replayed', now).catch(failed);
        return count;
      },
      async drop(selection, now, of, note) {
        const count = await spool.drop(selection, now, of, note);
        if (count > 0) await changed(selection, 'dropped', now, note).catch(failed);
        return count;
      },
    }),
    /**
     * Compares the journal with the queue: after a start, every hour, when something outside this process changed the
     * queue, and when the journal has lost something.
     */
    start(): void {
      phase = 'running';
      compareSoon();
      hourly.startAfter(HOUR_MS);
    },
    async stop(): Promise<void> {
      phase = 'stopped';
      cancel?.();
      void hourly.stop();
      await comparing;
    },
  });
}

const NOTHING: ReadonlyMap<string, string> = new Map();
const idsOf = (deliveries: readonly Delivery[]): readonly string[] => deliveries.map(({ messageId }) => messageId);
const MAIL = kindsOf('route', 'sender', 'operator');

/** When it ended, if it has and the time is known. */
const endOf = ({ state, endedAt }: QueuedDelivery): number | null => (state === 'waiting' ? null : endedAt || null);
