import { type Clock, toTimestamp } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { createTurns, type Turns } from '../base/turns.ts';
import { listedAddress } from '../mail/address.ts';
import { isExpired, isOfEvents, newListing, renewed, suppressing } from '../mail/suppression.ts';
import { createSteadiness } from '../queue/purge.ts';
import type { Row } from '../store/driver/port.ts';
import { type Reason, type RejectRow, rejectId, type WhitelistRow, whitelistId } from '../store/rows/lists.ts';
import type { Carrier } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { Outbox } from './apply.ts';

/** Rejects and whitelist: every change of them, by whoever, with its sync event. */
export interface Lists {
  /** `whitelisted`: no entry is made. A manual entry is not replaced by an event's. */
  reject(entry: NewReject): Promise<'added' | 'renewed' | 'whitelisted' | 'kept'>;
  /** Answers the entry as it was. */
  unreject(account: string, email: string, subaccount: string): Promise<RejectRow | undefined>;
  /** Takes rejects of the address off as well, those of subaccounts too. False: it was there already. */
  whitelist(account: string, email: string, detail: string | null): Promise<boolean>;
  unwhitelist(account: string, email: string): Promise<WhitelistRow | undefined>;
  /**
   * Why an address must not be mailed now: the entry of the subaccount or of the whole account; a whitelisted address
   * has none.
   */
  suppression(account: string, email: string, subaccount: string | null, now: Date): Promise<RejectRow | undefined>;
}

/** What puts an address on the rejection list. */
export interface NewReject {
  readonly account: string;
  /** In any case. */
  readonly email: string;
  /** '' for the whole account. */
  readonly subaccount: string;
  readonly reason: Reason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly at: Date;
  /** Of the event that brought it about: the same one twice renews once. */
  readonly eventId?: string;
}

interface ListsDeps {
  readonly store: Pick<Store, 'rejects' | 'whitelists'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'message'>;
  readonly log: Log;
}

/** Rows that are taken off side by side. */
const AT_ONCE = 100;
/**
 * Entries of events that a whitelisted address remembers; each costs a little reputation in the end, and these cost all
 * of it.
 */
const MOST_OVERRULED = 100;

/**
 * Rejects and whitelist. A change and its sync event are one write; then the event goes to the outbox, and out of the
 * row. Whether that works does not matter to the caller: a sweep finds the events that are still in their rows.
 *
 * Of an address that is listed and whitelisted at once the whitelist wins, whoever comes first: who lists it looks at
 * the whitelist before and after, and who whitelists it takes it off afterwards.
 */
export function createLists(deps: ListsDeps): Lists {
  const { store } = deps;
  const rejects = rejectRows(store.rejects);
  const whitelists = whitelistRows(store.whitelists);
  // Callers that want the same row go one after the other; a store that is away fails all of them at once.
  const inTurn = createTurns('fail');
  const announce = createAnnouncer(deps, inTurn);
  const change: typeof changeEntry = (rows, id, decide) => inTurn(id, () => changeEntry(rows, id, decide));
  const isWhitelisted = async (account: string, email: string) =>
    (await whitelists.one(whitelistId(account, email)))?.removed === false;

  async function unreject(account: string, email: string, subaccount: string): Promise<RejectRow | undefined> {
    const changed = await change(rejects, rejectId(account, email, subaccount), (live) => live && takenOff(live, deps));
    await announce(rejects, changed);
    return changed.before;
  }

  /** Answers the lists that entries of events were taken off: '' for that of the whole account, else the subaccount. */
  async function unrejectAll(account: string, email: string): Promise<readonly string[]> {
    const overruled: string[] = [];
    for (const expired of [false, true]) {
      for (let more = true; more; ) {
        const found = await store.rejects.many({ account, expired, email, removed: false }, { limit: AT_ONCE });
        const rows = await Promise.all(found.map(({ subaccount }) => unreject(account, email, subaccount)));
        overruled.push(...rows.flatMap((row) => (row && isOfEvents(row) ? [row.subaccount] : [])));
        more = found.length === AT_ONCE;
      }
    }
    return overruled;
  }

  async function reject(entry: NewReject): ReturnType<Lists['reject']> {
    const email = listedAddress(entry.email);
    if (email === undefined) return 'kept'; // nothing can be mailed there
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
    async unreject(account, text, subaccount) {
      const email = listedAddress(text);
      return email === undefined ? undefined : unreject(account, email, subaccount);
    },
    async whitelist(account, text, detail) {
      const email = listedAddress(text);
      if (email === undefined) return false;
      const changed = await change(whitelists, whitelistId(account, email), (live) =>
        whitelisted({ account, email, detail }, live, deps),
      );
      await announce(whitelists, changed);
      const overruled = await unrejectAll(account, email);
      if (overruled.length > 0) {
        await change(whitelists, whitelistId(account, email), (live) => live && overruling(live, overruled, deps));
      }
      return changed.before === undefined;
    },
    async unwhitelist(account, text) {
      const email = listedAddress(text);
      if (email === undefined) return undefined;
      const changed = await change(
        whitelists,
        whitelistId(account, email),
        (live) => live && takenOffWhitelist(live, deps),
      );
      await announce(whitelists, changed);
      return changed.before;
    },
    async suppression(account, text, subaccount, now) {
      const email = listedAddress(text);
      if (email === undefined) return undefined;
      const ids = [...new Set(['', subaccount ?? ''])].map((of) => rejectId(account, email, of));
      const entries = await store.rejects.many({ id: { in: ids }, removed: false }, { sort: 'id' });
      return entries.length === 0 ? undefined : suppressing(entries, await isWhitelisted(account, email), now);
    },
  });
}

