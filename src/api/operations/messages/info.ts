import { z } from 'zod';
import { text } from '../../../base/schema.ts';
import { threadOfSent } from '../../../mail/replies/sent-names.ts';
import type { AttemptRecord, QueuedDelivery } from '../../../queue/delivery.ts';
import { DETAIL_BYTES, readDetail } from '../../../queue/detail.ts';
import { DELIVERY_STATES } from '../../../queue/states.ts';
import type { MessageEventRow, SentMessageRow } from '../../../store/rows/messages.ts';
import { type Call, operation } from '../../operation.ts';
import { bool, int, intOrNull, listOf, record, str, strOrNull, time, timeOrNull, toTime } from '../fields.ts';

// Records of sent messages, and their conversion from rows.

const seconds = (date: Date) => Math.floor(date.getTime() / 1000);
const maybe = z.string().nullable();

const visit = {
  ts: int('when, in seconds since 1970'),
  ip: maybe.describe('IP address; only in /messages/info'),
  location: maybe.describe('always null'),
  ua: maybe.describe('user agent; only in /messages/info'),
};

const fields = {
  ts: int('when it was submitted, in seconds since 1970'),
  _id: str('the id of the message'),
  sender: str('the address of its From header'),
  template: strOrNull('slug of its template'),
  subject: str('the subject'),
  email: str('the recipient'),
  tags: listOf(z.string(), 'its tags'),
  opens: int('number of opens'),
  opens_detail: listOf(z.object(visit), 'the latest opens'),
  clicks: int('number of clicks'),
  clicks_detail: listOf(z.object({ ...visit, url: str('the URL that was clicked') }), 'the latest clicks'),
  state: z
    .enum(['queued', 'sent', 'deferred', 'bounced', 'soft-bounced', 'rejected', 'spam', 'unsub'])
    .describe(
      'deferred: is being retried; sent: the receiving server accepted it; spam: the recipient complained; unsub: ' +
        'the recipient unsubscribed',
    ),
  metadata: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).describe('its metadata'),
  subaccount: strOrNull('id of the subaccount (not part of the Mandrill API)'),
  diag: strOrNull('reply of the receiving server, for a bounce (not part of the Mandrill API)'),
  bounce_description: strOrNull('the kind of bounce (not part of the Mandrill API)'),
};

export const messageRecord = record('message record', fields);

const connectionRecord = z.object({
  host: str('name of the server'),
  address: str('its IP address and port'),
  source_ip: strOrNull('IP address of the host that sent it; null without a connection'),
  tls: strOrNull('TLS version; null without TLS'),
  reused: bool('whether the connection was open from an earlier message'),
  duration_ms: z.number().describe('how long it took, in milliseconds'),
  error: strOrNull('why it ended without a reply to the message, or null'),
  dialog: listOf(
    z.string(),
    'the SMTP dialog: lines with `> ` were sent, lines with `< ` are replies; the message is shown by its size',
  ),
});

const mailAttemptRecord = z.object({
  time: time('when it began'),
  duration_ms: z.number().describe('how long it took, in milliseconds'),
  status: intOrNull('SMTP reply code; null without a reply'),
  error: strOrNull('why there was no reply, or null'),
  answer: str('the reply'),
  connections: listOf(
    connectionRecord,
    `the connections of the attempt, in order; kept for the last eight attempts, up to ${DETAIL_BYTES} bytes ` + 'each',
  ),
  connections_left_out: int('number of earlier connections left out'),
});

const sentDelivery = z.object({
  state: z
    .enum(DELIVERY_STATES)
    .describe('dead: retries have ended; dropped: dropped by a person; held: inbound mail only'),
  next_attempt_at: timeOrNull('time of the next attempt', 'null unless it is waiting'),
  attempts: listOf(mailAttemptRecord, 'every attempt, oldest first'),
});

/** The latest replies to a message, in its record. */
const MAX_REPLIES = 50;

const replyRecord = z.object({
  ts: int('when it was accepted, in seconds since 1970'),
  id: strOrNull('id of the received message: `msg.id` in its payload'),
  from_email: strOrNull('its author'),
  email: strOrNull('its recipient'),
  subject: maybe,
  automated: strOrNull('why it counts as automated (`msg.automated.why` in its payload), or null'),
});

const infoRecord = record('message detail', {
  ...fields,
  smtp_events: listOf(
    z.object({
      ts: int('when, in seconds since 1970'),
      type: str('sent, deferred, bounced or soft-bounced'),
      diag: str('the reply of the receiving server'),
      source_ip: strOrNull('address of the host that sent it (not part of the Mandrill API, as those below)'),
      destination_ip: strOrNull('address of the server that replied; null if none did'),
      destination: strOrNull('name of that server'),
    }),
    'events of its delivery, oldest first',
  ),
  thread: str('id of its conversation, the same as `msg.thread` of its replies (not part of the Mandrill API)'),
  replies: listOf(
    replyRecord,
    `replies to it that routes of the account received, oldest first: the latest ${MAX_REPLIES} (not part of ` +
      'the Mandrill API)',
  ),
  delivery: sentDelivery
    .nullable()
    .describe(
      'its delivery; null if it is not, or no longer, in the queue of this host (not part of the Mandrill API)',
    ),
});

