import type { MessageEventKind } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import type { MessageEvent, NewSentMessage } from './types.ts';

// What comes from mail or from a browser may be of any length; what is kept of it may not.

/** A tag has at most 50 characters (documented); a subject line at most 998 (RFC 5322 section 2.1.1). */
const LONGEST = { tag: 50, subject: 998, address: 320, name: 255, value: 500, detail: 2048 } as const;
const MOST_TAGS = 100;
/** Documented: metadata is flat and small. */
const MOST_METADATA = 50;

/** Which details are kept of an event. */
const DETAILS: Readonly<Record<MessageEventKind, readonly string[]>> = {
  send: ['diag', 'source_ip', 'destination_ip'],
  deferral: ['diag', 'description', 'code', 'source_ip', 'destination_ip'],
  hard_bounce: ['diag', 'description', 'code'],
  soft_bounce: ['diag', 'description', 'code'],
  open: ['url', 'ip', 'user_agent'],
  click: ['url', 'ip', 'user_agent'],
  spam: ['diag'],
  unsub: ['diag'],
  reject: ['reason', 'diag'],
};

/** The first `max` units of a text; a character of two units stays whole. */
function cut(text: string, max: number): string {
  return text.length <= max ? text : text.slice(0, max).replace(/[\ud800-\udbff]$/, '');
}

/** The row of a message that nothing has happened to yet. */
export function toMessageRow(message: NewSentMessage): SentMessageRow {
  const metadata = Object.entries(message.metadata)
    .slice(0, MOST_METADATA)
    .map(
      ([name, value]) =>
        [cut(name, LONGEST.name), typeof value === 'string' ? cut(value, LONGEST.value) : value] as const,
    );
  return {
    id: message.id,
    account: message.account,
    createdAt: message.createdAt,
    sender: cut(message.sender.toLowerCase(), LONGEST.address),
    email: cut(message.email, LONGEST.address),
    subject: cut(message.subject, LONGEST.subject),
    tags: [...new Set(message.tags.map((tag) => cut(tag, LONGEST.tag)))]
      .filter((tag) => tag !== '')
      .slice(0, MOST_TAGS),
    template: message.template,
    subaccount: message.subaccount,
    metadata: Object.fromEntries(metadata),
    apiKey: message.apiKey,
    delivery: message.delivery ?? null,
    state: 'queued',
    opens: 0,
    clicks: 0,
    openDetail: [],
    clickDetail: [],
    firstOpen: null,
    firstClick: null,
    diag: null,
    bounceDescription: null,
    version: 0,
  };
}

/** The details of an event that are kept. */
export function toDetail({ kind, detail = {} }: MessageEvent): Record<string, string | number | null> {
  return Object.fromEntries(
    DETAILS[kind].flatMap((name) => {
      const value = detail[name];
      return value === undefined ? [] : [[name, typeof value === 'string' ? cut(value, LONGEST.detail) : value]];
    }),
  );
}
