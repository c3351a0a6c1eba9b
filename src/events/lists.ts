import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { isOfEvents, listedAddress, newListing, renewed, suppressing } from '../mail/suppression.ts';
import { type RejectRow, rejectId } from '../store/rejects.ts';
import type { Store } from '../store/store.ts';
import { type WhitelistRow, whitelistId } from '../store/whitelists.ts';
import { blacklistEvent, whitelistEvent } from './list-events.ts';
import {
  type Changed,
  changeEntry,
  createTurns,
  forgetEvents,
  type InTurn,
  type ListRow,
  type ListRows,
  type Step,
} from './list-rows.ts';
import type { Lists, NewReject, Outbox } from './types.ts';

export interface ListsDeps {
  readonly store: Pick<Store, 'rejects' | 'whitelists'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'message'>;
  readonly log: Log;
}

/** Rows that are taken off side by side. */
const AT_ONCE = 100;
/** Entries of events that a whitelisted address remembers; each costs a little reputation in the end, and these cost all of it. */
const MOST_OVERRULED = 100;

/**
 * Rejects and whitelist. A change and its sync event are one write; then the event goes to the outbox, and out of the row. Whether
 * that works does not matter to the caller: a sweep finds the events that are still in their rows.
 *
 * Of an address that is listed and whitelisted at once the whitelist wins, whoever comes first: who lists it looks at the whitelist
 * before and after, and who whitelists it takes it off afterwards.
 */
export function createLists(deps: ListsDeps): Lists {
  const { store } = deps;
  const rejects = rejectRows(store.rejects);
  const whitelists = whitelistRows(store.whitelists);
  const inTurn = createTurns();
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

  return Object.freeze({
    reject,
    async unreject(account: string, text: string, subaccount: string) {
      const email = listedAddress(text);
      return email === undefined ? undefined : unreject(account, email, subaccount);
    },
    async whitelist(account: string, text: string, detail: string | null) {
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
    async unwhitelist(account: string, text: string) {
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
    async suppression(account: string, text: string, subaccount: string | null, now: Date) {
      const email = listedAddress(text);
      if (email === undefined) return undefined;
      const ids = [...new Set(['', subaccount ?? ''])].map((of) => rejectId(account, email, of));
      const entries = await store.rejects.many({ id: { in: ids }, removed: false }, { sort: 'id' });
      return entries.length === 0 ? undefined : suppressing(entries, await isWhitelisted(account, email), now);
    },
  });
}

type Making = Pick<ListsDeps, 'clock' | 'ids'>;

/** What is the same for every new step: no events but its own, waiting since now. */
function kept({ clock }: Making) {
  return { removed: false, version: 0, unsent: null, unsentSince: new Date(clock.now()) };
}

function listed(entry: NewReject, live: RejectRow | undefined, deps: Making): Step<RejectRow> | undefined {
  const listing = live ? renewed(live, entry) : newListing(entry);
  if (!listing) return undefined;
  const { account, email, subaccount } = entry;
  const row = { ...kept(deps), id: rejectId(account, email, subaccount), account, email, subaccount, ...listing };
  return { row, event: blacklistEvent(live ? 'change' : 'add', row, deps) };
}

function takenOff(live: RejectRow, deps: Making): Step<RejectRow> {
  return { row: { ...live, ...kept(deps), removed: true }, event: blacklistEvent('remove', live, deps) };
}

/** Whitelisting again may change the comment, which no sync event tells of. */
function whitelisted(
  { account, email, detail }: Pick<WhitelistRow, 'account' | 'email' | 'detail'>,
  live: WhitelistRow | undefined,
  deps: Making,
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

function overruling(live: WhitelistRow, more: readonly string[], deps: Making): Step<WhitelistRow> {
  return { row: { ...live, ...kept(deps), overruled: [...(live.overruled ?? []), ...more].slice(-MOST_OVERRULED) } };
}

function takenOffWhitelist(live: WhitelistRow, deps: Making): Step<WhitelistRow> {
  return { row: { ...live, ...kept(deps), removed: true }, event: whitelistEvent('remove', live, deps) };
}

function createAnnouncer({ outbox, log }: Pick<ListsDeps, 'outbox' | 'log'>, inTurn: InTurn) {
  return async <R extends ListRow>(rows: ListRows<R>, { after, event }: Changed<R>): Promise<void> => {
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