/** The record of a message as a search returns it. */
export function toMessageRecord(row: SentMessageRow): z.input<typeof messageRecord> {
  return {
    ts: seconds(row.createdAt),
    _id: row.id,
    sender: row.sender,
    template: row.template,
    subject: row.subject,
    email: row.email,
    tags: [...row.tags],
    opens: row.opens,
    opens_detail: row.openDetail.map(({ ts }) => ({ ts, ...NOBODY })),
    clicks: row.clicks,
    clicks_detail: row.clickDetail.map(({ ts, url }) => ({ ts, ...NOBODY, url })),
    state: row.state,
    metadata: { ...row.metadata },
    subaccount: row.subaccount,
    diag: row.diag,
    bounce_description: row.bounceDescription,
  };
}

const NOBODY = { ip: null, location: null, ua: null };

function toInfo(
  row: SentMessageRow,
  events: readonly MessageEventRow[],
  replies: readonly MessageEventRow[],
  kept: { readonly delivery: QueuedDelivery; readonly attempts: readonly AttemptRecord[] } | undefined,
): z.input<typeof infoRecord> {
  const opens = events.filter(({ kind }) => kind === 'open').map((event) => visitOf(event));
  const clicks = events
    .filter(({ kind }) => kind === 'click')
    .map((event) => ({ ...visitOf(event), url: textOf(event, 'url') ?? '' }));
  const found = toMessageRecord(row);
  return {
    ...found,
    opens_detail: opens.length > 0 ? opens : found.opens_detail,
    clicks_detail: clicks.length > 0 ? clicks : found.clicks_detail,
    smtp_events: events.flatMap((event) => {
      const type = SMTP_TYPES[event.kind];
      if (type === undefined) return [];
      return [
        {
          ts: seconds(event.at),
          type,
          diag: textOf(event, 'diag') ?? '',
          source_ip: textOf(event, 'source_ip'),
          destination_ip: textOf(event, 'destination_ip'),
          destination: textOf(event, 'destination'),
        },
      ];
    }),
    thread: threadOfSent(row.id, row),
    replies: replies.map((event) => ({
      ts: seconds(event.at),
      id: textOf(event, 'inbound'),
      from_email: textOf(event, 'from'),
      email: textOf(event, 'recipient'),
      subject: textOf(event, 'subject'),
      automated: textOf(event, 'automated'),
    })),
    delivery: kept
      ? {
          state: kept.delivery.state,
          next_attempt_at: kept.delivery.state === 'waiting' ? toTime(kept.delivery.dueAt) : null,
          attempts: kept.attempts.toSorted((a, b) => a.at - b.at).map(toMailAttempt),
        }
      : null,
  };
}

function toMailAttempt({ at, durationMs, status, error, answer, detail: text }: AttemptRecord) {
  const detail = readDetail(text);
  const { hops = [], leftOut = 0 } = detail && 'hops' in detail ? detail : {};
  return {
    time: toTime(at),
    duration_ms: durationMs,
    status,
    error,
    answer,
    connections: hops.map(({ host, address, source, tls, reused, ms, error, dialog }) => ({
      host,
      address,
      source_ip: source ?? null,
      tls: tls ?? null,
      reused: reused ?? false,
      duration_ms: ms,
      error: error ?? null,
      dialog: [...dialog],
    })),
    connections_left_out: leftOut,
  };
}

const SMTP_TYPES: Readonly<Partial<Record<MessageEventRow['kind'], string>>> = {
  send: 'sent',
  deferral: 'deferred',
  hard_bounce: 'bounced',
  soft_bounce: 'soft-bounced',
};

function visitOf(event: MessageEventRow) {
  return { ts: seconds(event.at), ip: textOf(event, 'ip'), location: null, ua: textOf(event, 'user_agent') };
}

function textOf({ detail }: MessageEventRow, name: string): string | null {
  const value = detail[name];
  return value === undefined || value === null ? null : String(value);
}

export const messageId = text(255).describe('id of the message: `_id` in results and webhooks');

/** Maximum events of a message in its record; if there are more, the first ones are shown. */
const MAX_EVENTS = 500;

/** Throws Unknown_Message, also for a message of another account. */
export async function findMessage(id: string, { store, orRefuse }: Call<'Unknown_Message'>): Promise<SentMessageRow> {
  return orRefuse(await store.messages.one({ id }), 'Unknown_Message', id);
}

const info = operation({
  path: '/messages/info',
  access: 'mail',
  summary: 'Shows a sent message and what happened to it.',
  params: { id: messageId },
  returns: infoRecord,
  errors: ['Unknown_Message'],
  example: { id: '5c1e0d0000000000000000000000000a' },
  async handle({ id }, call) {
    const row = await findMessage(id, call);
    const [events, replies, kept] = await Promise.all([
      call.store.messageEvents.many({ message: id }, { sort: 'at', limit: MAX_EVENTS }),
      call.store.messageEvents.many({ message: id, kind: 'reply' }, { sort: '-at', limit: MAX_REPLIES }),
      row.delivery ? call.messages.delivery(row.delivery) : undefined,
    ]);
    return toInfo(row, events, replies.toReversed(), kept);
  },
});

export const messagesInfo = [info];
