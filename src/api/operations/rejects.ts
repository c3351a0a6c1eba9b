import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { canonicalPrefix, toCanonicalAddress } from '../../mail/addresses/address.ts';
import { NO_COUNTS, REPUTATION_FORMULA } from '../../mail/stats.ts';
import { EXPIRY_RULES, isExpired, isFromEvents, REJECT_REASONS } from '../../mail/suppression.ts';
import { counterId, startOf } from '../../store/rows/counters.ts';
import type { RejectRow } from '../../store/rows/lists.ts';
import { subaccountId } from '../../store/rows/subaccounts.ts';
import type { AccountStore } from '../../store/store.ts';
import { type Call, operation } from '../operation.ts';
import { bool, emailAddress, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';
import { MAX_LIST, senderRecord, toSenderRecord, toStats } from './stats.ts';

// Parameters that rejects and whitelists share.

/** An address in the form in which the lists store and show it. */
export const listAddress = emailAddress.transform(toCanonicalAddress).describe('an email address; case is ignored');

/** A search for an address or the beginning of one. */
export const addressPrefix = optional(z.string().max(1000).transform(canonicalPrefix)).describe(
  'an address, or the beginning of one; case is ignored; all entries if omitted',
);

/** Clients send an empty text for no subaccount. */
const subaccountParam = optional(z.string().max(255)).describe(
  'id of a subaccount; the list of the whole account if omitted',
);

/** Returns the id of the subaccount that a call names, '' for none. Throws Unknown_Subaccount. */
async function findSubaccount(
  slug: string | undefined,
  { store, refuse }: Call<'Unknown_Subaccount'>,
): Promise<string> {
  if (slug === undefined || slug === '') return '';
  if (!(await store.subaccounts.one({ id: subaccountId(store.account, slug) })))
    throw refuse('Unknown_Subaccount', slug);
  return slug;
}

interface Search {
  /** '' for all addresses. */
  readonly prefix: string;
  readonly includeExpired: boolean;
  /** '' for the entries of the whole account and of all subaccounts. */
  readonly subaccount: string;
}

type Rejects = Pick<AccountStore, 'rejects'>;

/**
 * The first entries by address, at most MAX_LIST. The clock decides whether one has expired, because the task that
 * marks expired entries runs later.
 */
async function listRejects(store: Rejects, search: Search, now: Date): Promise<RejectRow[]> {
  if (!search.includeExpired) return unexpired(store, search, now);
  // The index begins with `expired`, so that hidden entries cost nothing; each half is sorted.
  const halves = await Promise.all(
    [false, true].map((expired) => page(store, search, { expired, from: null, limit: MAX_LIST })),
  );
  return halves.flat().toSorted(byAddress).slice(0, MAX_LIST);
}

/** Reads pages until it has enough entries that have not expired: one page, unless the task is late. */
async function unexpired(store: Rejects, search: Search, now: Date): Promise<RejectRow[]> {
  const found = new Map<string, RejectRow>();
  let from: string | null = null;
  let again = 0;
  for (;;) {
    const limit: number = MAX_LIST + again;
    const rows: RejectRow[] = await page(store, search, { expired: false, from, limit });
    const matching = rows.filter(({ email }) => email.startsWith(search.prefix));
    for (const row of matching) if (!isExpired(row, now)) found.set(row.id, row);
    if (found.size >= MAX_LIST || matching.length < limit) return [...found.values()].slice(0, MAX_LIST);
    // The next page begins with the last address, which may have entries of more subaccounts; entries already read come
    // again.
    const last = rows.at(-1)?.email ?? null;
    from = last;
    again = rows.filter(({ email }) => email === last).length;
  }
}

function page(
  { rejects }: Rejects,
  { prefix, subaccount }: Search,
  { expired, from, limit }: { expired: boolean; from: string | null; limit: number },
): Promise<RejectRow[]> {
  const of = subaccount === '' ? {} : { subaccount };
  const email =
    from === null ? (prefix === '' ? {} : { email: { startsWith: prefix } }) : { email: { range: { gte: from } } };
  return rejects.many({ ...of, expired, ...email, removed: false }, { sort: 'email', limit });
}

/** Compares by code points, as the store sorts text. */
function byAddress(a: RejectRow, b: RejectRow): number {
  return compare(a.email, b.email) || compare(a.subaccount, b.subaccount);
}

function compare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** No limit is documented; a comment is a sentence or two. */
const MAX_COMMENT = 1000;

const email = str('the address, in lower case');

const rejectEntry = record('reject entry', {
  email,
  reason: z.enum(REJECT_REASONS).describe('the cause; custom: added by hand'),
  detail: strOrNull('the diagnosis of a bounce, or the comment of an entry added by hand'),
  created_at: time('when it was added'),
  last_event_at: time('the latest event that created or renewed it'),
  expires_at: timeOrNull('when it expires', 'null for never'),
  expired: bool('whether it has expired, so that mail to the address is sent again'),
  sender: senderRecord
    .nullable()
    .describe('the sender whose mail caused it, a sender record; null for entries added by hand'),
  subaccount: strOrNull('the subaccount it applies to; null for the whole account'),
  message_id: strOrNull(
    'id of the message whose event last created or renewed it; null if it was added by hand, or no longer ' +
      'known (not part of the Mandrill API)',
  ),
});

type Sender = z.input<typeof senderRecord>;

function toRejectEntry(
  row: RejectRow,
  senders: ReadonlyMap<string, Sender>,
  messages: ReadonlyMap<string, string>,
  now: Date,
) {
  return {
    email: row.email,
    reason: row.reason,
    detail: row.detail,
    created_at: toTime(row.createdAt),
    last_event_at: toTime(row.lastEventAt),
    expires_at: toTime(row.expiresAt),
    expired: isExpired(row, now),
    sender:
      row.sender === null
        ? null
        : (senders.get(row.sender) ?? {
            address: row.sender,
            created_at: toTime(row.createdAt),
            ...toStats(NO_COUNTS),
          }),
    subaccount: row.subaccount === '' ? null : row.subaccount,
    message_id: messages.get(lastEvent(row) ?? '') ?? null,
  };
}

const lastEvent = ({ eventIds = [] }: RejectRow) => eventIds.at(-1);

/** The messages of the last events of many entries, by event, in one query. */
async function messagesOf(
  { messageEvents }: AccountStore,
  rows: readonly RejectRow[],
): Promise<ReadonlyMap<string, string>> {
  const ids = rows.flatMap((row) => lastEvent(row) ?? []);
  if (ids.length === 0) return new Map();
  return new Map((await messageEvents.many({ id: { in: ids } })).map(({ id, message }) => [id, message]));
}

/** The sender records of many entries, in one query. */
async function sendersOf(
  { account, counters }: AccountStore,
  rows: readonly RejectRow[],
): Promise<Map<string, Sender>> {
  const addresses = new Set(rows.flatMap(({ sender }) => sender ?? []));
  if (addresses.size === 0) return new Map();
  const start = startOf('total', new Date(0));
  const ids = [...addresses].map((address) => counterId(account, 'sender', 'total', start, address));
  // The ids are sufficient; the other conditions select the index.
  const totals = await counters.many({ kind: 'sender', span: 'total', start, id: { in: ids } });
  return new Map(totals.map((total) => [total.key, toSenderRecord(total)]));
}

const add = operation({
  path: '/rejects/add',
  access: 'settings',
  summary: 'Adds an address to the rejection list by hand: no more mail is sent to it.',
  notes:
    'The entry never expires and replaces one created by events. A whitelisted address is not added. Removing ' +
    'the entry costs no reputation, unless it replaced one created by events.',
  params: {
    email: listAddress,
    comment: optional(z.string().max(MAX_COMMENT)).describe(`why, at most ${MAX_COMMENT} characters; shown as detail`),
    subaccount: subaccountParam,
  },
  returns: z.object({
    email,
    added: bool('whether the address is on the list now; false when it is whitelisted'),
  }),
  errors: ['Unknown_Subaccount'],
  example: { email: 'ann@example.com', comment: 'asked us to stop' },
  async handle({ email, comment = '', subaccount: slug }, call) {
    const subaccount = await findSubaccount(slug, call);
    const entry = {
      email,
      subaccount,
      reason: 'custom',
      detail: comment === '' ? null : comment,
      sender: null,
      at: call.now(),
    } as const;
    const outcome = await call.lists.reject(entry);
    try {
      await findSubaccount(slug, call);
    } catch (error) {
      // The subaccount was deleted meanwhile, and nothing else would remove this entry.
      await call.lists.unreject(email, subaccount);
      throw error;
    }
    return { email, added: outcome !== 'whitelisted' };
  },
});

const list = operation({
  path: '/rejects/list',
  access: 'mail',
  summary: 'Lists the rejection list, sorted by address.',
  notes:
    `Up to ${MAX_LIST} entries; an export contains all of them. An address has at most one entry for the whole ` +
    `account and one for each subaccount. ${EXPIRY_RULES}`,
  params: {
    email: addressPrefix,
    include_expired: optional(z.boolean()).describe('true: also shows entries that have expired'),
    subaccount: optional(z.string().max(255)).describe(
      'id of a subaccount: only entries that apply to it alone; all entries if omitted',
    ),
  },
  returns: z.array(rejectEntry),
  errors: ['Unknown_Subaccount', 'ServiceUnavailable'],
  example: { email: 'gone' },
  async handle({ email = '', include_expired: includeExpired = false, subaccount: slug }, call) {
    const subaccount = await findSubaccount(slug, call);
    const rows = await listRejects(call.store, { prefix: email, includeExpired, subaccount }, call.now());
    const [senders, messages] = await Promise.all([sendersOf(call.store, rows), messagesOf(call.store, rows)]);
    return rows.map((row) => toRejectEntry(row, senders, messages, call.now()));
  },
});

const remove = operation({
  path: '/rejects/delete',
  access: 'settings',
  summary: 'Removes an address from the rejection list: mail to it is sent again.',
  notes:
    'There is no limit on deletions, but deleting an entry created by events costs reputation. ' + REPUTATION_FORMULA,
  params: { email: listAddress, subaccount: subaccountParam },
  returns: z.object({
    email,
    deleted: bool('whether it was removed'),
    subaccount: strOrNull('the subaccount whose list it was on; null for the list of the whole account'),
  }),
  errors: ['Invalid_Reject', 'Unknown_Subaccount'],
  example: { email: 'gone@example.com' },
  async handle({ email, subaccount: slug }, call) {
    const subaccount = await findSubaccount(slug, call);
    const removed = call.orRefuse(await call.lists.unreject(email, subaccount), 'Invalid_Reject');
    if (isFromEvents(removed)) await call.counters.countReset(subaccount);
    return { email, deleted: true, subaccount: subaccount === '' ? null : subaccount };
  },
});

export const rejectOperations = [add, list, remove];
