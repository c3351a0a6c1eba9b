import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import type { MessageEventRow } from '../../store/message-events.ts';
import type { SentMessageRow } from '../../store/messages.ts';
import type { ScheduledRow } from '../../store/scheduled.ts';

// Records of sent messages, and how rows become them.

const seconds = (date: Date) => Math.floor(date.getTime() / 1000);
const say = (description: string) => z.string().meta({ description });
const time = (description: string) => say(`${description}, UTC, YYYY-MM-DD HH:MM:SS`);
const maybe = z.string().nullable();

const visit = { ts: z.int(), ip: maybe, location: maybe, ua: maybe };

const fields = {
  ts: z.int().meta({ description: 'when it was handed over, seconds since 1970' }),
  _id: say('the id of the message'),
  sender: say('the address of its From header'),
  template: maybe.meta({ description: 'slug of the template that it was made of' }),
  subject: z.string(),
  email: say('the recipient'),
  tags: z.array(z.string()),
  opens: z.int(),
  opens_detail: z
    .array(z.object(visit))
    .meta({ description: 'the latest opens; who opened is known in /messages/info' }),
  clicks: z.int(),
  clicks_detail: z.array(z.object({ ...visit, url: z.string() })).meta({ description: 'the latest clicks' }),
  state: z.enum(['queued', 'sent', 'deferred', 'bounced', 'soft-bounced', 'rejected', 'spam', 'unsub']),
  metadata: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  subaccount: maybe.meta({ description: 'id of the subaccount (beyond the public ancestor)' }),
  diag: maybe.meta({ description: 'what the server of the recipient said to a bounce (beyond the public ancestor)' }),
  bounce_description: maybe.meta({ description: 'the kind of bounce (beyond the public ancestor)' }),
};

export const foundRecord = z.object(fields).meta({ title: 'message record' });

export const infoRecord = z
  .object({
    ...fields,
    smtp_events: z
      .array(z.object({ ts: z.int(), type: z.string(), diag: z.string() }))
      .meta({ description: 'what happened while it was delivered: sent, deferred, bounced, soft-bounced' }),
  })
  .meta({ title: 'message detail' });

export const scheduledRecord = z
  .object({
    _id: say('the id of the message'),
    created_at: time('when it was handed over'),
    send_at: time('when it is to be sent'),
    from_email: z.string(),
    to: z.string(),
    subject: z.string(),
  })
  .meta({ title: 'scheduled message' });

/** A message as a search finds it. */
export function toFound(row: SentMessageRow): z.input<typeof foundRecord> {
  const {
    sender,
    template,
    subject,
    email,
    tags,
    opens,
    clicks,
    state,
    metadata,
    subaccount,
    diag,
    bounceDescription,
  } = row;
  return {
    ts: seconds(row.createdAt),
    _id: row.id,
    sender,
    template,
    subject,
    email,
    tags: [...tags],
    opens,
    opens_detail: row.openDetail.map(({ ts }) => ({ ts, ...NOBODY })),
    clicks,
    clicks_detail: row.clickDetail.map(({ ts, url }) => ({ ts, ...NOBODY, url })),
    state,
    metadata: { ...metadata },
    subaccount,
    diag,
    bounce_description: bounceDescription,
  };
}

const NOBODY = { ip: null, location: null, ua: null };

/** A message with what its events tell. */
export function toInfo(row: SentMessageRow, events: readonly MessageEventRow[]): z.input<typeof infoRecord> {
  const opens = events.filter(({ kind }) => kind === 'open').map((event) => visitOf(event));
  const clicks = events
    .filter(({ kind }) => kind === 'click')
    .map((event) => ({ ...visitOf(event), url: textOf(event, 'url') ?? '' }));
  const found = toFound(row);
  return {
    ...found,
    opens_detail: opens.length > 0 ? opens : found.opens_detail,
    clicks_detail: clicks.length > 0 ? clicks : found.clicks_detail,
    smtp_events: events.flatMap((event) => {
      const type = SMTP_TYPES[event.kind];
      return type === undefined ? [] : [{ ts: seconds(event.at), type, diag: textOf(event, 'diag') ?? '' }];
    }),
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

/** A message that waits for its time. */
export function toScheduledRecord({
  id,
  createdAt,
  sendAt,
  sender,
  email,
  subject,
}: ScheduledRow): z.input<typeof scheduledRecord> {
  return {
    _id: id,
    created_at: toTimestamp(createdAt),
    send_at: toTimestamp(sendAt),
    from_email: sender,
    to: email,
    subject,
  };
}
