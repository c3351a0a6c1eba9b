import { readFile } from 'node:fs/promises';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { printable } from '../base/log.ts';
import { traceBefore } from '../mail/headless.ts';
import { isMailUrl } from '../mail/sending.ts';
import type { AttemptRecord, DeliveryState, QueuedDelivery, Spool } from '../spool/types.ts';
import { type Command, EXIT, type Invocation, type Io, UsageError } from './command.ts';
import { withSpool } from './open.ts';
import { type KINDS, selecting, toSelection } from './selection.ts';
import { toSpan, toTable } from './table.ts';

const STATES = ['waiting', 'dead', 'delivered', 'dropped'] as const satisfies readonly DeliveryState[];

function toShown(delivery: QueuedDelivery) {
  const { id, state, recipient, url, routeId, attempts, lastStatus, lastError, account, batch } = delivery;
  const kind = kindOf(delivery);
  const at = (time: number | null) => (time === null ? null : toTimestamp(new Date(time)));
  return {
    id,
    kind,
    state,
    recipient: batch ? null : recipient,
    url,
    route: kind === 'mail' ? routeId : null,
    webhook: batch?.webhook ?? null,
    events: batch?.events ?? null,
    account,
    attempts,
    parked: delivery.parked,
    accepted_at: at(delivery.createdAt),
    due_at: state === 'waiting' ? at(delivery.dueAt) : null,
    ended_at: at(delivery.endedAt),
    last_status: lastStatus,
    last_error: lastError,
  };
}

/** What a delivery is, in the words of `--kind`. */
function kindOf({ url, batch }: QueuedDelivery): (typeof KINDS)[number] {
  if (isMailUrl(url)) return 'outgoing';
  return batch ? 'batch' : 'mail';
}

function deliveryTable(rows: readonly QueuedDelivery[]): string {
  if (rows.length === 0) return 'No matching deliveries.\n';
  const now = systemClock.now();
  return toTable(
    ['id', 'state', 'age', 'next', 'tries', 'kind', 'for', 'endpoint', 'last answer'],
    rows.map((row) => [
      row.id,
      row.parked ? 'parked' : row.state,
      toSpan(now - row.createdAt),
      row.state === 'waiting' ? toSpan(row.dueAt - now) : null,
      row.attempts,
      kindOf(row),
      whatFor(row),
      hostOf(row.url),
      row.lastStatus ?? row.lastError,
    ]),
  );
}

/** The recipient of a message, or what is in a batch. */
function whatFor({ recipient, batch }: QueuedDelivery): string {
  return batch ? `${batch.events} ${batch.events === 1 ? 'event' : 'events'} of webhook ${batch.webhook}` : recipient;
}

/** A webhook URL may carry secrets: lists show its host alone. */
function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}

export const queueList: Command = {
  name: 'queue list',
  args: '[ID…]',
  summary: 'Lists the deliveries of this host, newest first: what waits and what was given up.',
  options: {
    ...selecting,
    state: {
      type: 'string',
      multiple: true,
      value: 'STATE',
      values: STATES,
      help: `${STATES.join(', ')} (may be repeated; default: waiting and dead)`,
    },
    limit: { type: 'string', value: 'N', help: 'at most so many (default 50)' },
  },
  async run(call) {
    const selection = toSelection(call, toStates(call.texts('state')));
    const limit = Number(call.text('limit') ?? 50);
    if (!Number.isInteger(limit) || limit < 1) throw new UsageError('--limit must be a whole number from 1 on');
    return withSpool(call.settings().settings, async (spool) => {
      const rows = await spool.list(selection, limit);
      const { waiting, dead, delivered, dropped } = await spool.count({});
      call.print(
        rows.map(toShown),
        () =>
          `${deliveryTable(rows)}\n${waiting} waiting, ${dead} dead, ${delivered} delivered and kept, ${dropped} dropped\n`,
      );
      return EXIT.ok;
    });
  },
};

function toStates(texts: readonly string[]): readonly DeliveryState[] {
  if (texts.length === 0) return ['waiting', 'dead'];
  return texts.map((text) => {
    const state = STATES.find((known) => known === text);
    if (!state) throw new UsageError(`--state must be one of ${STATES.join(', ')}; not "${text}"`);
    return state;
  });
}

export const queueShow: Command = {
  name: 'queue show',
  args: 'ID',
  summary: 'Shows one delivery with all its attempts; --raw prints the message itself, or the events of a batch.',
  options: { raw: { type: 'boolean', help: 'the raw message, as it came; of a batch its events as JSON' } },
  async run(call, io) {
    const id = call.words[0];
    if (id === undefined) throw new UsageError('missing argument: ID');
    return withSpool(call.settings().settings, async (spool) => {
      const delivery = await spool.delivery(id);
      if (!delivery) return missing(io, id);
      if (call.flag('raw')) return printRaw(io, spool, delivery);
      printStory(call, delivery, await spool.attempts(id));
      return EXIT.ok;
    });
  },
};

function missing(io: Io, id: string): number {
  io.err(`There is no delivery ${printable(id)} in the queue of this host.\n`);
  return EXIT.failed;
}

async function printRaw(io: Io, spool: Spool, delivery: QueuedDelivery): Promise<number> {
  const found = await spool.message(delivery.messageId);
  if (!found) return missing(io, delivery.messageId);
  const bytes = found.body.kind === 'inline' ? found.body.bytes : await readFile(found.body.path);
  io.out(Buffer.concat([Buffer.from(traceBefore(found.message.trace, bytes)), bytes]));
  return EXIT.ok;
}

function printStory(call: Invocation, delivery: QueuedDelivery, attempts: readonly AttemptRecord[]): void {
  const story = attempts.map((attempt) => ({
    at: toTimestamp(new Date(attempt.at)),
    duration_ms: Math.round(attempt.durationMs),
    status: attempt.status,
    error: attempt.error,
    answer: attempt.answer,
  }));
  const facts = Object.entries(toShown(delivery)).map(
    ([name, value]) => `${name.padEnd(12)} ${printable(String(value ?? '-'))}`,
  );
  const table =
    story.length === 0
      ? 'No attempt yet.\n'
      : toTable(
          ['time', 'ms', 'status', 'answer'],
          story.map((a) => [a.at, a.duration_ms, a.status ?? a.error, a.answer]),
        );
  call.print([{ ...toShown(delivery), attempts_made: story }], () => `${facts.join('\n')}\n\n${table}`);
}
