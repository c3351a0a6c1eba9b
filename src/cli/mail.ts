import {
  createHostHistory,
  FIND_MAIL,
  FIND_REFUSALS,
  HISTORY_PAGE,
  type HistoryChoice,
  type ListedMail,
  type ListedRefusal,
  SHOW_MAIL,
  type ShownMail,
} from '../api/hosts/host-history.ts';
import { answered, type OtherHost, type RpcResult } from '../api/hosts/host-rpc.ts';
import { duplicates } from '../api/hosts/join-hosts.ts';
import { joinReasons } from '../api/operations/history.ts';
import { systemClock } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import {
  faultText,
  MAIL_FIELDS,
  type Parsed,
  parseMailQuery,
  parseRefusalQuery,
  REFUSAL_FIELDS,
} from '../journal/query-language.ts';
import { hostOf } from '../journal/timeline.ts';
import type { MailRecord } from '../journal/types.ts';
import { HOLDING_STATES } from '../queue/states.ts';
import type { Settings } from '../settings.ts';
import { adviceOf } from '../smtp/advice.ts';
import {
  type Command,
  EXIT,
  type Invocation,
  type Io,
  toCell,
  toFacts,
  toSpan,
  toTable,
  Unavailable,
  UsageError,
} from './command.ts';
import { withDeliveries, withHistory } from './open.ts';
import {
  findOnOthers,
  type HostPart,
  hostOption,
  LISTS_ALL_HOSTS,
  listOnHosts,
  newestFirst,
  type Of,
  tableOfHosts,
  withHost,
} from './other-hosts.ts';

// The history of all hosts, for operators: mail and refusals of all accounts.

const DEFAULT_LISTED = 50;

const options = {
  limit: { value: 'N', help: `maximum number of rows (default: ${DEFAULT_LISTED})` },
  host: hostOption,
} as const;
const SYNTAX =
  'Words match anywhere, in either case; quote phrases. Times are 2026-01-05, "2026-01-05 12:00:00" (UTC), or ' +
  'an age such as 30m, 2h or 3d.';
const MORE = '\nMore rows match; see --limit.\n';

export const mailFind: Command = {
  args: '[QUERY…]',
  options,
  notes:
    'Words are searched in sender, From, recipient, Subject and Message-ID. Fields: ' +
    `${MAIL_FIELDS}.\n${SYNTAX}\n\nUndelivered mail from Bob since yesterday:\n  postern mail find from:bob ` +
    `after:1d state:waiting state:dead\n\n${LISTS_ALL_HOSTS}`,
  async run(call, io) {
    const { most, toChoice } = readQuery(call, parseMailQuery);
    const reading = {
      here: (isOwn: boolean) =>
        withOwnHistory(call, ({ mail }) =>
          collect(most, async (page) => answered(await mail({ ...toChoice(page), isOwn }))),
        ),
      there: (ask: OtherHost['ask'], isOwn: boolean) =>
        collect(most, (page) => ask(FIND_MAIL, { ...toChoice(page), isOwn })),
    };
    return listOnHosts(call, io, reading, (parts, isSeveral) => {
      const { rows, more } = join(parts, most, (all) => {
        const left = duplicates(all.map(({ record }) => record));
        return all.filter(({ record }) => !left.has(record));
      });
      const refused = parts.reduce((sum, { answer }) => sum + answer.first.refused, 0);
      call.print(rows.map(toPrinted), () =>
        [
          rows.length === 0 ? 'No matching mail.\n' : mailTable(rows, isSeveral),
          more ? MORE : '',
          refused > 0
            ? `\n${refused} ${refused === 1 ? 'refusal matches' : 'refusals match'}: postern mail refused\n`
            : '',
        ].join(''),
      );
    });
  },
};

