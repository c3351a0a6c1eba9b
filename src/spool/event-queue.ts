import type { Room } from '../base/room.ts';
import type { BatchLimits, EventNews, EventQueue, Wanted } from './event-types.ts';
import { SpoolFull } from './faults.ts';
import type { QueueFile } from './queue-file.ts';
import type { Reading } from './reading.ts';
import type { Delivery } from './types.ts';

export interface EventQueueParts {
  readonly file: QueueFile;
  readonly reading: Reading;
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
  return Object.freeze({
    async publish(wanted: readonly Wanted[], now: number) {
      refuseWithoutRoom();
      for (const { webhook, events, bytes } of await file.once('publish', wanted, now)) {
        if (events > 0) say({ kind: 'pending', webhook, events, bytes });
      }
    },
    async freeze(webhook: string, messageId: string, limits: BatchLimits, now: number) {
      const frozen = await file.write('freeze', webhook, messageId, limits, now);
      if (frozen.delivery) tell([frozen.delivery]);
      return frozen;
    },
    async send(wanted: Wanted, messageId: string, now: number) {
      refuseWithoutRoom();
      const delivery = await file.once('send', wanted, messageId, now);
      tell([delivery]);
      return delivery;
    },
    pending: (limit: number) => reading.read('pending', limit),
    hooks: () => reading.read('hooks'),
    tallies: () => reading.read('tallies'),
    async forget(webhook: string, now: number) {
      for (;;) {
        const { more, batches } = await file.write('forgetHook', webhook, now, STEP);
        if (batches > 0) tell([]);
        if (!more) return;
      }
    },
    async redirect(webhook: string, url: string) {
      if ((await file.write('redirectHook', webhook, url)) > 0) tell([]);
    },
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
