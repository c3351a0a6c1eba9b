import { type ComponentChildren, h } from 'preact';
import { call } from '../call.ts';
import { useLoad } from '../load.ts';
import type { Conversation } from '../records.ts';
import { linkTo } from '../router.ts';
import { account, may } from '../session.ts';
import { Time } from './elements.ts';
import { plain } from './text.ts';

/** The other mail of the conversation that a message belongs to, the newest last; nothing if there is none. */
export function ConversationList({
  thread,
  id,
  level,
}: {
  readonly thread: string | null;
  /** The message itself. */
  readonly id: string;
  readonly level: 'h2' | 'h3';
}): ComponentChildren {
  const key =
    thread !== null && may('inbound/conversation') ? `conversation ${account.value?.id} ${thread}` : undefined;
  const { data } = useLoad(key, (stop) => call('inbound/conversation', { thread }, stop));
  if (!data?.mails.some((mail) => mail.id !== id)) return null;
  return [
    h(level, { key: 'title' }, 'Conversation'),
    h(
      'ol',
      { key: 'list', class: 'conversation' },
      data.more && h('li', { key: 'earlier' }, 'Earlier messages are not shown.'),
      data.mails.map((mail) => h('li', { key: mail.id }, h(One, { mail, isThis: mail.id === id }))),
    ),
  ];
}

function One({
  mail: { way, id, at, from, to, subject },
  isThis,
}: {
  readonly mail: Conversation['mails'][number];
  readonly isThis: boolean;
}): ComponentChildren {
  const title = plain(subject ?? '') || '(no subject)';
  const link = linkTo(`/${way === 'in' ? 'message' : 'sent'}/${encodeURIComponent(id)}`);
  return [
    h('span', { key: 'way' }, way === 'in' ? 'Received ' : 'Sent '),
    h(Time, { key: 'at', at }),
    ': ',
    isThis
      ? h('strong', { key: 'title', dir: 'auto' }, title)
      : h('a', { key: 'title', href: link, dir: 'auto' }, title),
    ' ',
    h('bdi', { key: 'from' }, plain(from ?? '')),
    ' \u2192 ',
    h('bdi', { key: 'to' }, plain(to)),
  ];
}
