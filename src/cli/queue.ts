import {
  type DeliveryList,
  type DeliveryStory,
  LIST_DELIVERIES,
  type ListedDelivery,
  MAX_DELIVERIES,
  SHOW_DELIVERY,
} from '../api/hosts/host-deliveries.ts';
import { answered, type OtherHost } from '../api/hosts/host-rpc.ts';
import { readAll } from '../base/bytes.ts';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import { hostOf } from '../journal/timeline.ts';
import { traceBefore } from '../mail/mime/header-section.ts';
import { DELIVERY_KINDS, KINDS, type Selection, type Spool } from '../queue/delivery.ts';
import { type HopDetail, type HttpDetail, readDetail } from '../queue/detail.ts';
import { DELIVERY_STATES, type DeliveryState, OPEN_STATES, STATES } from '../queue/states.ts';
import {
  type Command,
  EXIT,
  type Invocation,
  type Io,
  toCell,
  toFacts,
  toSpan,
  toTable,
  UsageError,
} from './command.ts';
import { withDeliveries, withSpool } from './open.ts';
import {
  findOnOthers,
  hostOption,
  LISTS_ALL_HOSTS,
  listOnHosts,
  newestFirst,
  type Of,
  tableOfHosts,
  withHost,
} from './other-hosts.ts';

/** Options that select deliveries; shared with `replay`. */
export const selecting = {
  route: { value: 'ID', help: 'only this route' },
  kind: {
    value: 'KIND',
    multiple: true,
    values: DELIVERY_KINDS,
    help:
      `only this kind: ${DELIVERY_KINDS.map((kind) => `${kind} (${KINDS[kind].about})`).join(', ')}; may be ` +
      'repeated',
  },
  webhook: { value: 'ID', help: 'only event batches of this webhook' },
  url: { value: 'URL', help: 'only to this webhook URL' },
  recipient: { value: 'ADDRESS', help: 'only this recipient' },
  account: { value: 'ID', help: 'only this account' },
  from: { value: 'TIME', help: 'accepted since: "2026-01-05 12:00:00" (UTC) or ISO 8601' },
  to: { value: 'TIME', help: 'accepted before this time' },
} as const;

/** Parses a time from the command line as milliseconds since 1970. */
function toTime(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const iso = text.trim().replace(' ', 'T');
  const time = Date.parse(/T.*(Z|[+-]\d\d:?\d\d)$/.test(iso) ? iso : iso.includes('T') ? `${iso}Z` : iso);
  if (Number.isNaN(time)) throw new UsageError(`--${name} is not a time: ${text}`);
  return time;
}

/** Parses the selection of deliveries: ids as arguments, the rest as options. */
export function toSelection(call: Invocation, states?: readonly DeliveryState[]): Selection {
  const route = call.text('route');
  const kinds = call.known('kind', DELIVERY_KINDS);
  return {
    ids: call.words.length > 0 ? call.words : undefined,
    routeIds: route === undefined ? undefined : [route],
    kinds: kinds.length > 0 ? kinds : undefined,
    webhook: call.text('webhook'),
    url: call.text('url'),
    recipient: call.text('recipient'),
    account: call.text('account'),
    from: toTime('from', call.text('from')),
    to: toTime('to', call.text('to')),
    states,
  };
}

/** States that can still be changed come first. */
const BY_INTEREST = [...OPEN_STATES, ...DELIVERY_STATES.filter((state) => !STATES[state].open)];

function deliveryTable(rows: readonly Of<ListedDelivery>[], isSeveral: boolean): string {
  if (rows.length === 0) return 'No matching deliveries.\n';
  const now = systemClock.now();
  const headings = ['id', 'state', 'age', 'next', 'tries', 'kind', 'for', 'subject', 'endpoint', 'last answer'];
  return tableOfHosts(rows, isSeveral, headings, ({ at, nextAt, waitKind, record }) => [
    record.id,
    record.parked ? 'parked' : record.state,
    toSpan(now - at),
    nextAt === null ? null : toSpan(nextAt - now),
    record.attempts,
    record.kind,
    whatFor(record),
    toCell(record.subject),
    hostOf(record.url),
    lastOf(record, waitKind),
  ]);
}

type Listed = ListedDelivery['record'];

/** The last answer; for a delivery without an attempt, why it waits. */
function lastOf({ last_status: status, last_error: error, attempts }: Listed, waits: string | null) {
  if (status !== null || error !== null) return status ?? error;
  if (attempts > 0 || waits === null || waits === 'due') return null;
  return waits === 'pulled' ? 'to be pulled' : waits;
}

/** The recipient of a message, or the contents of a batch. */
function whatFor({ recipient, webhook, events }: Listed): string {
  return recipient ?? `${events} ${events === 1 ? 'event' : 'events'} of webhook ${webhook}`;
}

