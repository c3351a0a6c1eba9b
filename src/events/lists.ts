import { type Clock, toTimestamp } from '../base/clock.ts';
import { createKeyedMutex, type KeyedMutex } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { canonicalAddress } from '../mail/addresses/address.ts';
import {
  activeEntry,
  isExpired,
  isFromEvents,
  newListing,
  type RejectReason,
  renewedEntry,
} from '../mail/suppression.ts';
import { createSteadiness } from '../queue/purge.ts';
import { type Collection, filterOf, type Row } from '../store/driver/port.ts';
import { type RejectRow, rejectId, type WhitelistRow, whitelistId } from '../store/rows/lists.ts';
import type { Carrier, UnsentEvent } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { Outbox } from './apply.ts';

/** The rejection list and the whitelist; every change makes a sync event. */
export type Lists = ReturnType<typeof createLists>;

export interface NewReject {
  readonly account: string;
  /** In any letter case. */
  readonly email: string;
  /** '' for the whole account. */
  readonly subaccount: string;
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly at: Date;
  /** The event that caused it; repeating the same event renews the entry once. */
  readonly eventId?: string;
}

interface ListsDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'rejects' | 'whitelists'>;
  readonly outbox: Outbox;
  readonly ids: Pick<Ids, 'message'>;
}

/** Rows removed concurrently. */
const AT_ONCE = 100;
/** Overruled event entries that a whitelist row remembers; each costs a little reputation, this many all of it. */
const MAX_OVERRULED = 100;

/**
 * The rejection list and the whitelist. A change and its sync event are one write; then the event goes to the outbox
 * and is removed from the row. Callers need not care whether that succeeds: a sweep finds events still in their rows.
 *
 * If an address is on both lists, the whitelist wins: `reject` checks the whitelist before and after its change, and
 * `whitelist` removes rejects after its own.
 */
export function createLists(deps: ListsDeps) {
  const { store } = deps;
  const rejects = listRows(store.rejects);
  const whitelists = listRows(store.whitelists);
  // Serializes changes of the same row; if the store is unavailable, all waiting callers fail together.
  const inTurn = createKeyedMutex('fail');
  const announce = createAnnouncer(deps, inTurn);
  const change: typeof changeEntry = (rows, id, decide) => inTurn(id, () => changeEntry(rows, id, decide));
  const isWhitelisted = async (account: string, email: string) =>
    (await whitelists.one(whitelistId(account, email)))?.removed === false;

  async function unreject(account: string, email: string, subaccount: string): Promise<RejectRow | undefined> {
    const changed = await change(
      rejects,
      rejectId(account, email, subaccount),
      (live) => live && removal(live, blacklistEvent('remove', live, deps), deps),
    );
    await announce(rejects, changed);
    return changed.before;
  }

  /**
   * Removes all entries of an address or of a subaccount. Returns the lists from which event entries were removed: ''
   * for the whole account's, else the subaccount.
   */
  async function unrejectAll(
    of: Pick<RejectRow, 'account'> & (Pick<RejectRow, 'email'> | Pick<RejectRow, 'subaccount'>),
  ): Promise<readonly string[]> {
    const overruled: string[] = [];
    // Each half of the index in turn.
    for (const expired of [false, true]) {
      for (let more = true; more; ) {
        const found = await store.rejects.many({ ...of, expired, removed: false }, { limit: AT_ONCE });
        const rows = await Promise.all(found.map(({ email, subaccount }) => unreject(of.account, email, subaccount)));
        overruled.push(...rows.flatMap((row) => (row && isFromEvents(row) ? [row.subaccount] : [])));
        more = found.length === AT_ONCE;
      }
    }
    return overruled;
  }

  /** Adds or renews an entry. `whitelisted`: no entry is made. An event never replaces a manual entry. */
  async function reject(entry: NewReject): Promise<'added' | 'renewed' | 'whitelisted' | 'kept'> {
    const email = canonicalAddress(entry.email);
    if (email === undefined) return 'kept'; // not a deliverable address
    if (await isWhitelisted(entry.account, email)) return 'whitelisted';
    const changed = await change(rejects, rejectId(entry.account, email, entry.subaccount), (live) =>
      listed({ ...entry, email }, live, deps),
    );
    await announce(rejects, changed);
    if (await isWhitelisted(entry.account, email)) {
      await unreject(entry.account, email, entry.subaccount);
      return 'whitelisted';
    }
    if (!changed.after) return 'kept';
    return changed.before ? 'renewed' : 'added';
  }

  return frozen({
    reject,
    unrejectAll,
    /** Returns the removed entry. */
    async unreject(account: string, text: string, subaccount: string) {
      const email = canonicalAddress(text);
      return email === undefined ? undefined : unreject(account, email, subaccount);
    },
    /** Adds to the whitelist and removes all rejects of the address, also of subaccounts. False: it was in it. */
    async whitelist(account: string, text: string, detail: string | null) {
      const email = canonicalAddress(text);
      if (email === undefined) return false;
      const changed = await change(whitelists, whitelistId(account, email), (live) =>
        whitelisted({ account, email, detail }, live, deps),
      );
      await announce(whitelists, changed);
      const overruled = await unrejectAll({ account, email });
      if (overruled.length > 0) {
        await change(whitelists, whitelistId(account, email), (live) => live && overruling(live, overruled, deps));
      }
      return changed.before === undefined;
    },
    async unwhitelist(account: string, text: string) {
      const email = canonicalAddress(text);
      if (email === undefined) return undefined;
      const changed = await change(
        whitelists,
        whitelistId(account, email),
        (live) => live && removal(live, whitelistEvent('remove', live, deps), deps),
      );
      await announce(whitelists, changed);
      return changed.before;
    },
    /** The entry that suppresses mail to an address now, of the subaccount or account; none if it is whitelisted. */
    async suppression(account: string, text: string, subaccount: string | null, now: Date) {
      const email = canonicalAddress(text);
      if (email === undefined) return undefined;
      const ids = [...new Set(['', subaccount ?? ''])].map((of) => rejectId(account, email, of));
      const entries = await store.rejects.many({ id: { in: ids }, removed: false }, { sort: 'id' });
      return entries.length === 0 ? undefined : activeEntry(entries, await isWhitelisted(account, email), now);
    },
  });
}

