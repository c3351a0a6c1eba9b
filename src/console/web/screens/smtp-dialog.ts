import { h } from '../h.ts';
import { count, plain, span } from '../parts/text.ts';
import type { Connection, MailAttempt } from '../records.ts';

// The SMTP dialogs of an attempt, line by line.

export function Dialogs({
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
