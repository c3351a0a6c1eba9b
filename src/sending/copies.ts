import { mapConcurrently } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { Envelope } from '../mail/addresses/envelope.ts';
import { type CopiedMessage, fromContent, toContent, toParts } from '../queue/copied-message.ts';
import type { Delivery, Settlement } from '../queue/delivery.ts';
import { DELIVERY_STATES } from '../queue/states.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Membership } from '../store/membership.ts';
import { type CopyResult, type CopyRow, copyPartId } from '../store/rows/copies.ts';
import type { Store } from '../store/store.ts';

interface CopiesSettings {
  /** Whether new mail is copied. Existing copies are respected in any mode. */
  readonly mode: 'none' | 'store';
}

interface CopiesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'copies' | 'copyParts' | 'hosts' | 'understands'>;
  readonly member: Pick<Membership, 'id' | 'epoch' | 'isLive'>;
}

type ClaimedDelivery = Pick<Delivery, 'id' | 'replayed'>;

/** Whether this host may attempt a delivery, or end it without an attempt. */
export type CopyClaim =
  /** It may, as long as this host is in `epoch`; null: the mail has no copy. */
  | { readonly kind: 'ours'; readonly epoch: number | null }
  /** Another host has taken it over, or it has ended there. */
  | { readonly kind: 'elsewhere' }
  /** It has ended here, but the queue of this host does not have the end. */
  | { readonly kind: 'settled'; readonly result: CopyResult }
  /** It was replayed by hand, and its copy was removed: it is ours once there is one of this epoch. */
  | { readonly kind: 'uncopied'; readonly epoch: number }
  /** Unknown for now: the store is away, or a takeover is under way. */
  | { readonly kind: 'unsure' };

/** The copies of outgoing mail in the store. */
export type Copies = ReturnType<typeof createCopies>;

/** Up to this size a message is in the row itself. Rows are rewritten by claims, and read by hundreds in a takeover. */
const INLINE_BYTES = 16_384;
/** The epoch in the envelope of mail whose copy another host wrote: if it has no row, it has ended. */
export const IN_NO_EPOCH = -1;
/** The delay between tries to record a result while the store is away. Milliseconds. */
const AGAIN_MS = 1000;

const UNSETTLED = { in: [null, 'leaving'] } as const;

