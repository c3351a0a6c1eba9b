import { useEffect, useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { listen } from '../live.ts';
import { useCall } from '../load.ts';
import { DropDialog, ReplayDialog } from '../parts/changes.ts';
import { ConversationList } from '../parts/conversation.ts';
import {
  Button,
  Dialog,
  DialogButton,
  Facts,
  Field,
  Headers,
  Loading,
  type Mark,
  Notice,
  Tabs,
  Time,
  Title,
} from '../parts/elements.ts';
import { Copy } from '../parts/form.ts';
import { senderOf, subjectOf } from '../parts/list.ts';
import { Menu, MenuItem } from '../parts/menu.ts';
import { Json } from '../parts/painter.ts';
import { Back } from '../parts/sections.ts';
import { isOpen, MailStateMark, sentenceOf } from '../parts/states.ts';
import { count, exactTime, plain, shortUrl, size, toMs } from '../parts/text.ts';
import { Happening } from '../parts/timeline.ts';
import { TrialAnswer } from '../parts/trial.ts';
import type { Content, Mail, MailStory, Scan, TimelineEntry, Trial } from '../records.ts';
import { go, linkTo, location, messageLink, withQuery } from '../router.ts';
import { may, person, shareLink } from '../session.ts';
import { Detail, detailsOf } from './attempt-detail.ts';
import { HtmlTab, openMail, RawTab } from './mail-content.ts';
import { Unseen } from './message-facts.ts';

/** One message for one recipient: all that is known of it. */
export function Message({ id }: { readonly id: string }) {
  return h('div.screen.narrow', [h(Back), h(MessageView, { id, beside: false })]);
}

export function MessageView({ id, beside }: { readonly id: string; readonly beside: boolean }) {
  const loaded = useCall('inbound/info', { id });
  useEffect(() => listen({ mail: (mail) => void (mail.id === id && loaded.again()), reset: loaded.again }), [id]);
  const { data: mail, error, again } = loaded;
  if (!mail)
    return error?.kind === 'Unknown_Message'
      ? h('div', [
          h(Title, { text: 'Message not found' }),
          h(Notice, { title: 'It has expired, or belongs to another account' }, [h('p', `ID: ${id}`)]),
        ])
      : h(Loading, { of: loaded, rows: 8 });
  return h('article', [
    beside
      ? h('div.heading', [h('h2', { dir: 'auto' }, [h('a', { href: messageLink(id) }, subjectOf(mail))])])
      : h(Title, { text: subjectOf(mail) }),
    h(Loading, { of: loaded, rows: 8 }),
    h('p.who', [h('bdi', senderOf(mail)), ' \u2192 ', h('bdi', plain(mail.to))]),
    h('p.sentence', [h(MailStateMark, { state: mail.state }), ' ', sentenceOf(mail), '.']),
    h(Actions, { mail, changed: again }),
    h(About, { mail }),
    h(beside ? 'h3' : 'h2', 'Timeline'),
    h(Timeline, { mail }),
    h(beside ? 'h3' : 'h2', 'Content'),
    h(ContentTabs, { mail, beside }),
    h(ConversationList, { thread: mail.thread, id, level: beside ? 'h3' : 'h2' }),
  ]);
}

/** The filled button is the next step; what destroys is behind the menu. */
function Actions({ mail, changed }: { readonly mail: MailStory; changed(): void }) {
  const [open, setOpen] = useState<'replay' | 'drop'>();
  const close = () => {
    setOpen(undefined);
    changed();
  };
  return h('div.buttons', [
    mail.state === 'waiting' && h(Onward, { mail, changed }),
    may('inbound/replay') &&
      mail.kept &&
      mail.state !== 'waiting' &&
      h('span', { 'data-key': 'replay' }, [
        h(Button, {
          label: mail.state === 'held' ? 'Release\u2026' : 'Replay\u2026',
          icon: 'replay',
          ...(isOpen(mail.state) && { kind: 'main' as const }),
          onPress: () => setOpen('replay'),
        }),
      ]),
    may('inbound/try') &&
      mail.kept &&
      h(DialogButton, {
        label: 'Try another URL\u2026',
        dialog: (onClose) => h(TryDialog, { mail, onClose }),
      }),
    h(Copy, { text: shareLink(`/message/${encodeURIComponent(mail.id)}`), label: 'Copy link', kind: 'plain' }),
    mail.kept &&
      person.value?.reads_content &&
      h(Button, {
        label: 'Download .eml',
        onPress: async () => window.location.assign(`${(await openMail(mail.id)).url}/raw`),
      }),
    may('inbound/drop') &&
      mail.kept &&
      isOpen(mail.state) &&
      h(Menu, [h(MenuItem, { label: 'Drop\u2026', destroys: true, onPress: () => setOpen('drop') })]),
    open === 'replay' && h(ReplayDialog, { wish: { ids: [mail.id] }, isHeld: mail.state === 'held', onClose: close }),
    open === 'drop' && h(DropDialog, { wish: { ids: [mail.id] }, onClose: close }),
  ]);
}

/** What makes a waiting mail go on: its endpoint, or another attempt. */
function Onward({ mail, changed }: { readonly mail: MailStory; changed(): void }) {
  const { id, url, waits } = mail;
  const then = (done: Promise<unknown>) => done.then(changed);
  if (waits?.kind === 'paused')
    return (
      may('endpoints/resume') &&
      h(Button, { label: 'Resume endpoint', kind: 'main', onPress: () => then(call('endpoints/resume', { url })) })
    );
  return (
    may('inbound/retry') &&
    waits?.kind !== 'pulled' &&
    waits?.kind !== 'behind' &&
    h(Button, { label: 'Retry now', kind: 'main', icon: 'replay', onPress: () => then(call('inbound/retry', { id })) })
  );
}

/** Posts the message to another URL, once; nothing else changes. */
function TryDialog({ mail, onClose }: { readonly mail: Mail; onClose(): void }) {
  const [url, setUrl] = useState(mail.url);
  const [trial, setTrial] = useState<Trial>();
  return h(Dialog, { title: 'Try another URL', onClose }, [
    h('p', ['Posts this message once, signed as usual. Its state and the statistics do not change.']),
    h(Field, { label: 'URL', type: 'url', value: url, onValue: setUrl }),
    trial && h(TrialAnswer, { trial }),
    h('p.buttons', [
      h(Button, {
        label: 'Post',
        kind: 'main',
        onPress: async () => setTrial(await call('inbound/try', { id: mail.id, url })),
      }),
    ]),
  ]);
}

/** What scanners said: `ham (score -0.4), clean, by rspamd and clamd`. */
function scanText({ spam, virus, name, score, by, reason }: Scan): string {
  const found = [
    spam !== 'unknown' && (score === null ? spam : `${spam} (score ${score})`),
    virus !== 'unknown' && (name === null ? virus : `${virus}: ${plain(name)}`),
    by.length > 0 && `by ${by.join(' and ')}`,
    reason !== null && plain(reason),
  ];
  return found.filter(Boolean).join(', ');
}

function About({ mail }: { readonly mail: MailStory }) {
  const scan = mail.deliveries[0]?.scan;
  const verdicts = (
    [
      ['SPF', mail.spf],
      ['DKIM', mail.dkim],
      ['DMARC', mail.dmarc],
    ] as const
  )
    .flatMap(([name, verdict]) => (verdict === null ? [] : [`${name} ${plain(verdict)}`]))
    .join(', ');
  return h(Facts, {
    rows: [
      ['Received', h('span', [exactTime(toMs(mail.at)), ' (', h(Time, { at: mail.at }), ')'])],
      ['Envelope sender', mail.sender === null ? 'Unknown' : plain(mail.sender || '<>')],
      [
        'Client',
        mail.client === null
          ? 'Unknown'
          : `${plain(mail.client)}${mail.helo ? `, HELO ${plain(mail.helo)}` : ''}, ${mail.tls ?? 'no TLS'}`,
      ],
      ['Authentication', verdicts || 'Not checked yet'],
      ...(scan ? ([['Scan', scanText(scan)]] as const) : []),
      [
        'Route',
        h('span', [
          h('a', { href: linkTo('/mail', { q: `route:${mail.route}` }) }, plain(mail.pattern)),
          ' to ',
          h('a', { href: linkTo('/endpoint', { url: mail.url }) }, shortUrl(mail.url)),
        ]),
      ],
      ['Size', size(mail.size)],
      ['ID', h('code', [mail.id])],
    ],
  });
}

const MARKS: Readonly<Partial<Record<TimelineEntry['kind'], Omit<Mark, 'word'>>>> = {
  refused: { icon: 'refused', tone: 'bad' },
  delivered: { icon: 'check', tone: 'good' },
  given_up: { icon: 'cross', tone: 'bad' },
  dropped: { icon: 'refused', tone: 'off' },
  replayed: { icon: 'replay', tone: 'wait' },
  preparing: { icon: 'clock', tone: 'wait' },
  next_attempt: { icon: 'clock', tone: 'wait' },
};

function markOf({ kind, text }: TimelineEntry): Omit<Mark, 'word'> {
  if (kind === 'attempt')
    return /: 2\d\d\b/.test(text) ? { icon: 'check', tone: 'good' } : { icon: 'cross', tone: 'bad' };
  return MARKS[kind] ?? { icon: 'dot', tone: 'off' };
}

function Timeline({ mail }: { readonly mail: MailStory }) {
  const details = detailsOf(mail);
  return h('ol.timeline', [
    mail.timeline.map((entry) => {
      const { kind, at, text, detail, after_ms: afterMs } = entry;
      const attempt = kind === 'attempt' ? details.get(at) : undefined;
      return h(Happening, { key: `${kind} ${at} ${text}`, at: toMs(at), afterMs, ...markOf(entry), text, detail }, [
        kind === 'refused' &&
          mail.client !== null &&
          may('inbound/refusals') &&
          h('a', { href: linkTo('/refused', { q: `client:${mail.client}` }) }, 'Refusals from this client'),
        attempt && h(Detail, { detail: attempt, mail }),
      ]);
    }),
  ]);
}

/** The content of a message in several forms. */
function ContentTabs({ mail, beside }: { readonly mail: Mail; readonly beside: boolean }) {
  const { id } = mail;
  const mayRead = person.value?.reads_content === true && may('inbound/content');
  const loaded = useCall('inbound/content', mail.kept && mayRead ? { id } : undefined);
  const [own, setOwn] = useState<string>();
  if (!mayRead) return h(Notice, { title: 'You do not have access to message content' });
  if (!mail.kept) return h(Notice, { title: 'Content deleted, history kept' });
  const { data: content, error } = loaded;
  if (!content)
    return error?.kind === 'Unknown_Message'
      ? h(Notice, { title: 'Content deleted, history kept' })
      : h(Loading, { of: loaded, rows: 5 });
  const wanted =
    (beside ? own : location.value.query.get('tab')) ?? (content.text === null && content.has_html ? 'html' : 'text');
  const choose = (tab: string) => (beside ? setOwn(tab) : go(withQuery({ tab }), true));
  const tabs = [
    { id: 'text', label: 'Text' },
    ...(content.has_html ? [{ id: 'html', label: 'HTML' }] : []),
    { id: 'headers', label: `Headers ${content.headers.length}` },
    { id: 'parts', label: `Parts ${content.parts.length}` },
    { id: 'raw', label: 'Raw' },
    ...(may('inbound/payload') ? [{ id: 'payload', label: 'Payload' }] : []),
  ];
  const chosen = tabs.some((tab) => tab.id === wanted) ? wanted : 'text';
  return h('div', [
    content.parse_error !== null &&
      h(Notice, {
        icon: 'alert',
        tone: 'bad',
        title: `This message could not be parsed: ${plain(content.parse_error)}. It is posted raw.`,
      }),
    content.automated.why !== null && h('p', `Automated: ${content.automated.why}`),
    content.facts && h(Unseen, { facts: content.facts }),
    h(Tabs, { tabs, chosen, label: 'Content', onChoose: choose }, [h(Panel, { tab: chosen, id, content })]),
  ]);
}

function Panel({ tab, id, content }: { readonly tab: string; readonly id: string; readonly content: Content }) {
  switch (tab) {
    case 'html':
      return h(HtmlTab, { wanted: { id } });
    case 'headers':
      return h(Headers, { fields: content.headers });
    case 'parts':
      return h(Parts, { id, content });
    case 'raw':
      return h(RawTab, { id, bytes: content.raw_bytes });
    case 'payload':
      return h(Payload, { id });
    default:
      if (content.text === null) return h(Notice, { title: 'No text' });
      return h('div', [
        h('pre.mail-text', { tabIndex: 0, dir: 'auto' }, plain(content.text)),
        content.truncated && h('p.faint', 'Truncated; download the message to read all of it.'),
      ]);
  }
}

function Parts({ id, content }: { readonly id: string; readonly content: Content }) {
  return h('ul.rows.parts', [
    content.parts.map((part) =>
      h('li', { key: part.n }, [
        h('span.path.faint', part.path),
        h('span.type', plain(part.type)),
        h('span.name', { dir: 'auto' }, [part.name === null ? (part.disposition ?? '') : plain(part.name)]),
        h('span.size', size(part.size)),
        h(Button, {
          label: 'Download',
          kind: 'quiet',
          title: `Part ${part.path}`,
          onPress: async () => window.location.assign(`${(await openMail(id)).url}/part/${part.n}`),
        }),
      ]),
    ),
    content.parts.length === 0 && h('li', count(0, 'part')),
  ]);
}

function Payload({ id }: { readonly id: string }) {
  const loaded = useCall('inbound/payload', { id });
  const { data, error } = loaded;
  if (error || data === undefined) return h(Loading, { of: loaded, rows: 8 });
  return h('div', [
    h('p.faint', [
      'Rendered now, in the format of the route (for Mandrill, one element of ',
      h('code', 'mandrill_events'),
      '), as your webhook receives it.',
    ]),
    h(Json, { value: data }),
  ]);
}
