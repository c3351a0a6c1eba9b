import { createExpiringCache } from '../../base/cache.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import { contentParts, toCopiedDelivery } from '../../queue/copied-message.ts';
import type { CopyEnd, CopyMark } from '../../queue/copy-marks.ts';
import type { Spool } from '../../queue/delivery.ts';
import { type InsertOutcome, StoreAway } from '../../store/driver/port.ts';
import type { Membership } from '../../store/membership.ts';
import { type CopyRow, copyPartId } from '../../store/rows/copies.ts';
import type { Store } from '../../store/store.ts';

interface CopyWriterDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'copies' | 'copyParts'>;
  readonly spool: Pick<Spool, 'message' | 'copies'>;
  readonly member: Pick<Membership, 'id' | 'epoch'>;
}

/**
 * copied: the store has it, or it has ended meanwhile · away: the store is away, and may have it or not · refused: the
 * store rejects it, or the queue cannot be read.
 */
export type CopyOutcome = 'copied' | 'away' | 'refused';

/** A message that waits for its copy. */
interface Job {
  readonly messageId: string;
  readonly bytes: number;
  readonly done: (outcome: CopyOutcome) => void;
}

/** The most that is written with one command, and the commands at one time. */
const MAX_ROWS = 200;
const MAX_BYTES = 4 * 1024 * 1024;
const AT_ONCE = 2;
/** Up to this size a message is in the row itself. No claim rewrites it, unlike that of outgoing mail. */
const INLINE_BYTES = 1024 * 1024;
/** A number of changes that no mark has: the copy is due, and the deliveries are written into it. */
const UNKNOWN = -1;
/** For how long the store may still carry out a write whose result is unknown. Milliseconds. */
const LATE_WRITE_MS = 60_000;
/** Unknown results that are remembered. A write that failed because the store is known to be away was not sent. */
const UNSURE = 10_000;

/** Writes copies of accepted messages, together with all others that wait. */
export type CopyWriter = ReturnType<typeof createCopyWriter>;

