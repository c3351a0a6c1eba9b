import { z } from 'zod';
import { messageIdOf } from '../../base/ids.ts';
import { text } from '../../base/schema.ts';
import { MAIL_STATES, type MailRecord } from '../../journal/types.ts';
import { sentId } from '../../mail/addresses/return-address.ts';
import { askAll, withoutDuplicates } from '../hosts/join-hosts.ts';
import { operation } from '../operation.ts';
import { ALL_HOSTS, bool, record, str, strOrNull, time, toTime } from './fields.ts';

// The mail of one conversation in the history.

/** The latest messages of a conversation, at most this many. */
const MAX_SHOWN = 50;

const entry = record('mail of a conversation', {
  direction: z.enum(['in', 'out']).describe('in: received; out: sent'),
  id: str('in: the delivery, as in /inbound/info; out: the message, as in /messages/info'),
  at: time('when it was accepted'),
  from: strOrNull('the From header; null if it has none'),
  to: str('the recipient'),
  subject: strOrNull('the subject; null if it has none'),
  state: z.enum(MAIL_STATES).describe('state of its delivery'),
});

const found = z.object({
  mails: z.array(entry),
  more: bool('true if there is earlier mail'),
});

/** The latest mail of several hosts, oldest first; times in the form of the API are ordered as texts. */
function joinMails(parts: readonly z.output<typeof found>[]): z.output<typeof found> {
  const mails = withoutDuplicates(parts.flatMap((part) => part.mails));
  const all = mails.toSorted((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
  return { mails: all.slice(-MAX_SHOWN), more: all.length > MAX_SHOWN || parts.some(({ more }) => more) };
}

const conversation = operation({
  path: '/inbound/conversation',
  access: 'mail',
  extension: true,
  summary: 'Lists the mail of a conversation, received and sent, oldest first.',
  notes:
    `Takes the \`thread\` of a payload, /inbound/search or /messages/info, and lists the latest ${MAX_SHOWN} ` +
    'messages; a message posted to several URLs is listed once. ' +
    `Conversations are kept for journal.keep_days, unless journal.subjects is off. ${ALL_HOSTS}`,
  params: { thread: text(64).describe('id of the conversation') },
  returns: found,
  example: { thread: 'om2ZAsQjawEGHFuS_sHvKm' },
  async handle({ thread }, call) {
    const { rows, next } = await call.history.conversation(thread, MAX_SHOWN);
    const once = new Map(rows.map((mail) => [`${messageIdOf(mail.id)} ${mail.recipient}`, mail]));
    return { mails: [...once.values()].reverse().map(toEntry), more: next !== null };
  },
  across: { join: async (hosts) => joinMails(await askAll(hosts)) },
});

function toEntry({ id, kind, at, from, recipient, subject, state }: MailRecord): z.input<typeof entry> {
  const isOut = kind === 'outbound';
  return {
    direction: isOut ? 'out' : 'in',
    id: isOut ? sentId(id) : id,
    at: toTime(at),
    from,
    to: recipient,
    subject,
    state,
  };
}

export const conversations = [conversation];