export const queueList: Command = {
  args: '[ID…]',
  options: {
    ...selecting,
    state: {
      multiple: true,
      value: 'STATE',
      values: DELIVERY_STATES,
      help: `${DELIVERY_STATES.join(', ')} (may be repeated; default: ${OPEN_STATES.join(', ')})`,
    },
    limit: { value: 'N', help: 'maximum number of rows (default: 50)' },
    host: hostOption,
  },
  notes: LISTS_ALL_HOSTS,
  async run(call, io) {
    const states = call.known('state', DELIVERY_STATES);
    const selection = toSelection(call, states.length > 0 ? states : OPEN_STATES);
    const limit = call.count('limit', 50);
    const { settings } = call.settings();
    const reading = {
      here: () => withDeliveries(settings, async ({ list }) => answered(await list({ selection, limit }))),
      there: (ask: OtherHost['ask']) => ask(LIST_DELIVERIES, { selection, limit: Math.min(limit, MAX_DELIVERIES) }),
      isCut: ({ more }: DeliveryList) => more && limit > MAX_DELIVERIES,
    };
    return listOnHosts(call, io, reading, (parts, isSeveral) => {
      const lists = parts.map(({ host, answer }) => answer.rows.map((row): Of<ListedDelivery> => ({ ...row, host })));
      const rows = newestFirst(lists, limit);
      const countOf = (state: DeliveryState) => parts.reduce((sum, { answer }) => sum + (answer.counts[state] ?? 0), 0);
      call.print(
        rows.map(({ record, host }) => withHost(record, host)),
        () =>
          `${deliveryTable(rows, isSeveral)}\n${BY_INTEREST.map((state) => `${countOf(state)} ${state}`).join(', ')}\n`,
      );
    });
  },
};

export const queueShow: Command = {
  args: 'ID',
  options: {
    verbose: { short: 'v', help: 'also print addresses, times, headers and SMTP dialogs of the last eight attempts' },
    raw: { help: 'print the raw message as received, or the events of a batch as JSON' },
  },
  notes:
    'If this host does not have it, the other hosts of the store are asked, and the output names the one that has ' +
    'it. For --raw, run the command there.',
  async run(call, io) {
    const id = call.word('ID');
    const { settings } = call.settings();
    const [own] = await withDeliveries(settings, ({ one }) => one({ id }));
    if (own && call.flag('raw')) return withSpool(settings, (spool) => printRaw(io, spool, id));
    if (own) return printStory(call, own, undefined);
    const none = { id, none: `No delivery ${id}`, where: 'the queue' };
    const wanted = { ...none, question: SHOW_DELIVERY, mailOf: ({ delivery }: DeliveryStory) => delivery.record };
    return findOnOthers(call, io, wanted, (story, host) => {
      if (!call.flag('raw')) return printStory(call, story, host);
      io.err(`${printable(id)} is on ${printable(host)}; run the command there.\n`);
      return EXIT.failed;
    });
  },
};

async function printRaw(io: Io, spool: Spool, id: string): Promise<number> {
  const delivery = await spool.delivery(id);
  const found = delivery && (await spool.message(delivery.messageId));
  if (!found) {
    io.err(`No delivery ${printable(delivery?.messageId ?? id)} in the queue of this host.\n`);
    return EXIT.failed;
  }
  const bytes = await readAll(found.body);
  io.out(Buffer.concat([Buffer.from(traceBefore(found.message.trace, bytes)), bytes]));
  return EXIT.ok;
}

function printStory(call: Invocation, { delivery, attempts }: DeliveryStory, host: string | undefined): number {
  const shown = withHost(delivery.record, host);
  const story = attempts.map((attempt) => ({
    at: toTimestamp(new Date(attempt.at)),
    duration_ms: Math.round(attempt.durationMs),
    status: attempt.status,
    error: attempt.error,
    answer: attempt.answer,
    batch: attempt.batch ?? null,
    detail: readDetail(attempt.detail) ?? null,
  }));
  const shared = story.some(({ batch }) => batch !== null);
  const table =
    story.length === 0
      ? 'No attempt yet.\n'
      : toTable(
          ['time', 'ms', 'status', ...(shared ? ['batch'] : []), 'answer'],
          story.map((a) => [a.at, a.duration_ms, a.status ?? a.error, ...(shared ? [a.batch] : []), a.answer]),
        );
  const details = story.flatMap((a) =>
    a.detail && call.flag('verbose')
      ? [`\n${a.at}  ${printable(String(a.status ?? a.error))}\n${toLines(a.detail)}`]
      : [],
  );
  call.print([{ ...shown, attempts_made: story }], () => `${toFacts(shown)}\n${table}${details.join('')}`);
  return EXIT.ok;
}

/** A detail as indented lines: `>` before sent ones, `<` before received ones. */
function toLines(detail: NonNullable<ReturnType<typeof readDetail>>): string {
  const lines =
    'hops' in detail ? [...detail.hops.flatMap(hopLines), ...left(detail.leftOut, 'connection')] : httpLines(detail);
  return lines.map((line) => `  ${printable(line)}\n`).join('');
}

function httpLines({ address, tls, reused, ms, request = [], response = [], leftOut }: HttpDetail): string[] {
  const times = [
    ['DNS', ms.dns],
    ['connect', ms.connect],
    ['TLS', ms.tls],
    ['first byte', ms.firstByte],
  ] as const;
  return [
    [address ?? 'no address', tls, reused ? 'connection reused' : undefined].filter(Boolean).join(', '),
    times.flatMap(([name, time]) => (time === undefined ? [] : [`${name} ${time} ms`])).join(', '),
    ...request.map(([name, value]) => `> ${name}: ${value}`),
    ...response.map(([name, value]) => `< ${name}: ${value}`),
    ...left(leftOut, 'header'),
  ];
}

function hopLines({ host, address, source, tls, reused, ms, error, dialog }: HopDetail): string[] {
  const facts = [
    `${host} (${address})${source === undefined ? '' : ` from ${source}`}`,
    ...(tls !== undefined ? [tls] : dialog.length > 0 ? ['no TLS'] : []),
    ...(reused ? ['connection reused'] : []),
    `${ms} ms`,
  ];
  return [facts.join(', '), ...dialog, ...(error === undefined ? [] : [error])];
}

const left = (count: number | undefined, what: string): string[] =>
  count === undefined ? [] : [`(${count} ${what}${count === 1 ? '' : 's'} left out)`];
