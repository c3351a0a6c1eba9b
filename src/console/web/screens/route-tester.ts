import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Loading, Notice, State } from '../parts/elements.ts';
import { Form } from '../parts/form.ts';
import { Json } from '../parts/painter.ts';
import { count, isPulled, plain, shortUrl } from '../parts/text.ts';
import { PostSample } from '../parts/trial.ts';
import type { InboundRoute } from '../records.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { may } from '../session.ts';

// The tester of routes: which one an address matches, why the others do not, and what would be posted.

const MAX_SHOWN = 50;

/**
 * Routes in the order in which they are tried: by priority, exact names, then by literal characters; the oldest wins.
 */
export function inOrder<T extends InboundRoute>(oldestFirst: readonly T[]): readonly T[] {
  return oldestFirst.toSorted((a, b) => b.priority - a.priority || weightOf(b.pattern) - weightOf(a.pattern));
}

const weightOf = (pattern: string): number =>
  /[*?]/.test(pattern) ? [...pattern].filter((one) => one !== '*' && one !== '?').length : Number.MAX_SAFE_INTEGER;

/** The tester. The address stands in the URL; another `stamp` tests it again, as the routes have changed. */
export function Tester({ stamp }: { readonly stamp: string }) {
  const address = location.value.query.get('test') ?? '';
  return h('aside.pane.tester', { 'aria-labelledby': 'tester' }, [
    h('h2', { id: 'tester' }, 'Test an address'),
    h(Form, {
      key: address,
      fields: [{ name: 'address', label: 'Address', type: 'email', value: address }],
      label: 'Test',
      inline: true,
      onSubmit: async ({ address: wanted = '' }) => go(withQuery({ test: wanted.trim() }), true),
    }),
    address === ''
      ? h('p.faint', ['Shows which route matches and what would be posted. Nothing is sent until you post a sample.'])
      : h(Result, { address, stamp }),
  ]);
}

function Result({ address, stamp }: { readonly address: string; readonly stamp: string }) {
  const loaded = useCall('inbound/test-route', { address }, stamp);
  const { data, error } = loaded;
  if (error?.kind === 'Unknown_InboundDomain')
    return h(Notice, { title: 'This account has no such domain' }, [h('p', 'Add the domain, then a route to it.')]);
  if (error || !data) return h(Loading, { of: loaded, rows: 3 });
  const { route, payload, content_type: type } = data;
  const isMatched = data.routes.some(({ result }) => result !== 'no match');
  const depends = data.routes.some(({ result }) => result === 'depends');
  const routes = inOrder(data.routes).toSorted((a, b) => Number(b.result === 'hit') - Number(a.result === 'hit'));
  return h('div.result', { role: 'status' }, [
    h('p.sentence', [
      route === null
        ? depends
          ? h(State, { icon: 'question', word: 'Depends', tone: 'wait' })
          : h(State, { icon: 'refused', word: 'No match', tone: 'bad' })
        : h(State, { icon: 'check', word: 'Match', tone: 'good' }),
      ' ',
      route === null
        ? [
            'Mail to ',
            h('bdi', plain(data.email)),
            depends ? ' depends on the message.' : ` is refused with 550 ${isMatched ? '5.7.1' : '5.1.1'}.`,
          ]
        : route.action !== 'post'
          ? ['Mail to ', h('bdi', plain(data.email)), ` is handled by route ${route.id}.`]
          : [
              'Mail to ',
              h('bdi', plain(data.email)),
              isPulled(route.url) ? ' is pulled from ' : ' is posted to ',
              h('a', { href: linkTo('/endpoint', { url: route.url }) }, shortUrl(route.url)),
              '.',
            ],
    ]),
    routes.length === 0
      ? h('p.faint', 'This domain has no routes.')
      : h('ul.rows.verdicts', [
          routes
            .slice(0, MAX_SHOWN)
            .map(({ id, pattern, result, why }) =>
              h('li', { key: id }, [
                h('code', plain(pattern)),
                h('span.faint', id),
                h('span', { class: result === 'hit' ? 'hit' : 'faint' }, plain(why)),
              ]),
            ),
          routes.length > MAX_SHOWN && h('li.faint', count(routes.length - MAX_SHOWN, 'more route')),
        ]),
    route !== null &&
      !isPulled(route.url) &&
      may('inbound/try-route') &&
      h(PostSample, { key: `${route.id} ${data.email}`, route: route.id, address: data.email, label: 'Post a sample' }),
    payload !== null &&
      h('details', [
        h('summary', 'Sample payload'),
        type !== null && h('p.faint', type),
        typeof payload === 'string'
          ? h('pre.code', { tabIndex: 0, dir: 'ltr' }, [payload])
          : h(Json, { value: payload }),
      ]),
  ]);
}
