import { createLoop, withTimeout } from '../../base/clock.ts';
import { mapConcurrently } from '../../base/concurrency.ts';
import { frozen } from '../../base/frozen.ts';
import type { Service } from '../../base/service.ts';
import type { Tools } from '../../base/tools.ts';
import { toCopiedDelivery } from '../../queue/copied-message.ts';
import type { CopyMark } from '../../queue/copy-marks.ts';
import type { Spool } from '../../queue/delivery.ts';
import { TAKEN_OVER } from '../../queue/states.ts';
import { StoreAway } from '../../store/driver/port.ts';
import type { Membership } from '../../store/membership.ts';
import { pagesByKey } from '../../store/pages.ts';
import { copyPartId } from '../../store/rows/copies.ts';
import type { Store } from '../../store/store.ts';
import type { CopyWriter } from './writer.ts';

interface ReconcilerSettings {
  /** Whether the store is a file of this host: there are no copies then. */
  readonly alone: boolean;
}

interface ReconcilerDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'copies' | 'copyParts'>;
  readonly spool: Pick<Spool, 'copies' | 'drop'>;
  readonly writer: CopyWriter;
  readonly member: Pick<Membership, 'id' | 'epoch' | 'isLive'>;
}

/** How often copies are reconciled with the queue. Milliseconds. */
const EVERY_MS = 1000;
const PAGE = 100;
/** How long a start waits for the first round. Milliseconds. */
const FIRST_MS = 5000;

const pagesOf = (read: (after: number, limit: number) => Promise<readonly CopyMark[]>) =>
  pagesByKey(0, ({ key }: CopyMark) => key, read, PAGE);

const hasEnded = ({ deliveries, isDamaged }: CopyMark): boolean => deliveries.length === 0 && !isDamaged;

/**
 * Reconciles the copies in the store with the queue: removes those of mail that has ended, updates those of mail with
 * some ended deliveries, and writes missing ones. Drops mail that another host has taken over.
 */
export function createCopyReconciler({ alone }: ReconcilerSettings, deps: ReconcilerDeps) {
  const { store, spool, writer, member, clock, log } = deps;

  async function reconcile(): Promise<void> {
    for await (const page of pagesOf(spool.copies.due)) {
      if (loop.isStopped()) return;
      const due = page.filter((mark) => !writer.isBusy(mark));
      await remove(due.filter(hasEnded));
      const open = due.filter((mark) => !hasEnded(mark));
      const missing = open.filter(({ state }) => state === 'missing');
      if ((await Promise.all(missing.map(write))).includes('away')) throw new StoreAway('copies wait for the store');
      await mapConcurrently(
        open.filter(({ state }) => state === 'changed'),
        refresh,
      );
    }
  }

  async function remove(marks: readonly CopyMark[]): Promise<void> {
    if (marks.length === 0) return;
    // Copies that another host has taken over are left to it.
    await store.copies.removeAll({ id: { in: marks.map(({ id }) => id) }, host: member.id() });
    const parts = marks.flatMap((mark) => Array.from({ length: mark.parts }, (_, at) => copyPartId(mark.id, at)));
    if (parts.length > 0) await store.copyParts.removeAll({ id: { in: parts } });
    writer.isBack();
    // It is removed again once no earlier write can follow.
    const gone = marks.filter((mark) => !writer.mayAppear(mark));
    if (gone.length > 0) await spool.copies.end(gone.map((mark) => ({ ...mark, has: false })));
  }

  const write = ({ messageId, deliveries: [first] }: CopyMark) =>
    messageId === null ? undefined : writer.copy(messageId, first?.size ?? 0);

  /** Writes the open deliveries of a message, and the present epoch, into its copy. */
  async function refresh(mark: CopyMark): Promise<void> {
    const epoch = member.epoch();
    // What is damaged is restored from the copy (sending/adoption.ts).
    const deliveries = !mark.isDamaged && { deliveries: mark.deliveries.map(toCopiedDelivery) };
    if (await store.copies.change({ id: mark.id, host: member.id() }, { epoch, ...deliveries }))
      return spool.copies.end([{ ...mark, epoch, has: true }]);
    const other = await store.copies.one({ id: mark.id });
    // No other host can have removed it in the same epoch: the store was restored.
    if (!other && mark.epoch === epoch) await write(mark);
    else if (other?.host !== member.id()) await drop(mark);
  }

  /** Another host has it, or has delivered it. */
  async function drop(mark: CopyMark): Promise<void> {
    await spool.drop({ ids: mark.deliveries.map(({ id }) => id) }, clock.now(), undefined, TAKEN_OVER);
    await spool.copies.end([{ ...mark, has: false }]);
  }

  /** Reconciles the copies of earlier epochs: those that no host has taken over are kept. */
  async function reconcileEarlierEpochs(): Promise<void> {
    const earlier = (after: number, limit: number) => spool.copies.before(member.epoch(), after, limit);
    for await (const marks of pagesOf(earlier)) {
      if (!member.isLive() || loop.isStopped()) return;
      await remove(marks.filter(hasEnded));
      await mapConcurrently(
        marks.filter((mark) => !hasEnded(mark)),
        refresh,
      );
    }
  }

  const loop = createLoop(clock, async () => {
    try {
      await reconcileEarlierEpochs();
      await reconcile();
    } catch (error) {
      if (!(error instanceof StoreAway) && !loop.isStopped()) log.error('copy.fault', { error });
    }
    return EVERY_MS;
  });

  return frozen<Service>({
    async start() {
      if (alone) return;
      // Mail that another host has taken over is best dropped before it is posted.
      await withTimeout(clock, FIRST_MS, loop.start());
    },
    async stop() {
      await loop.stop();
      await writer.quiet();
    },
  });
}
