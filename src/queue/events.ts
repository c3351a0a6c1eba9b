import type { DiskSpace } from '../base/disk-space.ts';
import { frozen } from '../base/frozen.ts';
import type { Delivery } from './delivery.ts';
import { SpoolFull } from './disk/faults.ts';
import type { QueueFile } from './disk/file.ts';
import type { Reader } from './disk/reader.ts';
import type { DeliveryState } from './states.ts';

/** A webhook in the queue; `id` is that of its row. */
export interface Hook {
  readonly id: string;
  readonly account: string;
  readonly url: string;
}

/** An event as JSON text. An id is accepted once per webhook, as long as the queue still has it. */
export interface SpooledEvent {
  readonly id: string;
  readonly body: string;
}

/** Events for one webhook. */
export interface EventsForHook {
  readonly hook: Hook;
  readonly events: readonly SpooledEvent[];
}

/** The maximum size of a batch. A single event larger than `bytes` is a batch of its own. */
export interface BatchLimits {
  readonly events: number;
  /** Size of the JSON array. */
  readonly bytes: number;
}

/** The pending events of a webhook, counted up to the size of one batch. */
export interface Pending {
  readonly events: number;
  readonly bytes: number;
  /** When the oldest arrived, milliseconds since 1970. */
  readonly since: number;
}

/** The result of a request to create a batch. */
export interface FreezeOutcome {
  /** Null if nothing was pending, or the limit of open batches is reached (`blocked`). */
  readonly delivery: Delivery | null;
  readonly blocked: boolean;
  readonly left: Pending;
}

/** left: it waits for a batch, or with one · ended: its batch was delivered, dead or dropped · unknown: not here. */
export type EventStage = 'left' | 'ended' | 'unknown';

/** This host's counts for a webhook, as absolute numbers. */
export interface HookTally {
  readonly hook: Hook;
  /** Identifies this spool's row of counts. */
  readonly spool: string;
  readonly batches: number;
  readonly events: number;
  readonly sentAt: number | null;
  readonly error: string | null;
  readonly errorAt: number | null;
}

/**
 * pending: new events wait · settled: a batch was attempted, or ended as `state` says · changed: an outside process
 * (the command line) changed the queue.
 */
export type EventNews =
  | { readonly kind: 'pending'; readonly webhook: string; readonly events: number; readonly bytes: number }
  | {
      readonly kind: 'settled';
      readonly webhook: string;
      readonly tally: HookTally;
      readonly delivery: string;
      readonly state: DeliveryState;
    }
  | { readonly kind: 'changed' };

interface EventQueueParts {
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly room: DiskSpace;
  /** Announces the delivery of a new batch; an empty list: existing ones were changed. */
  readonly tell: (fresh: readonly Delivery[]) => void;
  /** Announces news of events. */
  readonly say: (news: EventNews) => void;
}

/** Rows changed in one step, which shares a commit with new mail. */
const STEP = 1000;

/** The events in the queue, as used from the main thread: pending ones, and their batches. */
export function createEventQueue({ file, reading, room, tell, say }: EventQueueParts) {
  const refuseWithoutRoom = () => {
    if (!room.has()) throw new SpoolFull('no room for events: the disk is nearly full');
  };
  return frozen({
    /** Resolves after the sync. Throws SpoolFull or SpoolFault if nothing was kept, or if that is unknown. */
    async publish(wanted: readonly EventsForHook[], now: number) {
      refuseWithoutRoom();
      for (const { webhook, events, bytes } of await file.once('publish', wanted, now)) {
        if (events > 0) say({ kind: 'pending', webhook, events, bytes });
      }
    },
    /**
     * Makes the oldest pending events of a webhook into one batch: a message with one delivery, in one transaction. A
     * webhook may have at most four open batches; parked ones do not count, since they may wait for hours.
     */
    async freeze(webhook: string, messageId: string, limits: BatchLimits, now: number) {
      const frozen = await file.write('freeze', webhook, messageId, limits, now);
      if (frozen.delivery) tell([frozen.delivery]);
      return frozen;
    },
    /** Creates a batch of exactly these events at once. Throws like `publish`. */
    async send(wanted: EventsForHook, messageId: string, now: number) {
      refuseWithoutRoom();
      const delivery = await file.once('send', wanted, messageId, now);
      tell([delivery]);
      return delivery;
    },
    /** Returns every webhook with pending events, counted up to `limit` each. */
    pending: (limit: number) => reading.read('pending', limit),
    /** Returns the webhooks that have pending events or batches that may still be sent. */
    hooks: () => reading.read('hooks'),
    tallies: () => reading.read('tallies'),
    /** The ids of the events in a batch, while the queue has it. */
    inBatch: (delivery: string) => reading.read('inBatch', delivery),
    /** Whether the queue has an event for a webhook, and may still send it. */
    stage: (webhook: string, event: string) => reading.read('stage', webhook, event),
    /** For a deleted webhook: drops its pending events and waiting batches, and rejects new events for it. */
    async forget(webhook: string, now: number) {
      for (;;) {
        const { more, batches } = await file.write('forgetHook', webhook, now, STEP);
        if (batches > 0) tell([]);
        if (!more) return;
      }
    },
    /** Moves the pending events and the waiting and dead batches of a webhook to its new URL. */
    async redirect(webhook: string, url: string) {
      if ((await file.write('redirectHook', webhook, url)) > 0) tell([]);
    },
    /** Drops pending events that arrived before this time. Returns how many per webhook. */
    async expire(before: number) {
      const gone = new Map<string, number>();
      for (;;) {
        const step = await file.write('expireEvents', before, STEP);
        for (const { webhook, events } of step) gone.set(webhook, (gone.get(webhook) ?? 0) + events);
        if (step.length === 0) return [...gone].map(([webhook, events]) => ({ webhook, events }));
      }
    },
  });
}
