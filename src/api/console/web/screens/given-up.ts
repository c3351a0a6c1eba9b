import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { Button, Notice, Title } from '../parts/elements.ts';
import { useMail } from '../parts/list.ts';
import { ReplayDialog } from '../parts/replay.ts';
import { answerOf } from '../parts/states.ts';
import { shortUrl } from '../parts/text.ts';
import { fieldOf, withField } from '../query.ts';
import type { Mail } from '../records.ts';
import { linkTo, place } from '../router.ts';
import { may } from '../session.ts';
import { MailRows } from './mail-list.ts';

/** Mail that was given up, so that nothing stays lost by oversight. */
export function GivenUp(): ComponentChildren {
  const query = withField(place.value.query.get('q') ?? '', 'state', undefined);
  const list = useMail(withField(query, 'state', 'dead'));
  const [replaying, setReplaying] = useState(false);
  const some = (list.rows?.length ?? 0) > 0;
  return h(
    'div',
    { class: 'screen' },
    h(
      Title,
      { text: 'Given up' },
      some &&
        may('inbound/replay') &&
        h(
          'span',
          { 'data-key': 'replay' },
          h(Button, {
            label: query === '' ? 'Replay all\u2026' : 'Replay all that match\u2026',
            kind: 'main',
            icon: 'replay',
            onPress: () => setReplaying(true),
          }),
        ),
    ),
    replaying &&
      h(ReplayDialog, {
        wish: { query, state: 'dead' },
        onClose: () => {
          setReplaying(false);
          list.again();
        },
      }),
    h(Causes, { rows: list.rows ?? [], query }),
    h(MailRows, { list, canMark: false, empty: () => h(Empty, { query }) }),
  );
}

/** The endpoints and answers of the rows shown; each is a filter. */
function Causes({ rows, query }: { readonly rows: readonly Mail[]; readonly query: string }): ComponentChildren {
  const causes = new Map<string, { readonly mail: Mail; count: number }>();
  for (const mail of rows) {
    const key = `${mail.url} ${answerOf(mail)}`;
    const known = causes.get(key);
    if (known) known.count++;
    else causes.set(key, { mail, count: 1 });
  }
  const filtered = fieldOf(query, 'url') !== undefined || fieldOf(query, 'status') !== undefined;
  if (causes.size < 2 && !filtered) return null;
  return h(
    'nav',
    { class: 'chips', 'aria-label': 'Causes' },
    filtered && h('a', { class: 'chip', href: linkTo('/given-up') }, 'All'),
    [...causes].slice(0, 8).map(([key, { mail, count }]) => {
      const status = mail.last_status === null ? 'none' : String(mail.last_status);
      return h(
        'a',
        {
          key,
          class: 'chip',
          href: linkTo('/given-up', { q: withField(withField(query, 'url', mail.url), 'status', status) }),
        },
        `${shortUrl(mail.url)}: ${answerOf(mail) || 'no answer'} (${count} shown)`,
      );
    }),
  );
}

function Empty({ query }: { readonly query: string }): ComponentChildren {
  if (query !== '')
    return h(
      Notice,
      { title: 'Nothing that was given up matches this search.' },
      h('p', null, h('a', { href: linkTo('/given-up') }, 'Show all')),
    );
  return h(
    Notice,
    { icon: 'check', tone: 'good', title: 'Nothing was given up.' },
    h('p', null, 'Mail that an endpoint did not take in time appears here, and can be replayed.'),
  );
}
