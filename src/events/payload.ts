import { hash } from 'node:crypto';
import { parseUserAgent } from '../mail/user-agent.ts';
import type { MessageEventKind, MessageEventRow } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import { textOf } from './outcome.ts';

/** The state that a webhook is told: the examples of the public ancestor keep `sent` for whatever happens to a delivered message. */
const TOLD: Readonly<Record<MessageEventKind | 'delivered', string>> = {
  send: 'sent',
  delivered: 'delivered',
  deferral: 'deferred',
  hard_bounce: 'bounced',
  soft_bounce: 'soft-bounced',
  open: 'sent',
  click: 'sent',
  spam: 'sent',
  unsub: 'sent',
  reject: 'rejected',
};

/** Numbers of the bounce classifier that consumers know, by its words. */
const BOUNCE_CODES: Readonly<Record<string, number>> = { bad_mailbox: 10, invalid_domain: 21, mailbox_full: 22 };

/** `delivered` is `send` once more, for webhooks that ask for it by name: the server of the recipient has taken the message. */
type Occurred = Pick<MessageEventRow, 'at' | 'detail'> & { readonly kind: MessageEventKind | 'delivered' };

/**
 * An event of a message as webhooks get it: names, types and the keys that only some kinds have are those that consumers of the
 * public ancestor read. `message` is the row with the event in it. Where an address is in the world is not known here (`location`).
 */
export function toPayload(event: Occurred, message: SentMessageRow): object {
  return {
    event: event.kind,
    _id: message.id,
    ts: seconds(event.at),
    ...visitOf(event),
    msg: { ...commonOf(event, message), ...extraOf(event, message) },
  };
}

const seconds = (date: Date) => Math.floor(date.getTime() / 1000);

/** Who opened or clicked. */
function visitOf({ kind, detail }: Occurred): object {
  if (kind !== 'open' && kind !== 'click') return {};
  const visit = {
    ip: textOf(detail['ip']),
    user_agent: textOf(detail['user_agent']),
    location: null,
    user_agent_parsed: parseUserAgent(textOf(detail['user_agent']) ?? '') ?? null,
  };
  return kind === 'click' ? { url: textOf(detail['url']) ?? '', ...visit } : visit;
}

function commonOf({ kind }: Occurred, message: SentMessageRow): object {
  const { id, version = 0, metadata } = message;
  return {
    ts: seconds(message.createdAt),
    subject: message.subject,
    email: message.email,
    sender: message.sender,
    tags: message.tags,
    state: TOLD[kind],
    // As PHP writes an empty map: consumers in typed languages were made for that.
    metadata: Object.keys(metadata).length > 0 ? metadata : [],
    subaccount: message.subaccount,
    template: message.template,
    diag: message.diag,
    bounce_description: message.bounceDescription,
    _id: id,
    _version: hash('sha256', `${id} ${version}`, 'base64url').slice(0, 22),
  };
}

/** What only some kinds have. A bounce has no opens and clicks. */
function extraOf({ kind, at, detail }: Occurred, message: SentMessageRow): object {
  const visits = { opens: message.openDetail, clicks: message.clickDetail };
  switch (kind) {
    case 'send':
    case 'delivered':
      return {
        ...visits,
        smtp_events: textOf(detail['diag']) === null ? [] : [smtpEvent('sent', at, detail)],
        resends: [],
        reject: null,
      };
    case 'deferral':
      return { ...visits, diag: textOf(detail['diag']), smtp_events: [smtpEvent('deferred', at, detail)] };
    case 'hard_bounce':
    case 'soft_bounce':
      return bounceOf(detail);
    case 'reject':
      return {
        ...visits,
        diag: textOf(detail['diag']),
        reject: textOf(detail['reason']) === null ? null : { reason: textOf(detail['reason']) },
      };
    default:
      return visits;
  }
}

function smtpEvent(type: 'sent' | 'deferred', at: Date, detail: MessageEventRow['detail']): object {
  return {
    ts: seconds(at),
    type,
    diag: textOf(detail['diag']),
    source_ip: textOf(detail['source_ip']) ?? '',
    destination_ip: textOf(detail['destination_ip']) ?? '',
    size: 0,
  };
}

function bounceOf(detail: MessageEventRow['detail']): object {
  const description = textOf(detail['description']);
  const code = typeof detail['code'] === 'number' ? detail['code'] : BOUNCE_CODES[description ?? ''];
  return { bounce_description: description, bgtools_code: code ?? null, diag: textOf(detail['diag']) };
}
