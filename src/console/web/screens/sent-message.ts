import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall, useRepeat } from '../load.ts';
import type { Answer } from '../operations.ts';
import { ConversationList } from '../parts/conversation.ts';
import { Button, Dialog, DialogButton, Facts, Loading, Notice, Time, Title } from '../parts/elements.ts';
import { ConfirmButton, Copy } from '../parts/form.ts';
import { Back } from '../parts/sections.ts';
import { count, exactTime, now, plain, relative, replyText, span, toApiTime, toMs } from '../parts/text.ts';
import { withField } from '../query.ts';
import type { RejectEntry, SentStory } from '../records.ts';
import { linkTo } from '../router.ts';
import { may, shareLink } from '../session.ts';
import { TakeOff } from './lists.ts';
import { SentStateMark, toTime } from './sent.ts';
import { SentContentTabs } from './sent-content.ts';
import { Timeline } from './sent-timeline.ts';

/** One sent message: its state, and its SMTP dialog. */
export function SentMessageScreen({ id }: { readonly id: string }) {
  const loaded = useRepeat(useCall('messages/info', { id }));
  const { data: message, error, again } = loaded;
  return h('div.screen.narrow', [
    h(Back),
    message
      ? h(Story, { message, error: h(Loading, { of: loaded, rows: 8 }), again })
      : error?.kind === 'Unknown_Message'
        ? [
            h(Title, { text: 'Message not found' }),
            h(Notice, { title: 'It has expired, or belongs to another account' }, [h('p', `ID: ${id}`)]),
          ]
        : h(Loading, { of: loaded, rows: 8 }),
  ]);
}

function Story({
  message,
  error,
  again,
}: {
  readonly message: SentStory;
  readonly error: ComponentChildren;
  again(): void;
}) {
  const { sender, email, subject, state, subaccount } = message;
  const { data: list, again: readList } = useCall('rejects/list', { email });
  const entry = list?.find(
    (one) => one.email === email.toLowerCase() && (one.subaccount === null || one.subaccount === subaccount),
  );
  return h('article', [
    h(Title, { text: plain(subject) || '(no subject)' }),
    error,
    h('p.who', [h('bdi', plain(sender)), ' \u2192 ', h('bdi', plain(email))]),
    h('p.sentence', [h(SentStateMark, { state }), ' ', sentenceOf(message), '.']),
    isHeld(message) && may('messages/list-scheduled') && h(Held, { message, again }),
    h('p.buttons', [
      h(Waiting, { message, again }),
      h(Resend, { message }),
      h(Copy, { text: shareLink(`/sent/${encodeURIComponent(message._id)}`), label: 'Copy link', kind: 'plain' }),
      list && !entry && may('rejects/add') && h(Suppress, { email, done: readList }),
    ]),
    entry && h(Suppressed, { entry, done: readList }),
    h(About, { message }),
    h('h2', 'Timeline'),
    h(Timeline, { message }),
    h('h2', 'Content'),
    h(SentContentTabs, { id: message._id }),
    h(ConversationList, { thread: message.thread, id: message._id, level: 'h2' }),
  ]);
}

/** What became of a message, in a sentence. */
function sentenceOf(message: SentStory): string {
  const { state, delivery, smtp_events: events, bounce_description: kind } = message;
  const tries = delivery ? count(delivery.attempts.length, 'attempt') : '';
  switch (state) {
    case 'queued':
      return `Not sent yet${nextOf(message)}`;
    case 'deferred':
      return `Deferred by the recipient\u2019s server${tries && ` after ${tries}`}${nextOf(message)}`;
    case 'sent': {
      const last = events.findLast(({ type }) => type === 'sent');
      if (!last) return 'Accepted by the recipient\u2019s server';
      const after = last.ts > message.ts ? `, ${span((last.ts - message.ts) * 1000)} after submission` : '';
      return `Accepted by ${plain(last.destination ?? 'the recipient\u2019s server')}${after}`;
    }
    case 'bounced':
    case 'soft-bounced':
      return `Bounced${kind === null ? '' : `: ${plain(kind).replaceAll('_', ' ')}`}`;
    case 'rejected':
      return 'Not sent: the address was suppressed at submission';
    case 'spam':
      return 'Reported as spam by the recipient';
    case 'unsub':
      return 'The recipient unsubscribed';
  }
}

function nextOf({ delivery }: SentStory): string {
  if (!delivery) return '';
  if (delivery.state === 'dropped') return '; stopped manually';
  if (delivery.next_attempt_at === null) return '';
  const at = toMs(delivery.next_attempt_at);
  return at <= now.value ? '; being sent now' : `; next attempt ${relative(at, now.value)}`;
}

const SOON_MS = 5_000;

/** Whether it waits without an attempt so far: for its time, its quota, or its subaccount. */
function isHeld({ delivery }: SentStory): boolean {
  return (
    delivery?.state === 'waiting' &&
    delivery.attempts.length === 0 &&
    delivery.next_attempt_at !== null &&
    toMs(delivery.next_attempt_at) > now.value + SOON_MS
  );
}