/** Common to every step: no events but its own, waiting since now. */
function kept({ clock }: SyncDeps) {
  return { removed: false, version: 0, unsent: null, unsentSince: new Date(clock.now()) };
}

function listed(entry: NewReject, live: RejectRow | undefined, deps: SyncDeps): Step<RejectRow> | undefined {
  const listing = live ? renewedEntry(live, entry) : newListing(entry);
  if (!listing) return undefined;
  const { account, email, subaccount } = entry;
  const row = { ...kept(deps), id: rejectId(account, email, subaccount), account, email, subaccount, ...listing };
  return { row, event: blacklistEvent(live ? 'change' : 'add', row, deps) };
}

/** Whitelisting again may change the comment; there is no sync event for that. */
function whitelisted(
  { account, email, detail }: Pick<WhitelistRow, 'account' | 'email' | 'detail'>,
  live: WhitelistRow | undefined,
  deps: SyncDeps,
): Step<WhitelistRow> | undefined {
  if (live) return detail === null || detail === live.detail ? undefined : { row: { ...live, ...kept(deps), detail } };
  const createdAt = new Date(deps.clock.now());
  const row = { ...kept(deps), id: whitelistId(account, email), account, email, detail, createdAt };
  return { row, event: whitelistEvent('add', row, deps) };
}

function overruling(live: WhitelistRow, more: readonly string[], deps: SyncDeps): Step<WhitelistRow> {
  return { row: { ...live, ...kept(deps), overruled: [...(live.overruled ?? []), ...more].slice(-MAX_OVERRULED) } };
}

function removal<R extends ListRow>(live: R, event: UnsentEvent, deps: SyncDeps): Step<R> {
  return { row: { ...live, ...kept(deps), removed: true }, event };
}

function createAnnouncer({ outbox, log }: Pick<ListsDeps, 'outbox' | 'log'>, inTurn: KeyedMutex) {
  return async <R extends ListRow>(rows: ListRows<R>, { after, event }: EntryChange<R>): Promise<void> => {
    if (!after || !event) return;
    try {
      await outbox.publish(after.account, [event]);
      await inTurn(after.id, () => forgetEvents(rows, after.id, new Set([event.id])));
    } catch (error) {
      log.warn('event.unsent', { account: after.account, kind: event.event, error });
    }
  };
}

/** A collection of such rows. Rows are replaced and removed only if their version is unchanged. */
type ListRows<R extends ListRow> = ReturnType<typeof listRows<R>>;

function listRows<R extends ListRow>(rows: Collection<R>) {
  return {
    one: (id: string) => rows.one(filterOf<ListRow, R>({ id })),
    insert: (row: R) => rows.insert(row),
    replace: ({ id, ...row }: R, version: number) => rows.change(filterOf<ListRow, R>({ id, version }), row),
    remove: (id: string, version: number) => rows.remove(filterOf<ListRow, R>({ id, version })),
  };
}

// Sync events: the payloads of Mandrill's `blacklist` and `whitelist` webhooks, with its order of keys.

interface SyncDeps {
  readonly clock: Pick<Clock, 'now'>;
  readonly ids: Pick<Ids, 'message'>;
}

/** A rejection list entry in a sync event: there the sender is an address, not a record. */
export function toSyncReject(row: Omit<RejectRow, 'id' | 'account'>, now: Date) {
  return {
    reason: row.reason,
    detail: row.detail,
    last_event_at: toTimestamp(row.lastEventAt),
    email: row.email,
    created_at: toTimestamp(row.createdAt),
    expires_at: row.expiresAt === null ? null : toTimestamp(row.expiresAt),
    expired: isExpired(row, now),
    subaccount: row.subaccount === '' ? null : row.subaccount,
    sender: row.sender,
  };
}

