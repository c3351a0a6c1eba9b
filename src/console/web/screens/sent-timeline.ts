import { h } from '../h.ts';
import type { Mark, Tone } from '../parts/elements.ts';
import type { IconName } from '../parts/icons.ts';
import { count, plain, replyText, span, toMs } from '../parts/text.ts';
import { Happening } from '../parts/timeline.ts';
import type { Connection, MailAttempt, SentStory, Visit } from '../records.ts';

// What happened to a message out, in the order of time, with the SMTP dialogs of its attempts.

export function Timeline({ message }: { readonly message: SentStory }) {
  return h('ol.timeline', [
    toEntries(message).map(({ attempt, open = false, ...entry }, i) =>
      h(Happening, { key: i, ...entry, afterMs: entry.at - message.ts * 1000 }, [
        attempt && h(Dialogs, { attempt, open }),
      ]),
    ),
  ]);
}

interface Entry extends Omit<Mark, 'word'> {
  readonly at: number;
  readonly text: string;
  readonly detail?: string;
  readonly attempt?: MailAttempt;
  /** Whether its dialog is open at first. */
  readonly open?: boolean;
}

/** The attempts of the queue say more than the events of the store, and are forgotten sooner. */
function toEntries(message: SentStory): readonly Entry[] {
  const { ts, state, delivery, smtp_events: events, opens_detail: opens, clicks_detail: clicks } = message;
  const attempts = delivery?.attempts ?? [];
  const known = attempts.length > 0;
  const entries: readonly Entry[] = [
    { at: ts * 1000, icon: 'dot', tone: 'off', text: `Submitted from ${message.sender}` },
    ...(state === 'rejected'
      ? [{ at: ts * 1000, icon: 'refused', tone: 'bad', text: 'Not sent: the address is suppressed' } as const]
      : []),
    ...attempts.map((attempt, i) => toEntry(attempt, i === attempts.length - 1)),
    ...events
      .filter(({ type }) => !known || type === 'bounced' || type === 'soft-bounced')
      .map(({ ts: at, type, diag, destination, destination_ip: address }): Entry => {
        const [icon, tone, text] = EVENTS[type] ?? (['dot', 'off', type] as const);
        const where = destination === null ? '' : ` by ${destination}${address === null ? '' : ` (${address})`}`;
        return { at: at * 1000, icon, tone, text: text + where, detail: replyText(diag) };
      }),
    ...opens.map((visit): Entry => ({ ...visitOf(visit), text: 'Opened' })),
    ...clicks.map((visit): Entry => ({ ...visitOf(visit), text: `Clicked ${visit.url}` })),
  ];
  return entries.toSorted((a, b) => a.at - b.at);
}

const EVENTS: Readonly<Record<string, readonly [IconName, Tone, string]>> = {
  sent: ['check', 'good', 'Accepted'],
  deferred: ['clock', 'wait', 'Deferred'],
  bounced: ['cross', 'bad', 'Bounced'],
  'soft-bounced': ['cross', 'bad', 'Soft-bounced'],
};

function toEntry(attempt: MailAttempt, isLast: boolean): Entry {
  const { time, duration_ms: ms, status, error, answer, connections } = attempt;
  const host = connections.at(-1)?.host;
  const ok = status !== null && status >= 200 && status < 300;
  return {
    at: toMs(time),
    icon: ok ? 'check' : 'cross',
    tone: ok ? 'good' : 'bad',
    text: `${host ?? 'Attempt'}: ${status ?? 'no reply'} after ${span(ms)}`,
    detail: error ?? answer,
    attempt,
    open: isLast && !ok,
  };
}

function visitOf({ ts, ip, ua }: Visit): Entry {
  const detail = [ip, ua].filter((one) => one !== null).join(', ');
  return { at: ts * 1000, icon: 'dot', tone: 'good', text: '', detail };
}

/** The SMTP dialogs of an attempt, line by line. */
function Dialogs({
  attempt: { connections, connections_left_out: leftOut },
  open,
}: {
  readonly attempt: MailAttempt;
  readonly open: boolean;
}) {
  if (connections.length === 0) return null;
  return h('details.attempt', { open }, [
    h('summary', 'SMTP dialog'),
    leftOut > 0 && h('p.faint', `${count(leftOut, 'earlier connection')} omitted.`),
    connections.map((connection, i) => h(Spoken, { key: i, connection })),
  ]);
}

function Spoken({ connection }: { readonly connection: Connection }) {
  const { host, address, source_ip: source, tls, reused, duration_ms: ms, error, dialog } = connection;
  const facts = [
    source !== null && `from ${source}`,
    tls ?? (dialog.length > 0 && 'no TLS'),
    reused && 'reused connection',
    span(ms),
  ].filter((one) => one !== false);
  return h('div.spoken', [
    h('p', [h('strong', plain(host)), ` ${address}`, h('span.faint', `, ${facts.join(', ')}`)]),
    dialog.length > 0 && h('ol.dialog', { dir: 'ltr' }, [dialog.map((line, i) => h(Line, { key: i, line }))]),
    error !== null && h('p.wrong', plain(error)),
  ]);
}

function Line({ line }: { readonly line: string }) {
  const [, mark, text = line] = /^([<>]) (.*)$/s.exec(line) ?? [];
  const [arrow, who] = mark === '>' ? ['\u2192', 'sent: '] : mark === '<' ? ['\u2190', 'received: '] : ['', ''];
  return h('li', { class: mark === '>' ? 'ours' : 'theirs' }, [
    h('span.arrow', { 'aria-hidden': 'true' }, [arrow]),
    h('span.hidden', [who]),
    h('code', plain(text)),
  ]);
}
