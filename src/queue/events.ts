import { frozen } from '../base/frozen.ts';
import type { Room } from '../base/room.ts';
import type { Delivery } from './delivery.ts';
import { SpoolFull } from './disk/faults.ts';
import type { QueueFile } from './disk/file.ts';
import type { Reader } from './disk/reader.ts';

/** A webhook as the queue knows it; `id` is that of its row. */
export interface Hook {
  readonly id: string;
  readonly account: string;
  readonly url: string;
}

/** An event as JSON text. The same id is taken once for each webhook, as long as the queue still knows it. */
export interface SpooledEvent {
  readonly id: string;
  readonly body: string;
}

/** Which events a webhook wants. */
export interface EventsForHook {
  readonly hook: Hook;
  readonly events: readonly SpooledEvent[];
}

/** How large a batch may become. A single event larger than `bytes` is a batch of its own. */
export interface BatchLimits {
  readonly events: number;
  /** Of the JSON array. */
  readonly bytes: number;
}

/** What waits for a webhook to become a batch, counted no further than one batch would hold. */
export interface Pending {
  readonly events: number;
  readonly bytes: number;
  /** When the oldest came, milliseconds since 1970. */
  readonly since: number;
}

/** What became of the wish to make a batch. */
export interface FreezeOutcome {
  /** Null: nothing was pending, or as many batches as may be are open. */
  readonly delivery: Delivery | null;
  readonly blocked: boolean;
  readonly left: Pending;
}

/** What this host has sent to a webhook so far, in absolute numbers. */
export interface HookTally {
  readonly hook: Hook;
  /** Names the row that these numbers stand in. */
  readonly spool: string;
  readonly batches: number;
  readonly events: number;
  readonly sentAt: number | null;
  readonly error: string | null;
  readonly errorAt: number | null;
}

/**
 * pending: new events wait · settled: a batch was attempted, or ended · changed: something outside (the command line)
 * moved the queue.
 */
export type EventNews =
  | { readonly kind: 'pending'; readonly webhook: string; readonly events: number; readonly bytes: number }
  | { readonly kind: 'settled'; readonly webhook: string; readonly tally: HookTally }
  | { readonly kind: 'changed' };

/** The events of the queue: pending ones, and the batches that they become. */
export interface EventQueue {
  /**
   * Resolves after the sync. Throws SpoolFull or SpoolFault when nothing of it was kept, or nobody knows whether it
   * was.
   */
  publish(wanted: readonly EventsForHook[], now: number): Promise<void>;
  /**
   * Makes the oldest pending events of a webhook one batch: a message with one delivery, in one transaction. At most
   * four batches of a webhook are open at one time; parked ones do not count, for they may wait for hours.
   */
  freeze(webhook: string, messageId: string, limits: BatchLimits, now: number): Promise<FreezeOutcome>;
  /** A batch of exactly these events, at once. Throws as `publish`. */
  send(wanted: EventsForHook, messageId: string, now: number): Promise<Delivery>;
  /** Every webhook for which events are pending, counted up to `limit` each. */
  pending(limit: number): Promise<{ readonly webhook: string; readonly pending: Pending }[]>;
  /** Webhooks that have pending events or batches that may still go out. */
  hooks(): Promise<Hook[]>;
  tallies(): Promise<HookTally[]>;
  /**
   * The webhook was deleted: its pending events and waiting batches are dropped, and nothing is taken for it any more.
   */
  forget(webhook: string, now: number): Promise<void>;
  /** Where the webhook is now: pending events and what waits or is dead go there. */
  redirect(webhook: string, url: string): Promise<void>;
  /** Drops pending events that came before this time. Answers how many of which webhook. */
  expire(before: number): Promise<{ readonly webhook: string; readonly events: number }[]>;
  onNews(listener: (news: EventNews) => void): void;
}

interface EventQueueParts {
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly room: Room;
  /** Tells who waits for deliveries of a new batch, or (nothing) that some were changed. */
  readonly tell: (fresh: readonly Delivery[]) => void;
  /** Tells who listens to news of events. */
  readonly say: (news: EventNews) => void;
}

/** Rows that one step changes, which shares a commit with new mail. */
const STEP = 1000;

/** The events of the queue from main's side. */
export function createEventQueue({ file, reading, room, tell, say }: EventQueueParts): Omit<EventQueue, 'onNews'> {
  const refuseWithoutRoom = () => {
    if (!room.has()) throw new SpoolFull('no room for events: the disk is nearly full');
  };
  return frozen({
    async publish(wanted, now) {
      refuseWithoutRoom();
      for (const { webhook, events, bytes } of await file.once('publish', wanted, now)) {
        if (events > 0) say({ kind: 'pending', webhook, events, bytes });
      }
    },
    async freeze(webhook, messageId, limits, now) {
      const frozen = await file.write('freeze', webhook, messageId, limits, now);
      if (frozen.delivery) tell([frozen.delivery]);
      return frozen;
    },
    async send(wanted, messageId, now) {
      refuseWithoutRoom();
      const delivery = await file.once('send', wanted, messageId, now);
      tell([delivery]);
      return delivery;
    },
    pending: (limit) => reading.read('pending', limit),
    hooks: () => reading.read('hooks'),
    tallies: () => reading.read('tallies'),
    async forget(webhook, now) {
      for (;;) {
        const { more, batches } = await file.write('forgetHook', webhook, now, STEP);
        if (batches > 0) tell([]);
        if (!more) return;
      }
    },
    async redirect(webhook, url) {
      if ((await file.write('redirectHook', webhook, url)) > 0) tell([]);
    },
    async expire(before) {
      const gone = new Map<string, number>();
      for (;;) {
        const step = await file.write('expireEvents', before, STEP);
        for (const { webhook, events } of step) gone.set(webhook, (gone.get(webhook) ?? 0) + events);
        if (step.length === 0) return [...gone].map(([webhook, events]) => ({ webhook, events }));
      }
    },
  });
}