/** The actions while it waits for another attempt. */
function Waiting({ message, again }: { readonly message: SentStory; again(): void }) {
  const { _id: id, email, delivery } = message;
  if (delivery?.state !== 'waiting' || delivery.attempts.length === 0) return null;
  return [
    may('messages/retry') &&
      h(Button, { label: 'Retry now', onPress: () => call('messages/retry', { id }).then(again) }),
    may('messages/stop') &&
      h(ConfirmButton, {
        label: 'Stop trying\u2026',
        question: `Stop trying to deliver to ${plain(email)}?`,
        text: ['The message stays undelivered, without a bounce. Other mail to the address is still sent.'],
        confirm: 'Stop trying',
        onConfirm: () => call('messages/stop', { id }).then(again),
      }),
  ];
}

/** Sends the content once more, as a new message, while it is kept. */
function Resend({ message: { _id: id, email, delivery } }: { readonly message: SentStory }) {
  if (!delivery || !may('messages/resend')) return null;
  return h(DialogButton, {
    label: 'Send again\u2026',
    dialog: (onClose) => h(ResendDialog, { id, email, onClose }),
  });
}

function ResendDialog({ id, email, onClose }: { readonly id: string; readonly email: string; onClose(): void }) {
  const [sent, setSent] = useState<Answer<'messages/resend'>>();
  return h(Dialog, { title: 'Send again?', onClose }, [
    sent
      ? h('p', { role: 'status' }, [
          sent.status === 'queued'
            ? ['Queued as ', h('a', { href: linkTo(`/sent/${sent._id}`) }, 'a new message'), '.']
            : `Not sent: ${sent.status}${sent.reject_reason === null ? '' : ` (${plain(sent.reject_reason)})`}.`,
        ])
      : [
          h('p', [
            `Sends the same content to ${plain(email)} as a new message. Suppressions, quotas and all other ` +
              'checks apply.',
          ]),
          h('p.buttons', [
            h(Button, { label: 'Cancel', onPress: onClose }),
            h(Button, {
              label: 'Send again',
              kind: 'main',
              onPress: async () => setSent(await call('messages/resend', { id })),
            }),
          ]),
        ],
  ]);
}

/** Why it is held back, and until when. */
function Held({ message, again }: { readonly message: SentStory; again(): void }) {
  const { _id: id, email, subaccount } = message;
  const { data } = useCall('messages/list-scheduled', { to: email }, id);
  if (!data) return null;
  const scheduled = data.find((one) => one._id === id);
  if (!scheduled)
    return h(Notice, {
      icon: 'pause',
      title:
        subaccount === null
          ? 'Waiting for the account\u2019s hourly quota'
          : `Waiting: the subaccount ${plain(subaccount)} is paused, or an hourly quota is used up`,
    });
  return h(Notice, { icon: 'clock', title: `Scheduled for ${exactTime(toMs(scheduled.send_at))}` }, [
    h('p.buttons', [
      may('messages/reschedule') &&
        h(Button, {
          label: 'Send now',
          onPress: () => call('messages/reschedule', { id, send_at: toApiTime(Date.now()) }).then(again),
        }),
      may('messages/cancel-scheduled') &&
        h(ConfirmButton, {
          label: 'Cancel message\u2026',
          question: 'Cancel this message?',
          text: ['It will not be sent, and its content is deleted.'],
          confirm: 'Cancel message',
          onConfirm: () => call('messages/cancel-scheduled', { id }).then(again),
        }),
    ]),
  ]);
}

function Suppress({ email, done }: { readonly email: string; done(): void }) {
  return h(ConfirmButton, {
    label: 'Suppress this address\u2026',
    question: `Suppress ${plain(email)}?`,
    text: ['All mail of this account to the address is rejected until you remove it from the suppression list.'],
    confirm: 'Suppress address',
    onConfirm: () => call('rejects/add', { email, comment: 'suppressed in the console' }).then(done),
  });
}

/** The recipient gets no mail. */
function Suppressed({ entry, done }: { readonly entry: RejectEntry; done(): void }) {
  const { email, expires_at: expires } = entry;
  const until = expires === null ? '' : ` until ${exactTime(toMs(expires))}`;
  return h(Notice, { icon: 'refused', tone: 'bad', title: `${plain(email)} is suppressed${until}` }, [
    h('p.buttons', [
      h('a', { href: linkTo('/lists', { q: email }) }, 'Show entry'),
      may('rejects/delete') && h(TakeOff, { entry, label: 'Remove suppression\u2026', taken: done }),
    ]),
  ]);
}

function About({ message }: { readonly message: SentStory }) {
  const { _id: id, ts, tags, template, subaccount, email, delivery, diag } = message;
  const to = (name: string, value: string) =>
    h('a', { key: value, href: linkTo('/sent', { q: withField('', name, value) }) }, plain(value));
  return h(Facts, {
    rows: [
      ['Submitted', h('span', [exactTime(ts * 1000), ' (', h(Time, { at: toTime(ts) }), ')'])],
      ['Recipient', to('email', email)],
      ...(diag === null ? [] : [['Last reply', replyText(diag)] as const]),
      ...(tags.length === 0 ? [] : [['Tags', tags.flatMap((tag, i) => [i > 0 && ', ', to('tag', tag)])] as const]),
      ...(template === null ? [] : [['Template', plain(template)] as const]),
      ...(subaccount === null ? [] : [['Subaccount', to('subaccount', subaccount)] as const]),
      ...(delivery ? [['Attempts', String(delivery.attempts.length)] as const] : []),
      ['ID', h('code', id)],
    ],
  });
}