export function createCopies({ mode }: CopiesSettings, { store, member, clock, log }: CopiesDeps) {
  const { copies, copyParts } = store;
  let stopped = false;

  /** Removes a row, and the parts of its message if no other row needs them. */
  async function remove(filter: Parameters<typeof copies.remove>[0]): Promise<void> {
    const row = await copies.remove(filter);
    if (row && row.parts > 0 && !(await copies.one({ message: row.message }))) await removeParts(row);
  }

  async function removeParts({ message, parts }: Pick<CopyRow, 'message' | 'parts'>): Promise<void> {
    for (let at = 0; at < parts; at++) await copyParts.remove({ id: copyPartId(message, at) });
  }

  /** Decides about a row that a claim did not match. */
  async function judge({ id, replayed }: ClaimedDelivery, copiedIn: number): Promise<CopyClaim> {
    const row = await copies.one({ id });
    if (!row && replayed) return { kind: 'uncopied', epoch: member.epoch() };
    // In the epoch of its copy no other host can have ended it: it was never attempted, or the store was restored.
    if (!row) return copiedIn === member.epoch() ? { kind: 'ours', epoch: copiedIn } : { kind: 'elsewhere' };
    if (row.state === 'settled' && row.result) return { kind: 'settled', result: row.result };
    if (row.host === member.id()) {
      // This host came back before the row was taken over.
      const { host, epoch } = row;
      if (epoch < member.epoch()) await copies.change({ id, host, epoch }, { epoch: member.epoch() });
      return { kind: 'unsure' };
    }
    const owner = await store.hosts.one({ id: row.host });
    const isTaking = owner?.adopter === member.id() && row.epoch < (owner.epoch ?? 0);
    return { kind: isTaking ? 'unsure' : 'elsewhere' };
  }

  return frozen({
    /** The epoch for the envelope of new mail; undefined: it gets no copy. */
    epochForNew: () => (mode === 'store' ? member.epoch() : undefined),
    /**
     * Writes the copy of a message, before it is on the queue: a delivery on the queue without a row would be taken
     * for one that has ended. Throws `StoreAway`.
     */
    async write({ bytes, ...message }: CopiedMessage, deliveries: readonly Delivery[]) {
      const epoch = message.envelope.copiedIn;
      if (epoch === undefined) return;
      const createdAt = new Date(clock.now());
      const content = toContent(message, bytes);
      // Several rows share the parts of their message.
      const isInline = deliveries.length === 1 && content.length <= INLINE_BYTES;
      const parts = isInline ? [] : toParts(content);
      for (const [at, text] of parts.entries())
        await copyParts.insert({ id: copyPartId(message.id, at), message: message.id, text, createdAt });
      await mapConcurrently(
        deliveries,
        ({ id, kind, messageId, account, url, routeId, pattern, recipient, notBefore = null }) =>
          copies.insert({
            id,
            kind,
            message: messageId,
            host: member.id(),
            epoch,
            state: null,
            result: null,
            deliveries: [{ id, messageId, account, url, routeId, pattern, recipient, notBefore }],
            content: isInline ? content : null,
            parts: parts.length,
            createdAt,
          }),
      );
    },
    /** Takes back the copy of mail that was not accepted. */
    async unwrite(envelope: Envelope, deliveries: readonly Delivery[]) {
      if (envelope.copiedIn !== undefined) await mapConcurrently(deliveries, ({ id }) => remove({ id, state: null }));
    },
    /** Reads the message of a row. Undefined if a part is missing: the row is kept then. */
    async read({ message, content, parts }: CopyRow): Promise<CopiedMessage | undefined> {
      const texts: string[] = [];
      for (let at = 0; at < parts; at++) {
        const part = await copyParts.one({ id: copyPartId(message, at) });
        if (!part) return undefined;
        texts.push(part.text);
      }
      return fromContent(content ?? texts.join(''));
    },
    /** Claims a delivery: an attempt may start while `holds`. Throws `StoreAway`. */
    async claim(delivery: ClaimedDelivery, { copiedIn }: Envelope): Promise<CopyClaim> {
      if (copiedIn === undefined) return { kind: 'ours', epoch: null };
      if (!member.isLive()) return { kind: 'unsure' };
      const epoch = member.epoch();
      const own = { id: delivery.id, host: member.id(), epoch, state: UNSETTLED };
      const row = await copies.change(own, { state: 'leaving' });
      return row ? { kind: 'ours', epoch } : await judge(delivery, copiedIn);
    },
    /** Whether a claim is still good. */
    holds: (epoch: number | null): boolean => epoch === null || (epoch === member.epoch() && member.isLive()),
    /**
     * Records how a delivery has ended, before the queue does: a host that takes it over does not send it again. Waits
     * while the store is away.
     */
    async record({ deliveryId: id, state, report }: Settlement, { copiedIn }: Envelope) {
      if (copiedIn === undefined || state === 'waiting') return;
      const result = { state, report: report ?? null };
      for (let isLogged = false; !stopped; isLogged = true) {
        try {
          // If it was taken over during the attempt, the other host decides.
          await copies.change({ id, host: member.id(), state: UNSETTLED }, { state: 'settled', result });
          return;
        } catch (error) {
          if (!(error instanceof StoreAway)) {
            // The mail was sent, even if its row is faulty.
            log.error('copy.fault', { delivery: id, error });
            return;
          }
          if (!isLogged) log.warn('copy.waits', { delivery: id, reason: error.message });
          await new Promise<void>((resolve) => {
            clock.after(AGAIN_MS, resolve);
          });
        }
      }
    },
    /** Removes the copy of a delivery that has ended, once the store has its report. */
    ended: (id: string) => remove({ id, host: member.id(), state: 'settled' }),
    /** Removes the copy of a delivery that must not be sent, whichever host has it. */
    cancelled: (id: string) => remove({ id }),
    /** Removes the copy of a delivery of this host that was ended by hand. */
    dropped: (id: string) => remove({ id, host: member.id() }),
    /** Removes parts older than `before` that no row needs: their call was interrupted. Returns how many. */
    async sweep(before: Date, ending?: AbortSignal): Promise<number> {
      let count = 0;
      for (let from = new Date(0); !ending?.aborted; ) {
        const found = await copyParts.many({ createdAt: { range: { gt: from, lt: before } } }, SWEPT);
        for (const { id, message } of found)
          if (!(await copies.one({ message })) && (await copyParts.remove({ id }))) count++;
        const last = found.at(-1);
        if (!last || found.length < SWEPT.limit) break;
        from = last.createdAt;
      }
      return count;
    },
    /** Stops waiting for the store. */
    stop() {
      stopped = true;
    },
  });
}

/** Few: each may be a megabyte. */
const SWEPT = { sort: 'createdAt', limit: 20 } as const;

/** The queue's state for a result. */
export const stateOf = ({ state }: CopyResult) => DELIVERY_STATES.find((name) => name === state) ?? 'dropped';
