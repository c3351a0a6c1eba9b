import type { Delivery, Spool } from '../../src/queue/delivery.ts';
import type { EventsForHook, Hook, SpooledEvent } from '../../src/queue/events.ts';

/** A webhook of `acme`. */
export function hook(id = '4', url = `https://hooks.example.com/${id}`): Hook {
  return { id, account: 'acme', url };
}

/** Events `e<from>` and so on, each of about `size` bytes. */
export function someEvents(count: number, from = 0, size = 100): SpooledEvent[] {
  return Array.from({ length: count }, (_, n) => {
    const id = `e${from + n}`;
    return { id, body: JSON.stringify({ _id: id, filling: 'x'.repeat(size - 30) }) };
  });
}

export function wanted(events: readonly SpooledEvent[], to: Hook = hook()): EventsForHook {
  return { hook: to, events };
}

/** The events of a batch, by their ids. */
export async function idsIn(spool: Spool, delivery: Pick<Delivery, 'messageId'> | null): Promise<string[]> {
  const found = delivery && (await spool.message(delivery.messageId));
  if (found?.body.kind !== 'memory') throw new Error('there is no such batch');
  return JSON.parse(Buffer.from(found.body.bytes).toString()).map((event: { _id: string }) => event._id);
}

export const LIMITS = { events: 1000, bytes: 1_048_576 };
