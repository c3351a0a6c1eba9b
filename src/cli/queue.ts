import { readAll } from '../base/bytes.ts';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import { hostOf } from '../journal/timeline.ts';
import { traceBefore } from '../mail/header-section.ts';
import {
  type AttemptRecord,
  DELIVERY_KINDS,
  KINDS,
  nextAttemptAt,
  type QueuedDelivery,
  type Selection,
  type Spool,
} from '../queue/delivery.ts';
import { type HopDetail, type HttpDetail, readDetail } from '../queue/detail.ts';
import { DELIVERY_STATES, type DeliveryState, OPEN_STATES, STATES } from '../queue/states.ts';
import { type Beside, lookBeside } from './beside.ts';
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
import { withSpool } from './open.ts';
import { sayOtherHosts } from './other-hosts.ts';

/** Options that select deliveries; shared with `replay`. */
export const selecting = {
  route: { type: 'string', value: 'ID', help: 'only this route' },
  kind: {
    type: 'string',
    value: 'KIND',
    multiple: true,
    values: DELIVERY_KINDS,
    help:
      `only this kind: ${DELIVERY_KINDS.map((kind) => `${kind} (${KINDS[kind].about})`).join(', ')}; may be ` +
      'repeated',
  },
  webhook: { type: 'string', value: 'ID', help: 'only event batches of this webhook' },
  url: { type: 'string', value: 'URL', help: 'only to this webhook URL' },
  recipient: { type: 'string', value: 'ADDRESS', help: 'only this recipient' },
  account: { type: 'string', value: 'ID', help: 'only this account' },
  from: { type: 'string', value: 'TIME', help: 'accepted since: "2026-01-05 12:00:00" (UTC) or ISO 8601' },
  to: { type: 'string', value: 'TIME', help: 'accepted before this time' },
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

function toShown(delivery: QueuedDelivery, { summary, waits }: Beside) {
  const { id, kind, state, recipient, url, routeId, attempts, lastStatus, lastError, account, batch } = delivery;
  const at = (time: number | null) => (time === null ? null : toTimestamp(new Date(time)));
  return {
    id,
    kind,
    state,
    from: summary.from,
    recipient: batch ? null : recipient,
    subject: summary.subject,
    message_id: summary.messageId,
    url,
    route: KINDS[kind].owner === 'route' ? routeId : null,
    webhook: batch?.webhook ?? null,
    events: batch?.events ?? null,
    account,
    attempts,
    parked: delivery.parked,
    accepted_at: at(delivery.createdAt),
    due_at: at(nextAttemptAt(delivery)),
    ended_at: at(delivery.endedAt),
    last_status: lastStatus,
    last_error: lastError,
    waits: waits?.text ?? null,
  };
}

/** States that can still be changed come first. */
const BY_INTEREST = [...OPEN_STATES, ...DELIVERY_STATES.filter((state) => !STATES[state].open)];

function deliveryTable(rows: readonly QueuedDelivery[], of: (row: QueuedDelivery) => Beside): string {
  if (rows.length === 0) return 'No matching deliveries.\n';
  const now = systemClock.now();
  return toTable(
    ['id', 'state', 'age', 'next', 'tries', 'kind', 'for', 'subject', 'endpoint', 'last answer'],
    rows.map((row) => [
      row.id,
      row.parked ? 'parked' : row.state,
      toSpan(now - row.createdAt),
      row.state === 'waiting' && !row.behind ? toSpan(row.dueAt - now) : null,
      row.attempts,
      row.kind,
      whatFor(row),
      toCell(of(row).summary.subject),
      hostOf(row.url),
      lastOf(row, of(row)),
    ]),
  );
}

/** The last answer; for a delivery without an attempt, why it waits. */
function lastOf({ lastStatus, lastError, attempts }: QueuedDelivery, { waits }: Beside): number | string | null {
  return lastStatus ?? lastError ?? (attempts === 0 && waits?.kind !== 'due' ? (waits?.kind ?? null) : null);
}

/** The recipient of a message, or the contents of a batch. */
function whatFor({ recipient, batch }: QueuedDelivery): string {
  return batch ? `${batch.events} ${batch.events === 1 ? 'event' : 'events'} of webhook ${batch.webhook}` : recipient;
}

export const queueList: Command = {
  name: 'queue list',
  args: '[ID…]',
  summary: 'Lists the deliveries of this host, newest first; by default those that are waiting, dead or held.',
  options: {
    ...selecting,
    state: {
      type: 'string',
      multiple: true,
      value: 'STATE',
      values: DELIVERY_STATES,
      help: `${DELIVERY_STATES.join(', ')} (may be repeated; default: ${OPEN_STATES.join(', ')})`,
    },
    limit: { type: 'string', value: 'N', help: 'maximum number of rows (default: 50)' },
  },
  async run(call, io) {
    const states = call.known('state', DELIVERY_STATES);
    const selection = toSelection(call, states.length > 0 ? states : OPEN_STATES);
    const limit = call.count('limit', 50);
    return withSpool(call.settings().settings, async (spool) => {
      const rows = await spool.list(selection, limit);
      const counts = await spool.count({});
      const of = await lookBeside(rows, spool, call.settings().settings);
      call.print(
        rows.map((row) => toShown(row, of(row))),
        () => `${deliveryTable(rows, of)}\n${BY_INTEREST.map((state) => `${counts[state]} ${state}`).join(', ')}\n`,
      );
      await sayOtherHosts(call, io);
      return EXIT.ok;
    });
  },
};

export const queueShow: Command = {
  name: 'queue show',
  args: 'ID',
  summary: 'Shows one delivery with all its attempts. --raw prints the message, or the events of a batch.',
  options: {
    verbose: {
      type: 'boolean',
      short: 'v',
      help: 'also print addresses, times, headers and SMTP dialogs of the last eight attempts',
    },
    raw: { type: 'boolean', help: 'print the raw message as received, or the events of a batch as JSON' },
  },
  async run(call, io) {
    const id = call.word('ID');
    return withSpool(call.settings().settings, async (spool) => {
      const delivery = await spool.delivery(id);
      if (!delivery) await sayOtherHosts(call, io);
      if (!delivery) return missing(io, id);
      if (call.flag('raw')) return printRaw(io, spool, delivery);
      const of = await lookBeside([delivery], spool, call.settings().settings);
      printStory(call, toShown(delivery, of(delivery)), await spool.attempts(id));
      return EXIT.ok;
    });
  },
};

function missing(io: Io, id: string): number {
  io.err(`No delivery ${printable(id)} in the queue of this host.\n`);
  return EXIT.failed;
}

async function printRaw(io: Io, spool: Spool, delivery: QueuedDelivery): Promise<number> {
  const found = await spool.message(delivery.messageId);
  if (!found) return missing(io, delivery.messageId);
  const bytes = await readAll(found.body);
  io.out(Buffer.concat([Buffer.from(traceBefore(found.message.trace, bytes)), bytes]));
  return EXIT.ok;
}

function printStory(call: Invocation, shown: ReturnType<typeof toShown>, attempts: readonly AttemptRecord[]): void {
  const story = attempts.map((attempt) => ({
    at: toTimestamp(new Date(attempt.at)),
    duration_ms: Math.round(attempt.durationMs),
    status: attempt.status,
    error: attempt.error,
    answer: attempt.answer,
    batch: attempt.batch ?? null,
    detail: attempt.detail === undefined ? null : (readDetail(attempt.detail) ?? null),
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
}

/** A detail as indented lines: `>` for what we sent, `<` for what the other side sent. */
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
