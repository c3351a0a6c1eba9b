import { useState } from 'preact/hooks';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { DropDialog, ReplayDialog } from '../parts/changes.ts';
import { CountedFilters } from '../parts/chips.ts';
import { Button, Notice, Title } from '../parts/elements.ts';
import { useMail } from '../parts/list.ts';
import { Menu, MenuItem } from '../parts/menu.ts';
import { TimeChoice } from '../parts/narrow.ts';
import { answerOf } from '../parts/states.ts';
import { count, now, number, shortUrl, toMs } from '../parts/text.ts';
import { fieldOf, withField } from '../query.ts';
import type { Cause, Causes } from '../records.ts';
import { linkTo, location } from '../router.ts';
import { may, person } from '../session.ts';
import { MailRows } from './mail.ts';

const MAX_CAUSES = 8;

/** Mail that was given up, so that nothing stays lost by oversight. */
export function GivenUp() {
  const query = withField(location.value.query.get('q') ?? '', 'state', undefined);
  const list = useMail(withField(query, 'state', 'dead'));
  const [open, setOpen] = useState<'replay' | 'drop'>();
  const all = useCauses(query, list.rows?.[0]?.id)?.count;
  const some = (list.rows?.length ?? 0) > 0;
  const wish = { query, state: 'dead' } as const;
  const close = () => {
    setOpen(undefined);
    list.again();
  };
  return h('div.screen', [
    h(Title, { text: 'Failed' }, [
      some &&
        may('inbound/replay') &&
        h('span', { 'data-key': 'replay' }, [
          h(Button, {
            label: `Replay all${all === undefined ? '' : ` ${number(all)}`}${query === '' ? '' : ' that match'}\u2026`,
            kind: 'main',
            icon: 'replay',
            onPress: () => setOpen('replay'),
          }),
        ]),
      some &&
        may('inbound/drop') &&
        h(Menu, [h(MenuItem, { label: 'Drop\u2026', destroys: true, onPress: () => setOpen('drop') })]),
    ]),
    open === 'replay' && h(ReplayDialog, { wish, onClose: close }),
    open === 'drop' && h(DropDialog, { wish, onClose: close }),
    h('p.choices', [h(TimeChoice, { path: '/given-up', query })]),
    h(CauseList, { query, newest: list.rows?.[0]?.id }),
    h(MailRows, { list, canMark: false, empty: () => h(Empty, { query }) }),
  ]);
}

/** Failed mail of a search, by endpoint and answer; counted again when the newest row changes. */
function useCauses(query: string, newest: string | undefined): Causes | undefined {
  return useCall('inbound/causes', { query: `${query} state:dead` }, newest).data;
}

const statusOf = ({ last_status: status }: Cause) => (status === null ? 'none' : String(status));

/** One cause is one line; each is a filter. */
function CauseList({ query, newest }: { readonly query: string; readonly newest: string | undefined }) {
  const [url, status] = [fieldOf(query, 'url'), fieldOf(query, 'status')];
  const others = withField(withField(query, 'url', undefined), 'status', undefined);
  const { causes = [] } = useCauses(others, newest) ?? {};
  const rows = causes.slice(0, MAX_CAUSES).map((cause) => {
    const answer = answerOf(cause);
    const isChosen = cause.url === url && statusOf(cause) === status;
    const filter = withField(withField(others, 'url', cause.url), 'status', statusOf(cause));
    return {
      key: `${cause.url} ${answer}`,
      name: [
        `${shortUrl(cause.url)}: ${answer || 'no response'}`,
        h('span.faint', forgottenText(cause.first_ended_at)),
      ],
      count: cause.count,
      isChosen,
      href: linkTo('/given-up', { q: isChosen ? others : filter }),
    };
  });
  return h(CountedFilters, { label: 'Causes', rows, isWide: true });
}

const DAY_MS = 86_400_000;
const dateOf = (ms: number): string => new Date(ms).toLocaleDateString('en-GB', { day: 'numeric', month: 'long' });

/** When the queue deletes the first of them. */
function forgottenText(firstEndedAt: string | null): string {
  const { given_up: days } = person.value?.keeps_days ?? {};
  if (firstEndedAt === null || days === undefined) return '';
  const ms = toMs(firstEndedAt) + days * DAY_MS;
  return ms <= now.value ? '; the oldest have been deleted' : `; deleted from ${dateOf(ms)}`;
}

function Empty({ query }: { readonly query: string }) {
  if (query !== '')
    return h(Notice, { title: 'No failed messages match this search' }, [
      h('p', [h('a', { href: linkTo('/given-up') }, 'Show all')]),
    ]);
  return h(
    Notice,
    {
      icon: 'check',
      tone: 'good',
      title: `No failed messages in ${count(person.value?.keeps_days.history ?? 0, 'day')}`,
    },
    [h('p', ['Messages that an endpoint did not accept in time appear here and can be replayed.'])],
  );
}