/** What is the same for every new step: no events but its own, waiting since now. */
function kept({ clock }: SyncDeps) {
  return { removed: false, version: 0, unsent: null, unsentSince: new Date(clock.now()) };
}

function listed(entry: NewReject, live: RejectRow | undefined, deps: SyncDeps): Step<RejectRow> | undefined {
  const listing = live ? renewed(live, entry) : newListing(entry);
  if (!listing) return undefined;
  const { account, email, subaccount } = entry;
  const row = { ...kept(deps), id: rejectId(account, email, subaccount), account, email, subaccount, ...listing };
  return { row, event: blacklistEvent(live ? 'change' : 'add', row, deps) };
}

function takenOff(live: RejectRow, deps: SyncDeps): Step<RejectRow> {
  return { row: { ...live, ...kept(deps), removed: true }, event: blacklistEvent('remove', live, deps) };
}

/** Whitelisting again may change the comment, which no sync event tells of. */
function whitelisted(
  { account, email, detail }: Pick<WhitelistRow, 'account' | 'email' | 'detail'>,
  live: WhitelistRow | undefined,
  deps: SyncDeps,
): Step<WhitelistRow> | undefined {
  if (live) return detail === null || detail === live.detail ? undefined : { row: { ...live, ...kept(deps), detail } };
  const row = {
    ...kept(deps),
    id: whitelistId(account, email),
    account,
    email,
    detail,
    createdAt: new Date(deps.clock.now()),
  };
  return { row, event: whitelistEvent('add', row, deps) };
}

function overruling(live: WhitelistRow, more: readonly string[], deps: SyncDeps): Step<WhitelistRow> {
  return { row: { ...live, ...kept(deps), overruled: [...(live.overruled ?? []), ...more].slice(-MOST_OVERRULED) } };
}

function takenOffWhitelist(live: WhitelistRow, deps: SyncDeps): Step<WhitelistRow> {
  return { row: { ...live, ...kept(deps), removed: true }, event: whitelistEvent('remove', live, deps) };
}

function createAnnouncer({ outbox, log }: Pick<ListsDeps, 'outbox' | 'log'>, inTurn: Turns) {
  return async <R extends ListRow>(rows: ListRows<R>, { after, event }: EntryChange<R>): Promise<void> => {
    if (!after || !event) return;
    try {
      await outbox.publish(after.account, [{ ...event, at: new Date(event.at) }]);
      await inTurn(after.id, () => forgetEvents(rows, after.id, new Set([event.id])));
    } catch (error) {
      log.warn('event.unsent', { account: after.account, kind: event.event, error });
    }
  };
}

function rejectRows(rejects: Store['rejects']): ListRows<RejectRow> {
  return {
    one: (id) => rejects.one({ id }),
    insert: (row) => rejects.insert(row),
    replace: ({ id, ...row }, version) => rejects.change({ id, version }, row),
    remove: (id, version) => rejects.remove({ id, version }),
  };
}

function whitelistRows(whitelists: Store['whitelists']): ListRows<WhitelistRow> {
  return {
    one: (id) => whitelists.one({ id }),
    insert: (row) => whitelists.insert(row),
    replace: ({ id, ...row }, version) => whitelists.change({ id, version }, row),
    remove: (id, version) => whitelists.remove({ id, version }),
  };
}

