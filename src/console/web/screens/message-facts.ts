import { h } from '../h.ts';
import { count, plain } from '../parts/text.ts';
import type { MessageFacts } from '../records.ts';

const LOCATIONS: Readonly<Record<string, string>> = {
  subject: 'subject',
  from_name: 'sender name',
  visible_text: 'text',
};

/** What a person who reads the mail does not see: hidden text, invisible characters, misleading links. */
export function Unseen({ facts }: { readonly facts: MessageFacts }) {
  const { hidden, invisible, links, counts } = facts;
  return h('div', [
    h(Found, {
      title: count(counts.hidden, 'hidden text'),
      total: counts.hidden,
      lines: hidden.map(({ why, text }) => ({ what: why, text })),
    }),
    h(Found, {
      title: count(counts.invisible, 'run of invisible characters', 'runs of invisible characters'),
      total: counts.invisible,
      lines: invisible.map(({ kind, where, at, length, text }) => ({
        what: `${length} ${kind}`,
        text: `${LOCATIONS[where] ?? where}, after ${count(at, 'character')}${text === undefined ? '' : `: ${text}`}`,
      })),
    }),
    h(Found, {
      title: count(counts.links, 'misleading link'),
      total: counts.links,
      lines: links.map(({ text, text_host: named, host }) => ({
        what: host,
        text: named === null ? text : `${text} (${named})`,
      })),
    }),
  ]);
}

function Found({
  title,
  total,
  lines,
}: {
  readonly title: string;
  readonly total: number;
  readonly lines: readonly { readonly what: string; readonly text: string }[];
}) {
  if (total === 0) return null;
  return h('details.links', [
    h('summary', title),
    h('ul', [
      lines.map(({ what, text }, i) =>
        h('li', { key: i }, [h('code', plain(what)), h('span', { dir: 'auto' }, plain(text))]),
      ),
    ]),
    total > lines.length && h('p.faint', `${total - lines.length} more not shown.`),
  ]);
}
