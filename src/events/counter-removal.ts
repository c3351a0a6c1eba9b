import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { NO_COUNTS } from '../mail/stats.ts';
import { type CounterSubject, counterId, SPANS_OF, startOf } from '../store/rows/counters.ts';
import type { MessageTagRow, TagRemovalRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import type { Lists } from './lists.ts';

/** Removes counters, and tags from messages. */
export type CounterRemoval = ReturnType<typeof createCounterRemoval>;

interface CounterRemovalDeps {
  readonly store: Pick<Store, 'counters' | 'messages' | 'messageTags' | 'tagRemovals'>;
  readonly clock: Clock;
}

/** Rows changed concurrently, which share a disk sync. */
const AT_ONCE = 200;
/** Messages from which a call removes a tag before it returns; the task does the rest. */
const IN_CALL = 2000;

export function createCounterRemoval({ store, clock }: CounterRemovalDeps) {
  /** The total last: lists show it, so an interrupted call can be repeated. */
  async function removeCounters(account: string, kind: CounterSubject, key: string): Promise<void> {
    for (const span of SPANS_OF[kind]) {
      for (;;) {
        const rows = await store.counters.many({ account, kind, span, key }, { limit: AT_ONCE });
        await Promise.all(rows.map(({ id }) => store.counters.remove({ id })));
        if (rows.length < AT_ONCE) break;
      }
    }
  }

  async function removeFromMessage({ id, account, tag, message }: MessageTagRow): Promise<void> {
    for (;;) {
      const row = await store.messages.one({ id: message, account });
      if (!row?.tags.includes(tag)) break;
      const { version = 0, tags } = row;
      if (
        await store.messages.change(
          { id: message, version: row.version ?? null },
          { tags: tags.filter((other) => other !== tag), version: version + 1 },
        )
      )
        break;
    }
    await store.messageTags.remove({ id });
  }

  /**
   * Removes the tag from about `most` messages. 'more': there may be others, and the row stays for the next time ·
   * 'changed': another caller finished the removal, or the tag was deleted again.
   */
  async function proceed(
    { id, account, tag, before }: TagRemovalRow,
    most: number,
  ): Promise<'done' | 'more' | 'changed'> {
    for (let done = 0; done < most; ) {
      const rows = await store.messageTags.many(
        { account, tag, createdAt: { range: { lte: before } } },
        { sort: 'createdAt', limit: AT_ONCE },
      );
      await Promise.all(rows.map(removeFromMessage));
      done += rows.length;
      if (rows.length < AT_ONCE) return (await store.tagRemovals.remove({ id, before })) ? 'done' : 'changed';
    }
    return 'more';
  }

  return frozen({
    /** Deletes all counters of one subject. */
    removeCounters,
    /**
     * Deletes the counters of a tag and removes it from its messages; if there are very many, `finishRemovals` does the
     * rest.
     */
    async removeTag(account: string, tag: string) {
      const row = { id: `${account} ${tag}`, account, tag, before: new Date(clock.now()) };
      if ((await store.tagRemovals.insert(row)) === 'duplicate')
        await store.tagRemovals.change({ id: row.id }, { before: row.before });
      await removeCounters(account, 'tag', tag);
      await proceed(row, IN_CALL);
    },
    /** Continues interrupted removals; returns how many were completed. */
    async finishRemovals(ending?: AbortSignal) {
      let done = 0;
      for (const row of await store.tagRemovals.many({}, { sort: 'before', limit: AT_ONCE })) {
        let state: Awaited<ReturnType<typeof proceed>> = 'more';
        while (state === 'more' && !ending?.aborted) state = await proceed(row, AT_ONCE);
        if (state === 'done') done++;
      }
      return done;
    },
  });
}

interface SubaccountDeps {
  readonly lists: Pick<Lists, 'unrejectAll'>;
  readonly counterRemoval: Pick<CounterRemoval, 'removeCounters'>;
}

/** Deletes a subaccount's rejects and counters, not its row or its messages. Idempotent. */
export async function forgetSubaccount(
  { lists, counterRemoval }: SubaccountDeps,
  account: string,
  slug: string,
): Promise<void> {
  await lists.unrejectAll({ account, subaccount: slug });
  await counterRemoval.removeCounters(account, 'subaccount', slug);
}

/** Counts the removal of an event's entry from the rejection list, which costs a little reputation (mail/stats.ts). */
export async function countEntryRemoval(
  { store, clock }: { store: Pick<Store, 'counters'>; clock: Clock },
  account: string,
  subaccount: string,
): Promise<void> {
  const firstAt = new Date(clock.now());
  const start = startOf('month', firstAt);
  const things = [
    { kind: 'account', key: account } as const,
    ...(subaccount === '' ? [] : [{ kind: 'subaccount', key: subaccount } as const]),
  ];
  for (const { kind, key } of things) {
    await store.counters.add(
      counterId(account, kind, 'month', start, key),
      { resets: 1 },
      { account, kind, span: 'month', key, start, firstAt, ...NO_COUNTS },
    );
  }
}
