import { z } from 'zod';
import { DAY_MS } from '../../base/clock.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { toPlainAddress } from '../../sending/notices.ts';
import { pagesByKey } from '../../store/pages.ts';
import { keyHash } from '../../store/rows/accounts.ts';
import { type ExportRow, type ExportType, exportId, exportName } from '../../store/rows/exports.ts';
import { type Call, listOperation, operation, type Path } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { emailAddress, optionalEndTime, readAs, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';

const STATES = ['sent', 'rejected', 'bounced', 'soft-bounced', 'spam', 'unsub'] as const;
/** More tags, senders or keys than any account needs. */
const MAX_FILTER = 1000;

const exportRecord = record('export record', {
  id: str('unique identifier of the job: its start time with a fraction'),
  created_at: time('when it was started'),
  type: z.enum(['activity', 'reject', 'whitelist']),
  finished_at: timeOrNull('when it ended; null for a job that has not run'),
  state: z
    .enum(['waiting', 'working', 'complete', 'error', 'expired'])
    .describe('expired: the archive of the completed job was deleted'),
  result_url: strOrNull(
    'URL of the zip archive; null unless the job is complete. Anyone who has it can fetch the archive',
  ),
  error: strOrNull('why the job ended in state error (not part of the Mandrill API)'),
});

function toExportRecord(row: ExportRow): z.input<typeof exportRecord> {
  return {
    id: exportName(row),
    created_at: toTime(row.createdAt),
    type: row.type,
    finished_at: toTime(row.finishedAt),
    state: row.state,
    result_url: row.state === 'complete' ? row.resultUrl : null,
    error: row.error,
  };
}

/** Attempts to find a free id for one time before the call fails. */
const MAX_TRIES = 1000;

/** Inserts the row of a job and wakes this host's task. */
async function start(
  request: Pick<ExportRow, 'type' | 'notifyEmail' | 'filter'>,
  { store, settings, now, poke, refuse }: Call<never>,
): Promise<ExportRow> {
  const createdAt = now();
  const { perDay } = settings.exports;
  const today = await store.exportJobs.many(
    { createdAt: { range: { gt: new Date(createdAt.getTime() - DAY_MS) } } },
    { sort: '-createdAt', limit: perDay },
  );
  if (today.length >= perDay) throw refuse('RequestLimitExceeded');
  const fresh = {
    ...request,
    state: 'waiting',
    createdAt,
    finishedAt: null,
    error: null,
    holder: null,
    until: null,
    attempts: 0,
    host: null,
    file: null,
    resultUrl: null,
    tokenHash: null,
    unnotified: null,
  } as const;
  for (let n = 0; n < MAX_TRIES; n++) {
    const row = { ...fresh, id: exportId(store.account, nameAt(createdAt, n)) };
    if ((await store.exportJobs.insert(row)) === 'duplicate') continue;
    poke('run-exports');
    return { ...row, account: store.account };
  }
  throw new Error('no free id for an export');
}

/**
 * An id like Mandrill's: the time with a fraction of five digits, of which our clock gives three; the others number the
 * jobs of one millisecond. It is unique in its account, sorts by time, and is no secret: only its account can see the
 * job.
 */
function nameAt(time: Date, n: number): string {
  const units = time.getTime() * 100 + n;
  return `${toTime(Math.floor(units / 100))}.${String(units % 100_000).padStart(5, '0')}`;
}

const notifyEmail = optional(
  emailAddress.transform(
    readAs(({ text: address }) => toPlainAddress(address) && address, 'Not a valid email address'),
  ),
).describe('address to notify by mail when the job ends');

const list = (item: z.ZodType<string>, description: string) =>
  optional(z.array(item).max(MAX_FILTER)).describe(description);

/** An empty list counts as no condition, because matching nothing is useless. */
const unlessEmpty = <T>(items: readonly T[] | undefined): readonly T[] | null =>
  items && items.length > 0 ? items : null;

const UNTIL_THEN =
  'The job starts immediately and runs in the background; poll /exports/info until its state is complete. The ' +
  'archive is available for 7 days by default.';
const GUARDED =
  'A cell that a spreadsheet would read as a formula (it begins with =, +, -, @, a tab or a line break) is ' +
  "prefixed with '.";
const LIMIT =
  'An account may start a limited number of jobs in 24 hours (100 by default); beyond that, RequestLimitExceeded.';
const NOTES = `${UNTIL_THEN} ${GUARDED} ${LIMIT}`;

const info = operation({
  path: '/exports/info',
  access: 'settings',
  summary: 'Shows an export job.',
  params: { id: text(255).describe('id of the job') },
  returns: exportRecord,
  errors: ['Unknown_Export'],
  example: { id: '2026-01-05 09:20:28.13842' },
  handle: async ({ id }, { store, orRefuse }) =>
    toExportRecord(orRefuse(await store.exportJobs.one({ id: exportId(store.account, id) }), 'Unknown_Export', id)),
});

const listJobs = listOperation({
  path: '/exports/list',
  access: 'settings',
  summary: 'Lists the export jobs of the account, newest first.',
  notes: 'Returns all of them; `after` continues after one. Jobs are deleted 90 days after they end.',
  params: {
    after: optional(text(255)).describe('continue after the job with this id (not part of the Mandrill API)'),
  },
  returns: z.array(exportRecord),
  pages({ after }, { store }) {
    const first = after === undefined ? undefined : exportId(store.account, after);
    const rows = pagesByKey(
      first,
      ({ id }: ExportRow): string | undefined => id,
      (behind, limit) =>
        store.exportJobs.many(behind === undefined ? {} : { id: { range: { lt: behind } } }, { sort: '-id', limit }),
    );
    return mapPages(rows, (page) => page.map(toExportRecord));
  },
});

/** An operation that starts an export of a whole list. */
const exporting = <N extends Path>(
  type: Exclude<ExportType, 'activity'>,
  about: { path: N; summary: string; notes: string; extension?: boolean; example?: Record<string, unknown> },
) =>
  operation({
    access: 'settings',
    params: { notify_email: notifyEmail },
    returns: exportRecord,
    ...about,
    handle: async ({ notify_email: to = null }, call) =>
      toExportRecord(await start({ type, notifyEmail: to, filter: null }, call)),
  });

const rejects = exporting('reject', {
  path: '/exports/rejects',
  summary: 'Starts an export of the rejection blacklist.',
  notes:
    'The archive contains rejects.csv with the columns email, reason, detail, created_at, expires_at, ' +
    `last_event_at and again expires_at: the entries that have not expired, including those of subaccounts. ${NOTES}`,
  example: { notify_email: 'ops@example.com' },
});

const whitelist = exporting('whitelist', {
  path: '/exports/whitelist',
  summary: 'Starts an export of the rejection whitelist.',
  notes: `The archive contains whitelist.csv with the columns email, detail, created_at. ${NOTES}`,
});

const allowlist = exporting('whitelist', {
  path: '/exports/allowlist',
  summary: 'Starts an export of the rejection whitelist, under its newer name.',
  notes: 'The same as /exports/whitelist, including the result.',
  extension: true,
});

const activity = operation({
  path: '/exports/activity',
  access: 'settings',
  summary: 'Starts an export of the activity of the account: messages sent and what happened to them.',
  notes:
    'The archive contains activity.csv with the columns Date, Email Address, Sender, Subject, Status, Tags, ' +
    'Opens, Clicks, Bounce Detail, and those of the metadata fields that the operator has ' +
    'configured (exports.metadata_fields) and the account has added (/metadata/add). All given conditions must ' +
    `be met; an empty list counts as no condition. ${NOTES}`,
  params: {
    notify_email: notifyEmail,
    date_from: optionalTime.describe('messages of this time or later, UTC, YYYY-MM-DD HH:MM:SS'),
    date_to: optionalEndTime.describe('messages of this time or earlier; a date alone means all of that day'),
    tags: list(z.string().max(255), 'messages with any of these tags'),
    senders: optional(z.array(emailAddress).max(MAX_FILTER)).describe('messages from any of these addresses'),
    states: optional(z.array(z.enum(STATES)).max(MAX_FILTER)).describe('messages in any of these states'),
    api_keys: list(
      z.string().max(255),
      'messages sent with any of these API keys of the account; no other key matches anything',
    ),
  },
  returns: exportRecord,
  example: {
    date_from: '2026-01-01 00:00:00',
    date_to: '2026-01-05 12:00:00',
    tags: ['welcome'],
    senders: ['news@example.com'],
    states: ['sent', 'bounced'],
  },
  async handle(
    { notify_email: to = null, date_from: from, date_to: before, tags, senders, states, api_keys: keys },
    call,
  ) {
    if (from && before && before <= from)
      throw call.invalid('date_to', 'Please enter a time that is not before date_from');
    const filter = {
      from: from ?? null,
      before: before ?? null,
      tags: unlessEmpty(tags),
      senders: unlessEmpty(senders?.map(({ text: address }) => address.toLowerCase())),
      states: unlessEmpty(states),
      apiKeys: unlessEmpty(keys?.map(keyHash)),
    };
    return toExportRecord(await start({ type: 'activity', notifyEmail: to, filter }, call));
  },
});

/** Export jobs; tasks/exports/ runs them. */
export const exportOperations = [info, listJobs, rejects, whitelist, allowlist, activity];
