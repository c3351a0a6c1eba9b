import { createLoop, DAY_MS } from '../base/clock.ts';
import { mapConcurrently } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import { type Ids, messageIdOf } from '../base/ids.ts';
import type { Service, Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import { type CopiedMessage, fromCopy } from '../queue/copied-message.ts';
import { type Delivery, type NewMessage, type Spool, writeAll } from '../queue/delivery.ts';
import { isLost } from '../queue/disk/faults.ts';
import type { Rescued } from '../queue/messages.ts';
import { type DeliveryState, STATES } from '../queue/states.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Membership } from '../store/membership.ts';
import type { CopiedDelivery, CopyRow } from '../store/rows/copies.ts';
import type { HostRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { type Copies, IN_NO_EPOCH } from './copies.ts';

/** A kind of copies without claims. */
interface CopyKind {
  /** Queues the mail of the rows on this host, and makes the rows ours. */
  take(rows: readonly CopyRow[]): Promise<boolean>;
  /** Compares a copy of this host with its queue. */
  tend(row: CopyRow): Promise<'taken' | 'removed' | undefined>;
}

interface AdoptionSettings {
  /** Whether the store is a file of this host, so that there are no other hosts. */
  readonly alone: boolean;
}

interface AdoptionDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'hosts' | 'copies' | 'scheduled' | 'understands'>;
  readonly spool: Pick<
    Spool,
    'body' | 'accept' | 'copies' | 'delivery' | 'envelopes' | 'replay' | 'hasRoom' | 'rescue'
  >;
  readonly copies: Copies;
  /** The kinds of copies besides outgoing mail. */
  readonly others: Readonly<Record<string, CopyKind>>;
  readonly member: Pick<Membership, 'id' | 'epoch' | 'isLive'>;
  readonly ids: Pick<Ids, 'message'>;
}

/** The interval at which this host checks whether it must take over mail. Milliseconds. */
const LOOK_MS = 2000;
/** The delay before copies that could not be taken are tried again. Milliseconds. */
const AGAIN_MS = 30_000;
/** Rows read together. Rows of inbound mail have up to two megabytes. */
const BY_ID = { sort: 'id', limit: 500, bytes: 32 * 1024 * 1024 } as const;

/**
 * Takes over the copies of hosts whose row names this one as their adopter. Each message is queued first, and then its
 * rows name this host: if it dies in between, nothing is lost, and the next adopter continues.
 */
export function createAdoption({ alone }: AdoptionSettings, deps: AdoptionDeps) {
  const { store, spool, copies, others, member, clock, ids, log } = deps;
  async function look(): Promise<number> {
    if (!member.isLive()) return LOOK_MS;
    let left = 0;
    for (const lost of await store.hosts.many({ adopter: member.id() })) left += await takeAll(lost);
    return left === 0 ? LOOK_MS : AGAIN_MS;
  }

  /**
   * Takes over the mail of a host from its earlier epochs. Returns how many messages could not be taken. Throws
   * `StoreAway`.
   */
  async function takeAll({ id, name, epoch = 0 }: HostRow): Promise<number> {
    const ofLost = { host: id, epoch: { range: { lt: epoch } } };
    if (!(await store.copies.one(ofLost))) return 0;
    const count = { taken: 0, left: 0, away: 0 };
    for (let past = 0; past < epoch; past++)
      for (let last = ''; !loop.isStopped(); ) {
        // Checked for each page: the host may have come back, or have another adopter.
        if (!spool.hasRoom() || !(await store.hosts.one({ id, epoch, adopter: member.id() }))) return 0;
        const page = await store.copies.many({ host: id, epoch: past, id: { range: { gt: last } } }, BY_ID);
        const next = page.at(-1);
        if (!next) break;
        const rest = await store.copies.many({ host: id, epoch: past, message: next.message });
        const rows = new Map([...page, ...rest].map((row) => [row.id, row]));
        for (const outcome of await mapConcurrently(messagesOf([...rows.values()]), attempt)) count[outcome]++;
        if (count.away > 0) throw new StoreAway('copies could not be read or changed');
        last = [...rows.keys()].toSorted().at(-1) ?? next.id;
      }
    log.info('host.adopted', { id, name, messages: count.taken, left: count.left });
    return count.left;
  }

  /** Never rejects, so that all takeovers of a round have ended when the next begins. */
  async function attempt(rows: readonly CopyRow[]): Promise<'taken' | 'left' | 'away'> {
    try {
      return (await take(rows)) ? 'taken' : 'left';
    } catch (error) {
      if (error instanceof StoreAway) return 'away';
      log.error('copy.fault', { message: rows[0]?.message, error });
      return 'left';
    }
  }

  /** Puts a message on the queue of this host, and makes its rows ours. False if it cannot be understood. */
  async function take(rows: readonly CopyRow[]): Promise<boolean> {
    const [first] = rows;
    if (!first || !rows.every(store.understands)) return false;
    const other = others[first.kind];
    if (other) return other.take(rows);
    const found = await copies.read(first);
    if (!found) {
      log.error('copy.fault', { message: first.message, reason: 'a part of it is missing' });
      return false;
    }
    const epoch = member.epoch();
    const isClaimed = first.kind === 'outbound';
    const copied = rows.flatMap(({ deliveries }) => deliveries);
    const known = await mapConcurrently(copied, async ({ id }) => (await spool.delivery(id))?.messageId);
    const fresh = copied.filter((_, at) => known[at] === undefined);
    let message = known.find((id) => id !== undefined) ?? found.id;
    if (fresh.length > 0) {
      // The queue accepts an id once, and may already have other deliveries of the message.
      const isTaken = (await spool.envelopes([found.id])).has(found.id);
      message = isTaken ? ids.message() : found.id;
      const envelope = isClaimed ? { ...found.envelope, copiedIn: epochOf(first) } : found.envelope;
      if (!(await put({ ...found, id: message, envelope }, fresh))) return false;
    }
    // Before the rows are ours, so that the copy is removed when the mail ends.
    if (!isClaimed) await spool.copies.start([{ messageId: message, id: first.id, epoch }]);
    const taken = await mapConcurrently(rows, async ({ id, host, epoch: past, deliveries }) => {
      if (host !== member.id() && !(await store.copies.change({ id, host, epoch: past }, { host: member.id(), epoch })))
        return true;
      return !(await mapConcurrently(deliveries, restore)).includes(false);
    });
    return !taken.includes(false);
  }

  /** Makes a delivery wait again that was dropped here in a takeover by another host. False if it is not here. */
  async function restore({ id, state: copied = 'waiting' }: CopiedDelivery): Promise<boolean> {
    const { state } = (await spool.delivery(id)) ?? { state: undefined };
    if (state === 'dropped' && copied === 'waiting') await spool.replay({ ids: [id] }, clock.now());
    return state !== undefined;
  }

  async function put(message: CopiedMessage, copied: readonly CopiedDelivery[]): Promise<boolean> {
    const deliveries = await mapConcurrently(copied, async (one) => ({
      ...(await deliveryOf(one)),
      messageId: message.id,
    }));
    // The time is by the clock of the host that accepted it, which may be ahead of ours.
    const receivedAt = Math.min(message.receivedAt, clock.now());
    return (await spool.accept(await onDisk({ ...message, receivedAt }), deliveries)) === 'accepted';
  }

  async function onDisk({ bytes, ...message }: CopiedMessage): Promise<NewMessage> {
    const writer = spool.body(message.id);
    await writeAll(writer, bytes);
    return { ...message, body: await writer.finish() };
  }

  /** The epoch for the envelope. Another host may end its row, so the absence of a row does not make the mail ours. */
  const epochOf = ({ host, epoch }: CopyRow): number => (host === member.id() ? epoch : IN_NO_EPOCH);

  /** Finds a message that was damaged on the disk of this host. */
  async function find(message: string, delivery?: string): Promise<Rescued | undefined> {
    const row =
      delivery === undefined
        ? await store.copies.one({ message })
        : // A row of outgoing mail is one delivery; a row of inbound mail is a message as it was accepted.
          ((await store.copies.one({ id: delivery })) ?? (await store.copies.one({ id: messageIdOf(delivery) })));
    return row && (await rescued(row, message, delivery));
  }

  async function rescued(row: CopyRow, id: string, delivery?: string): Promise<Rescued | undefined> {
    const copied = row.deliveries.find((one) => one.id === delivery) ?? row.deliveries[0];
    if (others[row.kind] || !copied || !store.understands(row)) return undefined;
    const found = await copies.read(row);
    if (!found) return undefined;
    const envelope = row.kind === 'outbound' ? { ...found.envelope, copiedIn: epochOf(row) } : found.envelope;
    const message = await onDisk({ ...found, id, envelope });
    return { message, delivery: { ...(await deliveryOf(copied)), messageId: id } };
  }

  /** Makes deliveries wait again that were given up because of damage. */
  async function revive(row: CopyRow, lost: readonly Pick<Delivery, 'id' | 'messageId'>[]): Promise<boolean> {
    let count = 0;
    for (const { id, messageId } of lost) {
      const found = await rescued(row, messageId || row.message, id);
      if (!found || !(await spool.rescue.restore(found, 'it was given up as damaged'))) continue;
      count += await spool.replay({ ids: [id] }, clock.now());
    }
    return count > 0;
  }

  if (!alone) spool.rescue.onDamage(find);

  /** The delivery of a copy. A later send time of outgoing mail is in its schedule row. */
  async function deliveryOf(copied: CopiedDelivery): Promise<Delivery> {
    const delivery = fromCopy(copied);
    if (delivery.notBefore === undefined) return delivery;
    if (delivery.kind !== 'outbound') return { ...delivery, notBefore: Math.min(delivery.notBefore, clock.now()) };
    const scheduled = await store.scheduled.one({ id: sentId(delivery.id) });
    return { ...delivery, notBefore: scheduled?.sendAt.getTime() ?? delivery.notBefore };
  }

  const loop = createLoop(clock, () =>
    look().catch((error: unknown) => {
      if (error instanceof StoreAway) return LOOK_MS;
      log.error('copy.fault', { error });
      return AGAIN_MS;
    }),
  );

  const service: Service = {
    async start() {
      if (!alone) void loop.start();
    },
    stop: loop.stop,
  };
  return frozen({ ...service, take, revive });
}

/** The rows of each message. */
function messagesOf(rows: readonly CopyRow[]): readonly (readonly CopyRow[])[] {
  return [...Map.groupBy(rows, ({ message }) => message).values()];
}

/** Takes over mail of lost hosts, and compares our own copies with the queue. */
export type Adoption = ReturnType<typeof createAdoption>;

export interface TendCopiesDeps
  extends Pick<AdoptionDeps, 'store' | 'spool' | 'copies' | 'others' | 'member' | 'clock'> {
  readonly adoption: Pick<Adoption, 'take' | 'revive'>;
}

/** Younger rows may still be written, or read. Milliseconds. */
const YOUNG_MS = 600_000;

/**
 * Compares the copies of this host with its queue: mail that is missing there, because the queue was restored or its
 * call was interrupted, is queued; copies of mail that was ended by hand are removed. Also removes parts without a row.
 */
export function tendCopiesTask({ store, spool, copies, others, member, clock, adoption }: TendCopiesDeps): Task {
  async function tend(row: CopyRow): Promise<'taken' | 'removed' | undefined> {
    const age = clock.now() - row.createdAt.getTime();
    if (age < YOUNG_MS || !store.understands(row)) return undefined;
    const other = others[row.kind];
    if (other) return other.tend(row);
    // Mail from before this host was adopted is decided when it is due.
    if (row.epoch !== member.epoch()) return undefined;
    const known = await mapConcurrently(row.deliveries, ({ id }) => spool.delivery(id));
    if (known.every((delivery) => delivery === undefined)) return (await adoption.take([row])) ? 'taken' : undefined;
    const lost = known.flatMap((one) => (one && isLost(one) ? [one] : []));
    if (lost.length > 0 && row.state !== 'settled') return (await adoption.revive(row, lost)) ? 'taken' : undefined;
    // For inbound mail the queue has marks of its copies; for outgoing mail, none is kept that is held or dead.
    const isOpen = (state: DeliveryState) => (row.kind === 'outbound' ? state === 'waiting' : STATES[state].open);
    if (known.some((one) => one && isOpen(one.state)) || (row.state === 'settled' && age < DAY_MS)) return undefined;
    await copies.dropped(row.id);
    return 'removed';
  }

  return {
    perHost: true,
    async run(ending) {
      const count = { taken: 0, removed: 0 };
      if (!member.isLive()) return undefined;
      for (let epoch = 0; epoch <= member.epoch(); epoch++)
        for (let last = ''; !ending?.aborted; ) {
          const page = await store.copies.many({ host: member.id(), epoch, id: { range: { gt: last } } }, BY_ID);
          for (const row of page) {
            const done = await tend(row);
            if (done) count[done]++;
          }
          const next = page.at(-1);
          if (!next) break;
          last = next.id;
        }
      const parts = await copies.sweep(new Date(clock.now() - DAY_MS), ending);
      return count.taken + count.removed + parts > 0 ? { ...count, parts } : undefined;
    },
  };
}
