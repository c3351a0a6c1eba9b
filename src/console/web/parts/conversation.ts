import { h } from '../h.ts';
import { useCall } from '../load.ts';
import type { Conversation } from '../records.ts';
import { messageLink, sentLink } from '../router.ts';
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
}) {
  const { data } = useCall('inbound/conversation', thread === null ? undefined : { thread });
  if (!data?.mails.some((mail) => mail.id !== id)) return null;
  return [
    h(level, 'Conversation'),
    h('ol.conversation', [
      data.more && h('li', 'Earlier messages are not shown.'),
      data.mails.map((mail) => h('li', { key: mail.id }, [h(One, { mail, isThis: mail.id === id })])),
    ]),
  ];
}

function One({
  mail: { direction, id, at, from, to, subject },
  isThis,
}: {
  readonly mail: Conversation['mails'][number];
  readonly isThis: boolean;
}) {
  const title = plain(subject ?? '') || '(no subject)';
  const link = direction === 'in' ? messageLink(id) : sentLink(id);
  return [
    h('span', direction === 'in' ? 'Received ' : 'Sent '),
    h(Time, { at }),
    ': ',
    isThis ? h('strong', { dir: 'auto' }, title) : h('a', { href: link, dir: 'auto' }, title),
    ' ',
    h('bdi', plain(from ?? '')),
    ' \u2192 ',
    h('bdi', plain(to)),
  ];
}