/** The sync event of a rejection list change. `change`: an existing entry was renewed or replaced. */
function blacklistEvent(action: 'add' | 'change' | 'remove', row: RejectRow, { clock, ids }: SyncDeps): UnsentEvent {
  const at = clock.now();
  const body = { type: 'blacklist', action, reject: toSyncReject(row, new Date(at)), ts: Math.floor(at / 1000) };
  return { id: ids.message(), event: 'blacklist', at, body: JSON.stringify(body) };
}

/** The sync event of a whitelist change. */
function whitelistEvent(action: 'add' | 'remove', row: WhitelistRow, { clock, ids }: SyncDeps): UnsentEvent {
  const at = clock.now();
  const entry = { email: row.email, detail: row.detail, created_at: toTimestamp(row.createdAt) };
  const body = { type: 'whitelist', action, entry, ts: Math.floor(at / 1000) };
  return { id: ids.message(), event: 'whitelist', at, body: JSON.stringify(body) };
}

/** A row of either list. */
interface ListRow extends Row, Carrier {
  readonly account: string;
  readonly removed: boolean;
  readonly version: number;
}

/** The new row of an entry; its sync event goes into the same write. */
interface Step<R extends ListRow> {
  readonly row: R;
  readonly event?: UnsentEvent;
}

/** An entry before and after; `after` is undefined if nothing was changed. */
interface EntryChange<R extends ListRow> {
  readonly before: R | undefined;
  readonly after: R | undefined;
  /** This change's event only; others in the row belong to their own callers, and to the sweep. */
  readonly event: UnsentEvent | undefined;
}

/** A round is lost only to a successful writer: many concurrent callers need many, but more than this is our fault. */
const MAX_ROUNDS = 10_000;

/**
 * Changes an entry as `decide` says, in one write with its event. If another writer changes it meanwhile, `decide` is
 * called again. An entry marked as removed counts as absent.
 */
async function changeEntry<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  decide: (live: R | undefined) => Step<R> | undefined,
): Promise<EntryChange<R>> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const found = await rows.one(id);
    const before = found?.removed ? undefined : found;
    const step = decide(before);
    if (!step) return { before, after: undefined, event: undefined };
    const row = withEvent(step, found);
    const after = found
      ? await rows.replace(row, found.version)
      : (await rows.insert(row)) === 'inserted'
        ? row
        : undefined;
    if (after) return { before, after, event: step.event };
  }
  throw new Error(`the list entry could not be changed in ${MAX_ROUNDS} attempts`);
}

/** Unsent events stay in the row, in order. */
function withEvent<R extends ListRow>({ row, event }: Step<R>, found: R | undefined): R {
  const unsent = [...(found?.unsent ?? []), ...(event ? [event] : [])];
  const version = (found?.version ?? 0) + 1;
  if (unsent.length === 0) return { ...row, version, unsent: null, unsentSince: null };
  return { ...row, version, unsent, unsentSince: found?.unsentSince ?? row.unsentSince };
}

/** Removes events that are on the spool from their row, and a removed entry's row with its last event. */
async function forgetEvents<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  sent: ReadonlySet<string>,
): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const row = await rows.one(id);
    if (!row?.unsent) return;
    const unsent = row.unsent.filter((event) => !sent.has(event.id));
    if (unsent.length === row.unsent.length) return;
    if (unsent.length === 0 && row.removed) {
      if (await rows.remove(id, row.version)) return;
      continue;
    }
    const rest = unsent.length === 0 ? { unsent: null, unsentSince: null } : { unsent };
    if (await rows.replace({ ...row, ...rest, version: row.version + 1 }, row.version)) return;
  }
}

/** Entries marked concurrently. */
const REJECTS_A_STEP = 50;

/**
 * Marks expired entries of the rejection list. Readers check the time too, so this need not be prompt; the mark keeps
 * expired entries out of the index that the list uses.
 */
export function expireRejectsTask({
  store: { rejects },
  clock,
  time,
}: {
  store: Pick<Store, 'rejects'>;
  clock: Clock;
  time: Pick<RunningTime, 'believed'>;
}): Task {
  const isSteady = createSteadiness(clock, time);
  return {
    async run(ending) {
      // The mark would remain after the clock is corrected, and an address that bounced would be mailed again.
      if (!isSteady()) return undefined;
      let expired = 0;
      while (!ending?.aborted) {
        const now = new Date(clock.now());
        const due = await rejects.many(
          { expired: false, expiresAt: { range: { lte: now } } },
          { sort: 'expiresAt', limit: REJECTS_A_STEP },
        );
        // An entry renewed since it was read has another version and is no longer due.
        const marked = await Promise.all(
          due.map(({ id, version }) =>
            rejects.change({ id, version, expired: false }, { expired: true, version: version + 1 }),
          ),
        );
        expired += marked.filter((row) => row !== undefined).length;
        if (due.length < REJECTS_A_STEP) break;
      }
      return expired > 0 ? { expired } : undefined;
    },
  };
}
