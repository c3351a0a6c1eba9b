import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import {
  addUp,
  addUpMonths,
  hourlyQuota,
  NO_COUNTS,
  QUOTA_FORMULA,
  REPUTATION_FORMULA,
  reputationOf,
} from '../../mail/stats.ts';
import {
  type CounterRow,
  type CounterSpan,
  counterId,
  reputationMonths,
  sinceMinutes,
  startOf,
} from '../../store/rows/counters.ts';
import { type SubaccountRow, searchKey, subaccountId } from '../../store/rows/subaccounts.ts';
import type { AccountStore, BoundCollection } from '../../store/store.ts';
import { type Call, operation } from '../operation.ts';
import { int, intOrNull, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';
import { hoursOf, MAX_LIST, statsBlock, toStats } from './stats.ts';

const subaccountRecord = record('subaccount record', {
  id: str('unique identifier, used in sending calls'),
  name: strOrNull('display name; null if there is none'),
  custom_quota: intOrNull('hourly quota set by hand; null: by reputation'),
  status: z.enum(['active', 'paused']).describe('mail of a paused subaccount is queued for at most 3 days'),
  reputation: int('0 to 100'),
  created_at: time('when it was added'),
  first_sent_at: timeOrNull('when it first sent', 'null before'),
  sent_weekly: int('sent this week, which began on Monday 00:00 UTC'),
  sent_monthly: int('sent this month, which began on the 1st, 00:00 UTC'),
  sent_total: int('sent since it was added'),
});

const subaccountDetail = subaccountRecord
  .extend({
    notes: str('notes'),
    sent_hourly: int('sent in the last 60 minutes, to the minute'),
    hourly_quota: int('messages it may send in an hour: the custom quota, or by reputation'),
    last_30_days: statsBlock,
  })
  .meta({ title: 'subaccount detail' });

function toSubaccountRecord(row: SubaccountRow, numbers: SubaccountNumbers) {
  return {
    id: row.slug,
    name: row.name === '' ? null : row.name,
    custom_quota: row.customQuota,
    status: row.status,
    reputation: reputationOf(numbers.recent),
    created_at: toTime(row.createdAt),
    first_sent_at: toTime(numbers.firstSentAt),
    sent_weekly: numbers.week,
    sent_monthly: numbers.month,
    sent_total: numbers.total,
  };
}

/** The statistics that the record of a subaccount needs. */
type SubaccountNumbers = ReturnType<Awaited<ReturnType<typeof numbersOf>>>;

/** The statistics of many subaccounts, in four queries. */
async function numbersOf({ account, counters }: AccountStore, rows: readonly SubaccountRow[], now: Date) {
  const of = async (span: CounterSpan, start: Date): Promise<Map<string, CounterRow>> => {
    const ids = rows.map(({ slug }) => counterId(account, 'subaccount', span, start, slug));
    // The ids are sufficient; the other conditions select the index.
    const found = await counters.many({ kind: 'subaccount', span, start, id: { in: ids } });
    return new Map(found.map((counter) => [counter.key, counter]));
  };
  const [thisMonth, monthBefore] = reputationMonths(now);
  const [weeks, months, monthsBefore, totals] = await Promise.all([
    of('week', startOf('week', now)),
    of('month', thisMonth),
    of('month', monthBefore),
    of('total', startOf('total', now)),
  ]);
  return (row: SubaccountRow) => {
    const total = totals.get(row.slug);
    const month = months.get(row.slug) ?? NO_COUNTS;
    return {
      week: weeks.get(row.slug)?.sent ?? 0,
      month: month.sent,
      total: total?.sent ?? 0,
      /** Of this month and the one before, which reputation is based on. */
      recent: addUpMonths([monthsBefore.get(row.slug) ?? NO_COUNTS, month]),
      firstSentAt: row.firstSentAt ?? (total && total.sent > 0 ? total.firstAt : null),
    };
  };
}

/** No limit is documented. */
const MAX_NOTES = 10_000;

const newId = text(255)
  .refine(
    (value) => !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(value) && value.trim() !== '',
    'Please enter an id of printable characters',
  )
  .describe('a new id, case-sensitive, at most 255 characters');
const knownId = text(1000).describe('id of the subaccount');
const details = {
  name: optional(z.string().max(1024)).describe('display name, at most 1024 characters'),
  notes: optional(z.string().max(MAX_NOTES)).describe(`notes, at most ${MAX_NOTES} characters`),
  custom_quota: optional(z.int().min(1)).describe(
    'messages it may send in an hour, above 0; by reputation if never set',
  ),
};

const removeQuota = optional(z.boolean()).describe(
  'true: removes the custom quota, so that reputation decides again (not part of the Mandrill API)',
);

async function toRecord(row: SubaccountRow, { store, now }: Call<never>) {
  return toSubaccountRecord(row, (await numbersOf(store, [row], now()))(row));
}

/** Changes a subaccount and returns the new row. Throws Unknown_Subaccount. */
async function changeSubaccount(
  id: string,
  patch: Parameters<BoundCollection<SubaccountRow>['change']>[1],
  { store, orRefuse }: Call<'Unknown_Subaccount'>,
): Promise<SubaccountRow> {
  const row = await store.subaccounts.change({ id: subaccountId(store.account, id) }, patch);
  return orRefuse(row, 'Unknown_Subaccount', id);
}

/** Throws Unknown_Subaccount. */
async function findSubaccount(id: string, { store, orRefuse }: Call<'Unknown_Subaccount'>): Promise<SubaccountRow> {
  const row = await store.subaccounts.one({ id: subaccountId(store.account, id) });
  return orRefuse(row, 'Unknown_Subaccount', id);
}

/** Operations on one subaccount have these in common. */
const ofSubaccount = {
  params: { id: knownId },
  returns: subaccountRecord,
  errors: ['Unknown_Subaccount'],
  example: { id: 'cust-123' },
} as const;

const list = operation({
  path: '/subaccounts/list',
  access: 'settings',
  summary: 'Lists the subaccounts by id.',
  notes: `Up to ${MAX_LIST}. ${REPUTATION_FORMULA}`,
  params: {
    q: optional(z.string().max(1024)).describe('the beginning of an id or of a name; case is ignored; all if omitted'),
  },
  returns: z.array(subaccountRecord),
  example: { q: 'abc' },
  async handle({ q = '' }, { store, now }) {
    const rows = await search(store, searchKey(q));
    const numbers = await numbersOf(store, rows, now());
    return rows.map((row) => toSubaccountRecord(row, numbers(row)));
  },
});

/** Matches ids first, then names for the rest of the page. */
async function search({ subaccounts }: AccountStore, prefix: string): Promise<SubaccountRow[]> {
  if (prefix === '') return subaccounts.many({}, { sort: 'slugKey', limit: MAX_LIST });
  const [byId, byName] = await Promise.all([
    subaccounts.many({ slugKey: { startsWith: prefix } }, { sort: 'slugKey', limit: MAX_LIST }),
    subaccounts.many({ nameKey: { startsWith: prefix } }, { sort: 'nameKey', limit: MAX_LIST }),
  ]);
  return [...new Map([...byId, ...byName].map((row) => [row.id, row])).values()].slice(0, MAX_LIST);
}

const add = operation({
  path: '/subaccounts/add',
  access: 'settings',
  summary: 'Adds a subaccount.',
  notes: 'An existing id is a ValidationError.',
  params: { id: newId, ...details },
  returns: subaccountRecord,
  example: { id: 'cust-124', name: 'Widgets & Sons' },
  async handle({ id: slug, name = '', notes = '', custom_quota: customQuota = null }, call) {
    const id = subaccountId(call.account.id, slug);
    const taken = () => call.invalid('id', 'A subaccount with this id already exists');
    if (await call.store.subaccounts.one({ id })) throw taken();
    // Events of mail from an earlier subaccount with this id may have arrived after its deletion.
    await call.counters.forgetSubaccount(slug);
    const row = {
      id,
      slug,
      name,
      slugKey: searchKey(slug),
      nameKey: searchKey(name),
      notes,
      customQuota,
      status: 'active' as const,
      pausedAt: null,
      createdAt: call.now(),
      firstSentAt: null,
    };
    if ((await call.store.subaccounts.insert(row)) === 'duplicate') throw taken();
    return toRecord({ ...row, account: call.account.id }, call);
  },
});

const info = operation({
  path: '/subaccounts/info',
  access: 'settings',
  summary: 'Shows a subaccount with its notes, its quota and the statistics of the last 30 days.',
  notes: `${REPUTATION_FORMULA} ${QUOTA_FORMULA}`,
  params: { id: knownId },
  returns: subaccountDetail,
  errors: ['Unknown_Subaccount'],
  example: { id: 'cust-123' },
  async handle({ id }, call) {
    const row = await findSubaccount(id, call);
    const now = call.now();
    const lastHour = { range: { gt: sinceMinutes(now) } };
    const [numbersFor, hours, minutes] = await Promise.all([
      numbersOf(call.store, [row], now),
      hoursOf(call.store, 'subaccount', id, 30, now),
      call.store.counters.many({ kind: 'subaccount', span: 'minute', key: id, start: lastHour }),
    ]);
    const numbers = numbersFor(row);
    return {
      ...toSubaccountRecord(row, numbers),
      notes: row.notes,
      sent_hourly: addUp(minutes).sent,
      hourly_quota: row.customQuota ?? hourlyQuota(reputationOf(numbers.recent), numbers.recent),
      last_30_days: toStats(addUp(hours)),
    };
  },
});

const update = operation({
  path: '/subaccounts/update',
  access: 'settings',
  summary: 'Changes the name, the notes or the quota of a subaccount; null fields remain unchanged.',
  params: { id: knownId, ...details, remove_custom_quota: removeQuota },
  returns: subaccountRecord,
  errors: ['Unknown_Subaccount'],
  example: { id: 'cust-123', name: 'ABC Widgets' },
  async handle({ id, name, notes, custom_quota: quota, remove_custom_quota: isRemoved = false }, call) {
    if (isRemoved && quota !== undefined)
      throw call.invalid('remove_custom_quota', 'Please enter either custom_quota or remove_custom_quota');
    const customQuota = isRemoved ? null : quota;
    const nameKey = name === undefined ? undefined : searchKey(name);
    if (name === undefined && notes === undefined && customQuota === undefined)
      return toRecord(await findSubaccount(id, call), call);
    return toRecord(await changeSubaccount(id, { name, nameKey, notes, customQuota }, call), call);
  },
});

const remove = operation({
  path: '/subaccounts/delete',
  access: 'settings',
  summary: 'Deletes a subaccount with its statistics and its rejection list; later sending calls that name it fail.',
  notes: 'Returns the deleted record. Its mail is kept.',
  ...ofSubaccount,
  async handle({ id }, call) {
    const row = await findSubaccount(id, call);
    const record = await toRecord(row, call);
    // Its data first, so that an interrupted call leaves none to a later subaccount with this id.
    await call.counters.forgetSubaccount(id);
    const removed = await call.store.subaccounts.remove({ id: row.id });
    await call.counters.forgetSubaccount(id); // data added meanwhile
    call.orRefuse(removed, 'Unknown_Subaccount', id);
    return record;
  },
});

const pause = operation({
  path: '/subaccounts/pause',
  access: 'settings',
  summary: 'Pauses a subaccount: its mail is queued, for at most 3 days, until it is resumed.',
  notes: 'Pausing again changes nothing and does not restart the 3 days.',
  ...ofSubaccount,
  async handle({ id }, call) {
    const filter = { id: subaccountId(call.account.id, id), status: 'active' as const };
    const row = await call.store.subaccounts.change(filter, { status: 'paused', pausedAt: call.now() });
    call.messages.hold(id);
    return toRecord(row ?? (await findSubaccount(id, call)), call);
  },
});

const resume = operation({
  path: '/subaccounts/resume',
  access: 'settings',
  summary: 'Resumes a paused subaccount: its queued mail is sent.',
  notes:
    'The host that handles the call sends it immediately, other hosts within about a minute. Resuming an active ' +
    'subaccount changes nothing else.',
  ...ofSubaccount,
  async handle({ id }, call) {
    const row = await changeSubaccount(id, { status: 'active', pausedAt: null }, call);
    await call.messages.release(id);
    return toRecord(row, call);
  },
});

export const subaccountOperations = [list, add, info, update, remove, pause, resume];
