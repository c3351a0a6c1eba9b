import { toTimestamp } from '../base/clock.ts';
import type { MessageEventKind } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import type { HookEvent } from '../store/outbox.ts';
import { toSyncReject } from './list-events.ts';
import { toPayload } from './payload.ts';

const LETTERS = 'abcdefghijk';
const USER_AGENT = 'Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; en-US; rv:1.9.1.8) Gecko/20100317 Postbox/1.1.3';

/** What the detail of an example says, by its kind. */
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
};

/** An example of each event as JSON text, in the words of the public ancestor's test button: consumers may tell them by these. */
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
