import { useState } from 'preact/hooks';
import { h } from '../h.ts';
import { type Loaded, useCall, useRepeat } from '../load.ts';
import { Loading, Notice, Tabs, Time, Title } from '../parts/elements.ts';
import { Copy } from '../parts/form.ts';
import { EndpointStateMark, endpointSentence } from '../parts/states.ts';
import { count, number, shortUrl } from '../parts/text.ts';
import { RECEIVERS, type ReceiverSample } from '../receivers.ts';
import type { Endpoint } from '../records.ts';
import { linkTo } from '../router.ts';

/** All endpoints of the account, read once. */
export function useEndpointsOnce(): Loaded<readonly Endpoint[]> {
  return useCall('endpoints/list', {});
}

/** All endpoints of the account, kept up to date. */
export function useEndpoints(): Loaded<readonly Endpoint[]> {
  return useRepeat(useEndpointsOnce());
}

const trouble = ({ breaker, paused }: Endpoint) => (breaker !== 'up' ? 0 : paused ? 1 : 2);

/** The webhooks, those in trouble first. */
export function Endpoints() {
  const loaded = useEndpoints();
  const { data } = loaded;
  const rows = data?.toSorted((a, b) => trouble(a) - trouble(b) || b.waiting - a.waiting || a.url.localeCompare(b.url));
  return h('div.screen', [
    h(Title, { text: 'Endpoints' }),
    h(Loading, { of: loaded, rows: 4 }),
    rows &&
      (rows.length === 0
        ? h(Empty)
        : h('ul.rows.endpoints', [rows.map((endpoint) => h(EndpointRow, { key: endpoint.url, endpoint }))])),
  ]);
}

function EndpointRow({ endpoint }: { readonly endpoint: Endpoint }) {
  const { url, kind, routes, webhooks } = endpoint;
  const users = [
    routes.length > 0 && count(routes.length, 'route'),
    webhooks.length > 0 && count(webhooks.length, 'webhook'),
  ]
    .filter((one) => one !== false)
    .join(', ');
  return h('li', { 'data-row': url }, [
    h(EndpointLink, { endpoint, users: users || (kind === 'events' ? 'events' : 'no route') }),
  ]);
}

/** How an endpoint is and what waits for it; leads to its screen. */
export function EndpointLink({ endpoint, users }: { readonly endpoint: Endpoint; readonly users?: string }) {
  const { url, waiting, oldest_at: oldestAt } = endpoint;
  return h('a', { href: linkTo('/endpoint', { url }) }, [
    h(EndpointStateMark, { endpoint }),
    h('span.url', shortUrl(url)),
    h('span.sentence', endpointSentence(endpoint)),
    h('span.waiting', [
      waiting === 0
        ? 'none waiting'
        : [`${number(waiting)} waiting`, oldestAt !== null && [', oldest ', h(Time, { at: oldestAt })]],
    ]),
    users !== undefined && h('span.faint.users', [users]),
  ]);
}

function Empty() {
  return h('div', [
    h(Notice, { title: 'No endpoints yet' }, [
      h('p', [
        'An endpoint is a URL that a route or a webhook posts to. Start a receiver, then add a route ' +
          'with its URL to one of your ',
        h('a', { href: linkTo('/domains') }, 'domains'),
        '. Give the receiver the signing key that the page of the endpoint shows; until then it responds ' +
          '401, and Postern retries.',
      ]),
    ]),
    h('h2', 'Sample receiver'),
    h(Receivers),
  ]);
}

/** The smallest receiver, in four languages. */
function Receivers() {
  const [chosen, setChosen] = useState<string>('node');
  const sample: ReceiverSample | undefined = RECEIVERS.find(({ id }) => id === chosen);
  if (!sample) return null;
  return h('div', [
    h(Tabs, { tabs: RECEIVERS, chosen, label: 'Language', onChoose: setChosen }, [
      h('pre.code', { tabIndex: 0, dir: 'ltr' }, sample.code),
      h(Copy, { key: chosen, text: sample.code, label: 'Copy code' }),
    ]),
  ]);
}