export function createCopyWriter({ store, spool, member, clock, log }: CopyWriterDeps) {
  const waiting: Job[] = [];
  /** Messages whose copies are being written. */
  const busy = new Set<string>();
  /** Copies whose result is unknown, by their id. */
  const unsure = createExpiringCache<true>({ most: UNSURE }, clock);
  const startedAt = clock.monotonic();
  let running = 0;
  let isAway = false;
  let noting = Promise.resolve();

  /** The next messages for one command: the first, however large, and others that fit beside it. */
  function nextJobs(): readonly Job[] {
    let bytes = 0;
    const end = waiting.findIndex((job, at) => at >= MAX_ROWS || ((bytes += job.bytes) > MAX_BYTES && at > 0));
    return waiting.splice(0, end === -1 ? waiting.length : end);
  }

  function pump(): void {
    while (running < AT_ONCE && waiting.length > 0) {
      running++;
      void run(nextJobs()).finally(() => {
        running--;
        pump();
      });
    }
  }

  async function run(jobs: readonly Job[]): Promise<void> {
    const outcomes = await writeNew(jobs).catch((error: unknown) => {
      log.error('copy.fault', { messages: jobs.length, error });
      return new Map<string, CopyOutcome>();
    });
    for (const { messageId, done } of jobs) {
      busy.delete(messageId);
      done(outcomes.get(messageId) ?? 'refused');
    }
  }

  async function writeNew(jobs: readonly Job[]): Promise<ReadonlyMap<string, CopyOutcome>> {
    const epoch = member.epoch();
    const marks = await spool.copies.start(jobs.map(({ messageId }) => ({ messageId, id: messageId, epoch })));
    return write(marks);
  }

  /** Writes the copies of messages that are marked. */
  async function write(marks: readonly CopyMark[]): Promise<ReadonlyMap<string, CopyOutcome>> {
    const epoch = member.epoch();
    const outcomes = new Map<string, CopyOutcome>();
    const rows: { readonly mark: CopyMark; readonly row: CopyRow }[] = [];
    try {
      for (const mark of marks) {
        if (mark.messageId === null) continue;
        const row = mark.deliveries.length > 0 ? await toRow(mark, mark.messageId, epoch) : undefined;
        outcomes.set(mark.messageId, mark.deliveries.length === 0 ? 'copied' : 'refused');
        if (row) rows.push({ mark, row });
      }
      const results = rows.length > 0 ? await insert(rows.map(({ row }) => row)) : [];
      if (rows.length > 0) isAway = false;
      const ends = rows.flatMap(({ mark, row }, at): CopyEnd[] => {
        const isThere = results[at] !== 'refused';
        // Written before, by this host: it does not know what has changed since, and another may have taken it over.
        const before = results[at] === 'duplicate' && { epoch: mark.epoch, changes: UNKNOWN };
        if (!isThere) log.error('copy.fault', { message: row.message, reason: 'the store refused it' });
        outcomes.set(row.message, isThere ? 'copied' : 'refused');
        unsure.delete(row.id);
        return isThere ? [{ key: mark.key, changes: mark.changes, parts: row.parts, epoch, has: true, ...before }] : [];
      });
      if (ends.length > 0) note(ends);
    } catch (error) {
      if (!(error instanceof StoreAway)) throw error;
      isAway = true;
      for (const { id, messageId } of marks) {
        unsure.set(id, true, LATE_WRITE_MS);
        if (messageId !== null) outcomes.set(messageId, 'away');
      }
    }
    return outcomes;
  }

  /** No reply waits for it: a copy that is not noted is written again, with the same id. */
  function note(ends: readonly CopyEnd[]): void {
    const mine = spool.copies.end(ends).catch((error: unknown) => log.error('spool.fault', { error }));
    noting = Promise.all([noting, mine]).then(() => undefined);
  }

  /** An unknown result is resolved by writing again: a row that was written is a duplicate then. Throws `StoreAway`. */
  async function insert(rows: readonly CopyRow[]): Promise<readonly InsertOutcome[]> {
    try {
      return await store.copies.insertAll(rows);
    } catch (error) {
      if (!(error instanceof StoreAway)) throw error;
      return store.copies.insertAll(rows);
    }
  }

  /** Makes the row of a message, after the rows of its parts. Undefined if the message cannot be read. */
  async function toRow(mark: CopyMark, messageId: string, epoch: number): Promise<CopyRow | undefined> {
    const found = await spool.message(messageId);
    if (!found) return undefined;
    const { id, receivedAt, envelope, trace, verdicts, scan } = found.message;
    const message = { id, receivedAt, envelope, trace, ...(verdicts && { verdicts }), ...(scan && { scan }) };
    const createdAt = new Date(clock.now());
    const isInline = (found.body.kind === 'file' ? found.body.size : found.body.bytes.length) <= INLINE_BYTES;
    let content = '';
    let parts = 0;
    for await (const text of contentParts(message, found.body))
      if (isInline) content += text;
      else {
        const part = { id: copyPartId(mark.id, parts++), message: mark.id, text, createdAt };
        await store.copyParts.insert(part);
      }
    return {
      id: mark.id,
      kind: 'inbound',
      message: mark.id,
      host: member.id(),
      epoch,
      state: null,
      result: null,
      deliveries: mark.deliveries.map(toCopiedDelivery),
      content: isInline ? content : null,
      parts,
      createdAt,
    };
  }

  return frozen({
    /** Writes the copy of a message that is on the queue. Never throws. */
    copy(messageId: string, bytes: number): Promise<CopyOutcome> {
      const { promise, resolve } = Promise.withResolvers<CopyOutcome>();
      busy.add(messageId);
      // Base64, and the fields beside the body.
      waiting.push({ messageId, bytes: bytes * (4 / 3) + 1024, done: resolve });
      pump();
      return promise;
    },
    isBusy: ({ messageId }: CopyMark): boolean => messageId !== null && busy.has(messageId),
    /** Whether a write may still be carried out whose result is unknown. */
    mayAppear({ id, state }: CopyMark): boolean {
      // An earlier process may have sent it.
      const isYoung = clock.monotonic() - startedAt < LATE_WRITE_MS;
      return unsure.get(id) !== undefined || (state === 'missing' && isYoung);
    },
    /** Whether the last write failed because the store is away. */
    isAway: (): boolean => isAway,
    /** Resolves when all writes are noted. */
    quiet: () => noting,
    /** The store has answered. */
    isBack(): void {
      isAway = false;
    },
  });
}