export const mailShow: Command = {
  args: 'ID',
  notes:
    'ID is the id of a delivery, or of a message, as in "250 2.0.0 OK: queued as ID".\n\nIf this host does not have ' +
    'it, the other hosts of the store are asked, and the output names the one that has it.',
  async run(call, io) {
    const id = call.word('ID');
    const [own] = await withOwnHistory(call, ({ one }) => one({ id }));
    if (own) return printFound(call, io, own, undefined);
    const none = { id, none: `No mail ${id}`, where: 'the history' };
    const wanted = { ...none, question: SHOW_MAIL, mailOf: ({ rows }: ShownMail) => rows[0]?.record };
    return findOnOthers(call, io, wanted, (found, host) => printFound(call, io, found, host));
  },
};

export const mailRefused: Command = {
  args: '[QUERY…]',
  options,
  notes:
    'Words are searched in sender, recipient, client and HELO name. Fields: ' +
    `${REFUSAL_FIELDS}.\n${SYNTAX}\n\nRefused mail of Bob since yesterday:\n  postern mail refused ` +
    `bob@example.org after:1d\n\n${LISTS_ALL_HOSTS}`,
  async run(call, io) {
    const { most, toChoice } = readQuery(call, parseRefusalQuery);
    const reading = {
      here: () =>
        withOwnHistory(call, ({ refusals }) => collect(most, async (page) => answered(await refusals(toChoice(page))))),
      there: (ask: OtherHost['ask']) => collect(most, (page) => ask(FIND_REFUSALS, toChoice(page))),
    };
    return listOnHosts(call, io, reading, (parts, isSeveral) => {
      const { rows, more } = join(parts, most);
      const reasons = joinReasons(parts.flatMap(({ answer }) => answer.first.reasons));
      call.print(rows.map(toPrinted), () =>
        rows.length === 0
          ? 'No matching refusals.\n'
          : `${refusalTable(rows, isSeveral)}${more ? MORE : ''}\n${reasons
              .map(({ reason, count }) => `${count} × ${printable(reason)}\n  ${adviceOf(reason)}\n`)
              .join('')}`,
      );
    });
  },
};

/** Opens this host's history in the form in which its daemon lists it to other hosts. */
function withOwnHistory<T>(
  call: Invocation,
  use: (history: ReturnType<typeof createHostHistory>) => Promise<T>,
): Promise<T> {
  const { settings } = call.settings();
  return withHistory(settings, (history) =>
    use(createHostHistory({ history, refusals: { adviceOf }, waitsFor: (mail) => waitsFor(mail, settings) })),
  );
}

/** The part of a choice that differs between the pages of a list. */
type PageChoice = Pick<HistoryChoice, 'limit' | 'before'>;

/** The query of the command line. Throws `UsageError`. */
function readQuery(call: Invocation, parse: (text: string, now: number) => Parsed<unknown>) {
  const [query, now] = [call.words.join(' '), systemClock.now()];
  const parsed = parse(query, now);
  if ('fault' in parsed) throw new UsageError(faultText(parsed.fault));
  return {
    most: call.count('limit', DEFAULT_LISTED),
    /** Counts refusals only for text output, and only on the first page. */
    toChoice: ({ limit, before }: PageChoice): HistoryChoice => ({
      query,
      now,
      limit,
      before,
      counts: call.format === 'text' && before === null,
    }),
  };
}

interface Page<R> {
  readonly rows: readonly R[];
  readonly next: number | null;
}

/** Rows of one host. */
interface Collected<P extends Page<unknown>> {
  readonly rows: P['rows'];
  /** Whether there may be more. */
  readonly more: boolean;
  readonly first: P;
}

/** Reads pages until there are enough rows. */
async function collect<P extends Page<unknown>>(
  most: number,
  ask: (page: PageChoice) => Promise<RpcResult<P>>,
): Promise<RpcResult<Collected<P>>> {
  const all: P['rows'][number][] = [];
  let before: number | null = null;
  let first: P | undefined;
  for (;;) {
    const asked: RpcResult<P> = await ask({ limit: Math.min(most - all.length, HISTORY_PAGE), before });
    if (asked.kind !== 'answered') return asked;
    const { rows, next } = asked.answer;
    first ??= asked.answer;
    all.push(...rows);
    if (next === null || all.length >= most) return answered({ rows: all, more: next !== null, first });
    before = next;
  }
}

