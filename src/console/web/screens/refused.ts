import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { CountedFilters } from '../parts/chips.ts';
import { Loading, Notice, State, Time, Title } from '../parts/elements.ts';
import { More, type RefusalRow, useRefusals } from '../parts/list.ts';
import { FieldChoice, TimeChoice } from '../parts/narrow.ts';
import { capital, number, plain, count as textCount } from '../parts/text.ts';
import { fieldOf, withField } from '../query.ts';
import { linkTo, location } from '../router.ts';
import { may, person } from '../session.ts';
import { useDomains } from './domains.ts';

/** Why mail was refused. */
export function Refused() {
  const query = location.value.query.get('q') ?? '';
  const list = useRefusals(query);
  const { rows } = list;
  return h('div.screen', [
    h(Title, { text: 'Refused' }),
    h(Choices, { query }),
    h(Reasons, { query, newest: rows?.[0]?.id }),
    h('div', { 'aria-busy': list.loading }, [
      h(Loading, { of: list, rows: 8 }),
      rows &&
        (rows.length === 0
          ? h(Empty, { query })
          : h('ul.rows.refusals', [
              rows.map((refusal, i) =>
                h(RefusalEntry, {
                  key: refusal.id,
                  refusal,
                  query,
                  // Of several refusals in a row for one reason, the first gives the remedy.
                  explained: refusal.reason !== rows[i - 1]?.reason,
                }),
              ),
            ])),
      h(More, { list }),
    ]),
  ]);
}

function Choices({ query }: { readonly query: string }) {
  const { data: domains = [] } = useDomains();
  return h('p.choices', [
    h(TimeChoice, { path: '/refused', query }),
    h(FieldChoice, {
      path: '/refused',
      query,
      field: 'domain',
      label: 'Domain',
      options: [['', 'Any domain'], ...domains.map(({ domain }) => [domain, plain(domain)] as const)],
    }),
  ]);
}

const MAX_REASONS = 8;

/** Counts by reason; each is a filter. */
function Reasons({ query, newest }: { readonly query: string; readonly newest: string | undefined }) {
  const chosen = fieldOf(query, 'reason');
  const others = withField(query, 'reason', undefined);
  const wanted = newest !== undefined || chosen !== undefined;
  const { data } = useCall('inbound/refusals', wanted ? { query: others, limit: 1 } : undefined, newest);
  const rows = (data?.by_reason ?? []).slice(0, MAX_REASONS).map(({ reason, count }) => ({
    key: reason,
    name: reasonText(reason),
    count,
    isChosen: chosen === reason,
    href: linkTo('/refused', { q: withField(query, 'reason', chosen === reason ? undefined : reason) }),
  }));
  return h(CountedFilters, { label: 'Reasons', rows });
}

function RefusalEntry({
  refusal,
  query,
  explained,
}: {
  readonly refusal: RefusalRow;
  readonly query: string;
  readonly explained: boolean;
}) {
  const { stage, reply, reason, advice, client, helo, tls, sender, recipient, times, at } = refusal;
  const filter = (field: string, value: string) =>
    h('a', { href: linkTo('/refused', { q: withField(query, field, value) }) }, [h('bdi', plain(value))]);
  return h('li', { 'data-row': refusal.id }, [
    h('div.line', [
      h(State, { icon: 'refused', word: reply.slice(0, 3), tone: reply.startsWith('4') ? 'wait' : 'bad' }),
      h('span.who', [
        sender === null ? 'no sender' : sender === '' ? '<>' : filter('from', sender),
        recipient !== null && [' \u2192 ', filter('to', recipient)],
      ]),
      h('span.age', [times > 1 && h('strong', `\u00d7${number(times)} `), h(Time, { at })]),
    ]),
    h('p.reply', [h('code', `${stage}: ${plain(reply)}`)]),
    explained && h('p.advice', advice.replaceAll(PATHS, '')),
    h('p.faint', [
      `${reasonText(reason)} \u00b7 client `,
      filter('client', client),
      helo !== null && `, HELO ${plain(helo)}`,
      `, ${tls ?? 'no TLS'}`,
      times > 1 && `, and ${number(times - 1)} more like it from the same network within a minute`,
      reason === 'noMailbox' &&
        recipient !== null &&
        may('inbound/test-route') && [
          ' \u00b7 ',
          h('a', { href: linkTo('/domains', { test: recipient }) }, 'Test the routes'),
        ],
      reason === 'noMailbox' &&
        recipient !== null &&
        may('inbound/add-route') && [' \u00b7 ', h('a', { href: routeFor(recipient) }, 'Add a route for it')],
    ]),
  ]);
}

/** Operations that the advice names for programs. */
const PATHS = / \(\/[a-z-]+\/[a-z-]+\)/g;

/** The screen of the domain, with the form for a route filled in. */
function routeFor(recipient: string): string {
  const at = recipient.lastIndexOf('@');
  const domain = recipient.slice(at + 1).toLowerCase();
  return linkTo(`/domain/${encodeURIComponent(domain)}`, { test: recipient, add: recipient.slice(0, at) });
}

/** `noMailbox` as words. */
function reasonText(reason: string): string {
  const words = plain(reason)
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase();
  return capital(words);
}

function Empty({ query }: { readonly query: string }) {
  if (query.trim() === '')
    return h(
      Notice,
      {
        icon: 'check',
        tone: 'good',
        title: `No refusals in ${textCount(person.value?.keeps_days.refusals ?? 0, 'day')}`,
      },
      [h('p', ['Refused mail to your domains appears here. Refusals before RCPT are in the server log.'])],
    );
  return h(Notice, { title: 'No refusals match this search' }, [
    h('p', [
      h('a', { href: linkTo('/refused') }, 'Show all refusals'),
      ' or ',
      h('a', { href: linkTo('/mail', { q: withField(query, 'reason', undefined) }) }, 'search inbound mail'),
    ]),
  ]);
}
