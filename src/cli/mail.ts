import { toMailRecord, toRefusalRecord, toTimelineRecords } from '../api/operations/history.ts';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import {
  faultText,
  MAIL_FIELDS,
  type Parsed,
  parseMailQuery,
  parseRefusalQuery,
  REFUSAL_FIELDS,
} from '../journal/query-language.ts';
import { hostOf, toTimeline } from '../journal/timeline.ts';
import type { History, HistoryPage, MailRecord, MailStory, RefusalRecord } from '../journal/types.ts';
import { HOLDING_STATES } from '../queue/states.ts';
import type { Settings } from '../settings.ts';
import { adviceOf } from '../smtp/advice.ts';
import { lookBeside } from './beside.ts';
import {
  type Command,
  EXIT,
  type Invocation,
  toCell,
  toFacts,
  toSpan,
  toTable,
  Unavailable,
  UsageError,
} from './command.ts';
import { withHistory, withSpool } from './open.ts';

// The history of this host, for its operator: mail and refusals of all accounts.

const DEFAULT_LISTED = 50;

const limit = { type: 'string', value: 'N', help: `maximum number of rows (default: ${DEFAULT_LISTED})` } as const;
const SYNTAX =
  'Words match anywhere, in either case; quote phrases. Times are 2026-01-05, "2026-01-05 12:00:00" (UTC), or ' +
  'an age such as 30m, 2h or 3d.';

export const mailFind: Command = {
  name: 'mail find',
  args: '[QUERY…]',
  summary: 'Finds mail in the history of this host, newest first, including mail whose content was deleted.',
  options: { limit },
  notes:
    'Words are searched in sender, From, recipient, Subject and Message-ID. Fields: ' +
    `${MAIL_FIELDS}.\n${SYNTAX}\n\nUndelivered mail from Bob since yesterday:\n  postern mail find from:bob ` +
    'after:1d state:waiting state:dead',
  async run(call) {
    const query = call.words.join(' ');
    const filter = read(parseMailQuery(query, systemClock.now()));
    const most = call.count('limit', DEFAULT_LISTED);
    return withHistory(call.settings().settings, async (history) => {
      const { rows, more } = await collect((left, cursor) => history.mail(filter, left, cursor), most);
      const refused = call.format === 'text' ? await countRefused(history, query) : 0;
      call.print(rows.map(toShown), () =>
        [
          rows.length === 0 ? 'No matching mail.\n' : mailTable(rows),
          more ? `\nMore rows match; see --limit.\n` : '',
          refused > 0
            ? `\n${refused} ${refused === 1 ? 'refusal matches' : 'refusals match'}: postern mail refused\n`
            : '',
        ].join(''),
      );
      return EXIT.ok;
    });
  },
};

export const mailShow: Command = {
  name: 'mail show',
  args: 'ID',
  summary: 'Shows the history of one mail: its SMTP session with refusals, and every attempt.',
  notes: 'ID is the id of a delivery, or of a message, as in "250 2.0.0 OK: queued as ID".',
  async run(call, io) {
    const id = call.word('ID');
    return withHistory(call.settings().settings, async (history) => {
      const { rows } = await collect((left, cursor) => history.mail({ ids: [id] }, left, cursor), DEFAULT_LISTED);
      const story = rows.length === 1 && rows[0] ? await history.one(rows[0].id) : undefined;
      if (story) {
        printStory(call, story, await waitsFor(story.mail, call.settings().settings));
        return EXIT.ok;
      }
      if (rows.length === 0) io.err(`No mail ${printable(id)} in the history of this host.\n`);
      else io.err(`The message has ${rows.length} recipients; give the id of one:\n\n${mailTable(rows)}`);
      return EXIT.failed;
    });
  },
};

export const mailRefused: Command = {
  name: 'mail refused',
  args: '[QUERY…]',
  summary: 'Lists refused mail, newest first, with the meaning of each refusal and what to do.',
  options: { limit },
  notes:
    'Words are searched in sender, recipient, client and HELO name. Fields: ' +
    `${REFUSAL_FIELDS}.\n${SYNTAX}\n\nRefused mail of Bob since yesterday:\n  postern mail refused ` +
    'bob@example.org after:1d',
  async run(call) {
    const filter = read(parseRefusalQuery(call.words.join(' '), systemClock.now()));
    const most = call.count('limit', DEFAULT_LISTED);
    return withHistory(call.settings().settings, async (history) => {
      const { rows, more } = await collect((left, cursor) => history.refusals(filter, left, cursor), most);
      const reasons = call.format === 'text' ? await history.refusalsByReason(filter) : [];
      call.print(
        rows.map((row) => ({ ...toRefusalRecord(row, adviceOf), account: row.account })),
        () =>
          rows.length === 0
            ? 'No matching refusals.\n'
            : `${refusalTable(rows)}${more ? '\nMore rows match; see --limit.\n' : ''}\n${reasons
                .map(({ reason, count }) => `${count} × ${printable(reason)}\n  ${adviceOf(reason)}\n`)
                .join('')}`,
      );
      return EXIT.ok;
    });
  },
};