// Sync events: what consumers of the public ancestor's `blacklist` and `whitelist` webhooks read, in the order it wrote
// them.

interface SyncDeps {
  readonly clock: Pick<Clock, 'now'>;
  readonly ids: Pick<Ids, 'message'>;
}

/** An entry of the rejection list as a sync event shows it: the sender is an address there, not a record. */
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

/** A change of the rejection list. `change`: an entry that was there was renewed or replaced. */
function blacklistEvent(action: 'add' | 'change' | 'remove', row: RejectRow, { clock, ids }: SyncDeps): SyncEvent {
  const at = clock.now();
  const body = { type: 'blacklist', action, reject: toSyncReject(row, new Date(at)), ts: Math.floor(at / 1000) };
  return { id: ids.message(), event: 'blacklist', at, body: JSON.stringify(body) };
}

/** A change of the whitelist. */
function whitelistEvent(action: 'add' | 'remove', row: WhitelistRow, { clock, ids }: SyncDeps): SyncEvent {
  const at = clock.now();
  const entry = { email: row.email, detail: row.detail, created_at: toTimestamp(row.createdAt) };
  return {
    id: ids.message(),
    event: 'whitelist',
    at,
    body: JSON.stringify({ type: 'whitelist', action, entry, ts: Math.floor(at / 1000) }),
  };
}

/** A row of the rejection list or of the whitelist. */
interface ListRow extends Row, Carrier {
  readonly account: string;
  readonly removed: boolean;
  readonly version: number;
}

/** A collection of such rows. Rows are replaced and removed only in the version that was read. */
interface ListRows<R extends ListRow> {
  one(id: string): Promise<R | undefined>;
  insert(row: R): Promise<'inserted' | 'duplicate'>;
  replace(row: R, version: number): Promise<R | undefined>;
  remove(id: string, version: number): Promise<unknown>;
}

/** What a change makes of an entry; the sync event goes into the same write. */
interface Step<R extends ListRow> {
  readonly row: R;
  readonly event?: SyncEvent;
}

type SyncEvent = NonNullable<Carrier['unsent']>[number];

/** An entry before and after; `after` is undefined when nothing was changed. */
interface EntryChange<R extends ListRow> {
  readonly before: R | undefined;
  readonly after: R | undefined;
  /** That of this change; what else its row carries is for whoever put it there, and for the sweep. */
  readonly event: SyncEvent | undefined;
}

/**
 * Each round is lost only to somebody who won, so many callers at once need many; what needs more than this is a fault
 * of ours.
 */
const MOST_ROUNDS = 10_000;

/**
 * Changes the entry of an id as `decide` says, in one write together with its event, whoever else changes it meanwhile:
 * then `decide` is asked again. An entry that was taken off and whose row is still there counts as not there.
 */
async function changeEntry<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  decide: (live: R | undefined) => Step<R> | undefined,
): Promise<EntryChange<R>> {
  for (let round = 0; round < MOST_ROUNDS; round++) {
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
  throw new Error(`the list entry could not be changed in ${MOST_ROUNDS} rounds`);
}

/** Events that are still to be sent stay in the row, in their order. */
function withEvent<R extends ListRow>({ row, event }: Step<R>, found: R | undefined): R {
  const unsent = [...(found?.unsent ?? []), ...(event ? [event] : [])];
  const version = (found?.version ?? 0) + 1;
  if (unsent.length === 0) return { ...row, version, unsent: null, unsentSince: null };
  return { ...row, version, unsent, unsentSince: found?.unsentSince ?? row.unsentSince };
}

/** Takes events that the spool has out of their row; a row of an entry that was taken off goes with its last one. */
async function forgetEvents<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  sent: ReadonlySet<string>,
): Promise<void> {
  for (let round = 0; round < MOST_ROUNDS; round++) {
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

/** Entries that are marked side by side; then the next so many. */
const REJECTS_A_STEP = 50;

/**
 * Marks entries of the rejection list whose time is over. Nobody waits for it: who reads the list looks at the clock
 * too. The mark keeps expired entries out of the index that the list reads.
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
      // The mark stays when the clock is set right, and an address that bounced would be mailed again.
      if (!isSteady()) return undefined;
      let expired = 0;
      while (!ending?.aborted) {
        const now = new Date(clock.now());
        const due = await rejects.many(
          { expired: false, expiresAt: { range: { lte: now } } },
          { sort: 'expiresAt', limit: REJECTS_A_STEP },
        );
        // One that was renewed since it was read has another version, and is not due any more.
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
