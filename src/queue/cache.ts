import { freeMemory } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import { messageIdOf } from '../base/ids.ts';
import type { Scan } from '../mail/scan.ts';
import type { Body, Message } from './delivery.ts';

/**
 * Messages just accepted, so that the first attempt of each delivery needs no disk read. The caller of `take`
 * owns the bytes: the last delivery gets the originals, earlier ones get copies, so that each can free its bytes.
 */
export type Cache = ReturnType<typeof createCache>;

interface Entry {
  message: Message;
  readonly body: Body;
  /** Deliveries not yet attempted. */
  left: number;
}

/** Maximum bytes in the cache: some seconds of mail not yet attempted. */
const CACHE_BYTES = 16 * 1024 * 1024;
/** Approximate bytes of an entry besides its body. */
const OVERHEAD = 1024;

/** The oldest entries are evicted first. */
export function createCache() {
  const entries = new Map<string, Entry>();
  let bytes = 0;
  const sizeOf = ({ body }: Entry) => OVERHEAD + (body.kind === 'memory' ? body.bytes.byteLength : 0);
  const remove = (id: string) => {
    const entry = entries.get(id);
    if (!entry) return;
    entries.delete(id);
    bytes -= sizeOf(entry);
  };
  /** Removes a message and frees its bytes, which only the cache holds. */
  const forget = (id: string, { body }: Entry) => {
    remove(id);
    if (body.kind === 'memory') freeMemory(body.bytes);
  };
  const makeRoom = () => {
    for (const [id, entry] of entries) {
      if (bytes <= CACHE_BYTES) return;
      forget(id, entry);
    }
  };
  return frozen({
    put(message: Message, body: Body, deliveries: number) {
      const entry = { message, body, left: deliveries };
      entries.set(message.id, entry);
      bytes += sizeOf(entry);
      if (bytes > CACHE_BYTES) makeRoom();
    },
    /** `first`: for the first attempt of one of its deliveries. */
    take(messageId: string, first: boolean): { readonly message: Message; readonly body: Body } | undefined {
      const entry = entries.get(messageId);
      if (!entry) return undefined;
      if (first) entry.left--;
      const { message, body } = entry;
      if (entry.left <= 0) remove(messageId);
      else if (body.kind === 'memory') return { message, body: { kind: 'memory', bytes: new Uint8Array(body.bytes) } };
      return { message, body };
    },
    /** Stores the verdicts in the message of the delivery. */
    keepVerdicts(deliveryId: string, verdicts: Message['verdicts']) {
      const entry = entries.get(messageIdOf(deliveryId));
      if (entry) entry.message = { ...entry.message, verdicts };
    },
    scanOf: (messageId: string) => entries.get(messageId)?.message.scan,
    keepScan(messageId: string, scan: Scan) {
      const entry = entries.get(messageId);
      if (entry) entry.message = { ...entry.message, scan };
    },
    clear() {
      for (const [id, entry] of entries) forget(id, entry);
    },
  });
}