/** The rows of all hosts, newest first, without those that `pick` leaves out. */
function join<R extends { readonly at: number }>(
  parts: readonly HostPart<{ readonly rows: readonly R[]; readonly more: boolean }>[],
  most: number,
  pick = (all: readonly Of<R>[]) => all,
) {
  const lists = parts.map(({ host, answer }) => answer.rows.map((row): Of<R> => ({ ...row, host })));
  const all = pick(newestFirst(lists, Number.POSITIVE_INFINITY));
  return { rows: all.slice(0, most), more: all.length > most || parts.some(({ answer }) => answer.more) };
}

const toPrinted = ({ record, host }: Of<{ readonly record: object }>) => withHost(record, host);

function mailTable(rows: readonly Of<ListedMail>[], isSeveral: boolean): string {
  const now = systemClock.now();
  const headings = ['id', 'state', 'age', 'from', 'to', 'subject', 'tries', 'kind', 'endpoint', 'last answer'];
  return tableOfHosts(rows, isSeveral, headings, ({ at, record }) => [
    record.id,
    record.state,
    toSpan(now - at),
    toCell(record.sender === '' ? '<>' : (record.sender ?? record.from)),
    toCell(record.to),
    toCell(record.subject),
    record.attempts,
    record.kind,
    hostOf(record.url),
    record.last_status ?? record.last_error,
  ]);
}

function refusalTable(rows: readonly Of<ListedRefusal>[], isSeveral: boolean): string {
  const now = systemClock.now();
  const headings = ['age', 'stage', 'from', 'to', 'client', 'times', 'reply'];
  return tableOfHosts(rows, isSeveral, headings, ({ at, record }) => [
    toSpan(now - at),
    record.stage,
    toCell(record.sender === '' ? '<>' : record.sender),
    toCell(record.recipient),
    record.helo === null ? record.client : `${record.client} (${toCell(record.helo)})`,
    record.times,
    record.reply,
  ]);
}

/** Why it is not delivered yet, from the queue; null if it has ended, or the queue cannot be read. */
async function waitsFor({ id, state }: MailRecord, settings: Settings): Promise<string | null> {
  if (![...HOLDING_STATES, 'waiting'].includes(state)) return null;
  try {
    const [found] = await withDeliveries(settings, ({ one }) => one({ id }));
    return found?.delivery.record.waits ?? null;
  } catch (error) {
    if (error instanceof Unavailable) return null;
    throw error;
  }
}

function printFound(call: Invocation, io: Io, { rows, story }: ShownMail, host: string | undefined): number {
  const [mail] = rows;
  if (!mail || !story) {
    const where = host === undefined ? '' : ` on ${printable(host)}`;
    const listed = mailTable(
      rows.map((row) => ({ ...row, host })),
      false,
    );
    io.err(`The message has ${rows.length} recipients${where}; give the id of one:\n\n${listed}`);
    return EXIT.failed;
  }
  const shown = withHost(mail.record, host);
  const lines = toTable(
    ['time', 'after', 'what happened'],
    story.timeline.flatMap(({ at, after_ms: after, text, detail }) => [
      [at, toOffset(after), text],
      ...(detail === null ? [] : [['', '', `  ${detail}`]]),
    ]),
  );
  const hint = story.waits === null ? '' : `\n${printable(story.waits)}.\n`;
  call.print([{ ...shown, ...story }], () => `${toFacts(shown)}\n${lines}${hint}`);
  return EXIT.ok;
}

/** The time since the mail was accepted, with milliseconds while they matter. */
function toOffset(ms: number): string {
  const [sign, size] = [ms < 0 ? '-' : '+', Math.abs(ms)];
  return size < 10_000 ? `${sign}${(size / 1000).toFixed(3)}s` : `${sign}${toSpan(size)}`;
}
