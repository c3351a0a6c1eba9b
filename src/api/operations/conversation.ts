import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { text } from '../../base/schema.ts';
import { MAIL_STATES, type MailRecord } from '../../journal/types.ts';
import { sentId } from '../../mail/return-address.ts';
import { operation } from '../operation.ts';
import { str, time } from './fields.ts';

// The mail of one conversation, as this host remembers it.

/** Mail of a conversation that is shown: its latest. */
const MOST_SHOWN = 50;

const maybe = z.string().nullable();

const entry = z
  .object({
    way: z.enum(['in', 'out']).meta({ description: 'in: received; out: sent' }),
    id: str('in: the delivery, as in /inbound/info; out: the message, as in /messages/info'),
    at: time('when it was accepted'),
    from: maybe.meta({ description: 'From of the header; null if there is none' }),
    to: str('the recipient'),
    subject: maybe,
    state: z.enum(MAIL_STATES).meta({ description: 'of its delivery' }),
  })
  .meta({ title: 'mail of a conversation' });

const conversation = operation({
  path: '/inbound/conversation',
  access: 'mail',
  extension: true,
  summary: 'Lists the mail of a conversation, received and sent, oldest first.',
  notes:
    `\`thread\` is that of a payload, of /inbound/search or of /messages/info. It lists the latest ${MOST_SHOWN}; a message that is posted to several URLs is there once. ` +
    'It is remembered for journal.keep_days, unless journal.subjects is off. With several hosts, each remembers only what it did itself.',
  params: { thread: text(64).meta({ description: 'id of the conversation' }) },
  returns: z.object({
    mails: z.array(entry),
    more: z.boolean().meta({ description: 'whether there is earlier mail' }),
  }),
  errors: [],
  example: {
    params: { thread: 'om2ZAsQjawEGHFuS_sHvKm' },
    answer: {
      mails: [
        {
          way: 'out',
          id: '3aa1adb2d3347ba920935ec857c04874',
          at: '2026-01-05 09:30:00',
          from: 'Example Name <news@example.com>',
          to: 'reader@example.com',
          subject: 'example subject',
          state: 'delivered',
        },
        {
          way: 'in',
          id: '01kcexampleanswer000000000-PGsGOIK9wYbz',
          at: '2026-01-05 11:30:00',
          from: 'Reader <reader@example.com>',
          to: 'mailbox-123@inbound.example.com',
          subject: 'Re: example subject',
          state: 'waiting',
        },
      ],
      more: false,
    },
  },
  async handle({ thread }, call) {
    const { rows, next } = await call.history.conversation(thread, MOST_SHOWN);
    const once = new Map(rows.map((mail) => [`${messageOf(mail)} ${mail.recipient}`, mail]));
    return { mails: [...once.values()].reverse().map(toEntry), more: next !== null };
  },
});

/** A delivery id is the message id, a hyphen and more (base/ids.ts). */
const messageOf = ({ id }: MailRecord): string => id.split('-', 1)[0] ?? id;

function toEntry({ id, kind, at, from, recipient, subject, state }: MailRecord): z.input<typeof entry> {
  const isOut = kind === 'outbound';
  return {
    way: isOut ? 'out' : 'in',
    id: isOut ? sentId(id) : id,
    at: toTimestamp(new Date(at)),
    from,
    to: recipient,
    subject,
    state,
  };
}

/** The mail of a conversation; not part of Mandrill's API. */
export const conversations = [conversation];