function read<F>(parsed: Parsed<F>): F {
  if ('fault' in parsed) throw new UsageError(faultText(parsed.fault));
  return parsed.filter;
}

/** Asks for pages until there are enough rows; `more`: whether there may be more. */
async function collect<T>(
  page: (left: number, cursor: number | undefined) => Promise<HistoryPage<T>>,
  most: number,
): Promise<{ readonly rows: readonly T[]; readonly more: boolean }> {
  const all: T[] = [];
  let cursor: number | undefined;
  for (;;) {
    const { rows, next } = await page(most - all.length, cursor);
    all.push(...rows);
    if (next === null || all.length >= most) return { rows: all, more: next !== null };
    cursor = next;
  }
}

/** Mail that never arrived may have been refused. */
async function countRefused(history: History, query: string): Promise<number> {
  const parsed = parseRefusalQuery(query, systemClock.now());
  if (query.trim() === '' || 'fault' in parsed) return 0;
  return (await history.refusalsByReason(parsed.filter)).reduce((sum, { count }) => sum + count, 0);
}

function toShown(mail: MailRecord) {
  // Whether the message is kept is in the queue: see `postern queue show`.
  const { kept: _, ...record } = toMailRecord(mail, false);
  return { ...record, kind: mail.kind, account: mail.account };
}

function mailTable(rows: readonly MailRecord[]): string {
  const now = systemClock.now();
  return toTable(
    ['id', 'state', 'age', 'from', 'to', 'subject', 'tries', 'kind', 'endpoint', 'last answer'],
    rows.map((row) => [
      row.id,
      row.state,
      toSpan(now - row.at),
      toCell(row.sender === '' ? '<>' : (row.sender ?? row.from)),
      toCell(row.recipient),
      toCell(row.subject),
      row.attempts,
      row.kind,
      hostOf(row.url),
      row.lastStatus ?? row.lastError,
    ]),
  );
}

function refusalTable(rows: readonly RefusalRecord[]): string {
  const now = systemClock.now();
  return toTable(
    ['age', 'stage', 'from', 'to', 'client', 'times', 'reply'],
    rows.map((row) => [
      toSpan(now - row.at),
      row.stage,
      toCell(row.sender === '' ? '<>' : row.sender),
      toCell(row.recipient),
      row.helo === null ? row.client : `${row.client} (${toCell(row.helo)})`,
      row.times,
      row.reply,
    ]),
  );
}

/** Why it is not delivered yet, as the queue knows it; null if it has ended, or the queue cannot be asked. */
async function waitsFor({ id, state }: MailRecord, settings: Settings): Promise<string | null> {
  if (![...HOLDING_STATES, 'waiting'].includes(state)) return null;
  try {
    return await withSpool(settings, async (spool) => {
      const delivery = await spool.delivery(id);
      return (delivery && (await lookBeside([delivery], spool, settings))(delivery).waits?.text) ?? null;
    });
  } catch (error) {
    if (error instanceof Unavailable) return null;
    throw error;
  }
}

function printStory(call: Invocation, story: MailStory, waits: string | null): void {
  const { mail } = story;
  const entries = toTimeline(story, undefined, adviceOf);
  const shown = toShown(mail);
  const table = toTable(
    ['time', 'after', 'what happened'],
    entries.flatMap(({ at, text, detail }) => [
      [toTimestamp(new Date(at)), toOffset(at - mail.at), text],
      ...(detail === null ? [] : [['', '', `  ${detail}`]]),
    ]),
  );
  const hint = waits === null ? '' : `\n${printable(waits)}.\n`;
  call.print(
    [{ ...shown, waits, timeline: toTimelineRecords(entries, mail.at) }],
    () => `${toFacts(shown)}\n${table}${hint}`,
  );
}

/** The time since the mail was accepted, with milliseconds while they matter. */
function toOffset(ms: number): string {
  const [sign, size] = [ms < 0 ? '-' : '+', Math.abs(ms)];
  return size < 10_000 ? `${sign}${(size / 1000).toFixed(3)}s` : `${sign}${toSpan(size)}`;
}
