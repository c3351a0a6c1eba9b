import type { Body, Message } from './types.ts';

/** Messages that were just accepted, so that their first attempt needs no trip to the disk. */
export interface Cache {
  put(message: Message, body: Body, deliveries: number): void;
  get(messageId: string): { readonly message: Message; readonly body: Body; readonly size: number } | undefined;
  /** Keeps the verdicts of the message that the delivery brings. */
  keepVerdicts(deliveryId: string, verdicts: Message['verdicts']): void;
  /** One of its deliveries has ended; a message without open deliveries leaves. */
  ended(deliveryId: string): void;
  clear(): void;
}

interface Entry {
  message: Message;
  readonly body: Body;
  /** Bytes of the body when it came. */
  readonly size: number;
  open: number;
}

/** What an entry takes beside its bytes, about. */
const OVERHEAD = 1024;

/** A cache of at most `limit` bytes; the oldest leave first. */
export function createCache(limit: number): Cache {
  const entries = new Map<string, Entry>();
  let bytes = 0;
  const sizeOf = ({ body, size }: Entry) => OVERHEAD + (body.kind === 'inline' ? size : 0);
  const remove = (id: string) => {
    const entry = entries.get(id);
    if (!entry) return;
    entries.delete(id);
    bytes -= sizeOf(entry);
  };
  const makeRoom = () => {
    for (const id of entries.keys()) {
      if (bytes <= limit) return;
      remove(id);
    }
  };
  return Object.freeze({
    put(message: Message, body: Body, deliveries: number) {
      const size = body.kind === 'inline' ? body.bytes.byteLength : body.size;
      const entry = { message, body, size, open: deliveries };
      entries.set(message.id, entry);
      bytes += sizeOf(entry);
      if (bytes > limit) makeRoom();
    },
    get: (messageId: string) => entries.get(messageId),
    keepVerdicts(deliveryId: string, verdicts: Message['verdicts']) {
      const entry = entries.get(messageIdOf(deliveryId));
      if (entry) entry.message = { ...entry.message, verdicts };
    },
    ended(deliveryId: string) {
      const messageId = messageIdOf(deliveryId);
      const entry = entries.get(messageId);
      if (entry && --entry.open <= 0) remove(messageId);
    },
    clear() {
      entries.clear();
      bytes = 0;
    },
  });
}

/** base/ids.ts: a delivery id is the message id, a hyphen and 12 characters. What has an id of another form stays until it is pushed out. */
function messageIdOf(deliveryId: string): string {
  return deliveryId.slice(0, -13);
}
