import { hash } from 'node:crypto';
import { toTimestamp } from '../base/clock.ts';
import { parseUserAgent } from '../mail/user-agent.ts';
import { asText, type MessageEventKind, type MessageEventRow, type SentMessageRow } from '../store/rows/messages.ts';
import type { HookEvent } from '../store/rows/webhooks.ts';
import { toSyncReject } from './lists.ts';

/** The state in webhook payloads: Mandrill's examples keep `sent` whatever happens to a delivered message. */
const STATES: Readonly<Record<MessageEventKind | 'delivered', string>> = {
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
  reply: 'sent',
};

/** Codes of the bounce classifier that clients know, by description. */
const BOUNCE_CODES: Readonly<Record<string, number>> = { bad_mailbox: 10, invalid_domain: 21, mailbox_full: 22 };

/** `delivered` repeats `send` for webhooks that subscribe to it: the recipient's server has accepted the message. */
type PayloadEvent = Pick<MessageEventRow, 'at' | 'detail'> & { readonly kind: MessageEventKind | 'delivered' };

/**
 * The webhook payload of a message event: names, types and the keys that only some kinds have are Mandrill's. `message`
 * is the row with the event applied. Geolocation is not available (`location`).
 */
export function toPayload(event: PayloadEvent, message: SentMessageRow): object {
  return {
    event: event.kind,
    _id: message.id,
    ts: seconds(event.at),
    ...visitOf(event),
    ...replyOf(event),
    msg: { ...commonOf(event, message), ...extraOf(event, message) },
  };
}

const seconds = (date: Date) => Math.floor(date.getTime() / 1000);

/** The client that opened or clicked. */
function visitOf({ kind, detail }: PayloadEvent): object {
  if (kind !== 'open' && kind !== 'click') return {};
  const visit = {
    ip: asText(detail['ip']),
    user_agent: asText(detail['user_agent']),
    location: null,
    user_agent_parsed: parseUserAgent(asText(detail['user_agent']) ?? '') ?? null,
  };
  return kind === 'click' ? { url: asText(detail['url']) ?? '', ...visit } : visit;
}

/** The reply that came in. */
function replyOf({ kind, detail }: PayloadEvent): object {
  if (kind !== 'reply') return {};
  const { inbound = null, from = null, recipient = null, subject = null, automated = null } = detail;
  return { reply: { id: inbound, from_email: from, email: recipient, subject, automated } };
}

function commonOf({ kind }: PayloadEvent, message: SentMessageRow): object {
  const { id, version = 0, metadata } = message;
  return {
    ts: seconds(message.createdAt),
    subject: message.subject,
    email: message.email,
    sender: message.sender,
    tags: message.tags,
    state: STATES[kind],
    // PHP's encoding of an empty map, which clients in typed languages expect.
    metadata: Object.keys(metadata).length > 0 ? metadata : [],
    subaccount: message.subaccount,
    template: message.template,
    diag: message.diag,
    bounce_description: message.bounceDescription,
    _id: id,
    _version: hash('sha256', `${id} ${version}`, 'base64url').slice(0, 22),
  };
}

/** Keys that only some kinds have. A bounce has no opens and clicks. */
function extraOf({ kind, at, detail }: PayloadEvent, message: SentMessageRow): object {
  const visits = { opens: message.openDetail, clicks: message.clickDetail };
  switch (kind) {
    case 'send':
    case 'delivered':
      return {
        ...visits,
        smtp_events: asText(detail['diag']) === null ? [] : [smtpEvent('sent', at, detail)],
        resends: [],
        reject: null,
      };
    case 'deferral':
      return { ...visits, diag: asText(detail['diag']), smtp_events: [smtpEvent('deferred', at, detail)] };
    case 'hard_bounce':
    case 'soft_bounce':
      return bounceOf(detail);
    case 'reject':
      return {
        ...visits,
        diag: asText(detail['diag']),
        reject: asText(detail['reason']) === null ? null : { reason: asText(detail['reason']) },
      };
    default:
      return visits;
  }
}

function smtpEvent(type: 'sent' | 'deferred', at: Date, detail: MessageEventRow['detail']): object {
  return {
    ts: seconds(at),
    type,
    diag: asText(detail['diag']),
    source_ip: asText(detail['source_ip']) ?? '',
    destination_ip: asText(detail['destination_ip']) ?? '',
    size: 0,
  };
}

function bounceOf(detail: MessageEventRow['detail']): object {
  const description = asText(detail['description']);
  const code = typeof detail['code'] === 'number' ? detail['code'] : BOUNCE_CODES[description ?? ''];
  return {
    bounce_description: description,
    bgtools_code: code ?? null,
    diag: asText(detail['diag']),
    // Beyond Mandrill's: the rule of our classifier; events of earlier versions have none.
    ...(asText(detail['rule']) === null ? {} : { bounce_rule: asText(detail['rule']) }),
  };
}

const LETTERS = 'abcdefghijk';
const USER_AGENT = 'Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; en-US; rv:1.9.1.8) Gecko/20100317 Postbox/1.1.3';

/** Details of the examples, by kind. */
const DETAILS: Readonly<Partial<Record<MessageEventKind | 'delivered', Readonly<Record<string, string>>>>> = {
  delivered: { diag: '250 2.0.0 OK', source_ip: '127.0.0.1', destination_ip: '127.0.0.1' },
  deferral: {
    diag: '451 4.3.5 Temporarily unavailable, try again later.',
    source_ip: '127.0.0.1',
    destination_ip: '127.0.0.1',
  },
  hard_bounce: {
    description: 'bad_mailbox',
    diag: 'smtp;550 5.1.1 The email account that you tried to reach does not exist.',
  },
  soft_bounce: { description: 'mailbox_full', diag: 'smtp;552 5.2.2 Over Quota' },
  open: { ip: '127.0.0.1', user_agent: USER_AGENT },
  click: { ip: '127.0.0.1', user_agent: USER_AGENT, url: 'https://example.com/' },
  reject: { reason: 'hard-bounce' },
  reply: {
    inbound: '01kcexamplemessage00000000',
    from: 'example.webhook@example.com',
    recipient: 'support@in.example.com',
    subject: 'Re: This an example webhook message',
  },
};

/** An example of each event as JSON, worded as by Mandrill's test button: clients may recognize tests by that. */
export function toExampleEvents(events: readonly HookEvent[], now: Date): string[] {
  return events.map((event, n) =>
    JSON.stringify(toExample(event, `example${LETTERS.charAt(n % LETTERS.length).repeat(25)}`, now)),
  );
}

function toExample(event: HookEvent, id: string, now: Date): object {
  const ts = Math.floor(now.getTime() / 1000);
  if (event === 'whitelist') {
    const entry = { email: 'example.email@example.com', detail: 'Example detail', created_at: toTimestamp(now) };
    return { type: 'whitelist', action: 'add', entry, ts };
  }
  if (event === 'blacklist')
    return { type: 'blacklist', action: 'add', reject: toSyncReject(exampleReject(now), now), ts };
  return toPayload({ kind: event, at: now, detail: DETAILS[event] ?? {} }, exampleMessage(id, now));
}

function exampleMessage(id: string, now: Date): SentMessageRow {
  const ts = Math.floor(now.getTime() / 1000);
  return {
    id,
    account: '',
    createdAt: now,
    sender: 'example.sender@example.com',
    email: 'example.webhook@example.com',
    subject: 'This an example webhook message',
    tags: ['webhook-example'],
    template: null,
    subaccount: null,
    metadata: { user_id: 111 },
    apiKey: null,
    state: 'sent',
    opens: 1,
    clicks: 1,
    openDetail: [{ ts }],
    clickDetail: [{ ts, url: 'https://example.com/' }],
    diag: null,
    bounceDescription: null,
    version: 0,
  };
}

function exampleReject(now: Date) {
  return {
    email: 'example.email@example.com',
    subaccount: '',
    reason: 'hard-bounce',
    detail: 'Example detail',
    createdAt: now,
    lastEventAt: now,
    expiresAt: new Date(now.getTime() + 7 * 86_400_000),
    expired: false,
    sender: null,
    termMs: 0,
    removed: false,
    version: 0,
    unsent: null,
    unsentSince: null,
  } as const;
}
