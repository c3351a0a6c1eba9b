import { useRef, useState } from 'preact/hooks';
import { ask, call } from '../call.ts';
import { h } from '../h.ts';
import { type Loaded, useCall } from '../load.ts';
import { Bars, Button, Fault, Loading, Notice, State, Table, Time, Title } from '../parts/elements.ts';
import { useSeveral } from '../parts/hosts.ts';
import { type List, MailRow, Parties, type RefusalRow, useMail, useRefusals } from '../parts/list.ts';
import { canTry, isFailing } from '../parts/states.ts';
import { count, number, plain, shortUrl, toMs } from '../parts/text.ts';
import type { Endpoint, HostNeed, InboundDomain, Mail } from '../records.ts';
import { linkTo } from '../router.ts';
import { account, may, person } from '../session.ts';
import { domainLink, domainSentence, useDomains } from './domains.ts';
import { EndpointLink, useEndpoints } from './endpoints.ts';
import { HealthSentence, NeedRow, useOverview } from './host.ts';
import { NowPlots } from './now-plots.ts';

const FEED = 40;
const FEW = 5;
/** The limit up to which failed mail is counted. */
const COUNTED = 100;
const MAX_NEEDS = 8;

/** Is all well, and what is happening; for those who see no mail, the numbers. */
export function Now() {
  return may('inbound/search') ? h(NowWithMail) : h(NowInNumbers);
}

function NowInNumbers() {
  const endpoints = useEndpoints();
  const domains = useWrongDomains();
  return h('div.screen', [
    h(Title, { text: 'Overview' }),
    h(Health, { endpoints: endpoints.data, failed: endpoints.error !== undefined }),
    endpoints.error && h(Fault, { error: endpoints.error, since: endpoints.failedAt, again: endpoints.again }),
    h(NeedsYou, { endpoints, dead: [], held: 0, domains, host: [] }),
    h(Sent),
    h('p.faint', [
      'Your role shows statistics and states, but no messages. See ',
      h('a', { href: linkTo('/endpoints') }, 'endpoints'),
      ' and ',
      h('a', { href: linkTo('/domains') }, 'domains'),
      '.',
    ]),
  ]);
}

const WINDOWS = [
  ['today', 'Today'],
  ['last_7_days', 'Last 7 days'],
  ['last_30_days', 'Last 30 days'],
  ['all_time', 'All time'],
] as const;
const COUNTS = [
  ['sent', 'Sent'],
  ['opens', 'Opens'],
  ['clicks', 'Clicks'],
  ['hard_bounces', 'Hard bounces'],
  ['complaints', 'Complaints'],
] as const;

/** How much the account sent. */
function Sent() {
  const loaded = useCall('users/info', {});
  const { data } = loaded;
  return h('section', { 'aria-labelledby': 'sent' }, [
    h('h2', { id: 'sent' }, 'Outbound'),
    h(Loading, { of: loaded, rows: 4 }),
    data &&
      h(Table, {
        label: 'Outbound, as a table',
        columns: ['Period', ...COUNTS.map(([, label]) => label)],
        rows: WINDOWS.map(([window, label]) => [
          label,
          ...COUNTS.map(([name]) => number(data.stats[window]?.[name] ?? 0)),
        ]),
        areNamed: true,
      }),
  ]);
}

function NowWithMail() {
  const mail = useMail('', FEED);
  const refused = useRefusals('', FEED);
  const dead = useMail('state:dead', COUNTED);
  const endpoints = useEndpoints();
  const { data: host, error: hostAway } = useOverview();
  const held = useHeld(dead.rows && mail.rows);
  const domains = useWrongDomains();
  const empty = mail.rows?.length === 0;
  return h('div.screen', [
    h(Title, { text: 'Overview' }),
    host
      ? h(HealthSentence, host)
      : may('host/overview') && !hostAway
        ? h(Bars, { rows: 1 })
        : h(Health, { endpoints: endpoints.data, failed: endpoints.error !== undefined }),
    h(NeedsYou, { endpoints, dead: dead.rows ?? [], held, domains, host: host?.needs ?? [] }),
    empty && h(FirstMinute),
    !empty && may('host/series') && h(NowPlots),
    (!empty || (refused.rows?.length ?? 0) > 0) && h(Feed, { mail, refused }),
  ]);
}

const inTrouble = (endpoint: Endpoint) => endpoint.breaker !== 'up' || isFailing(endpoint);

function Health({
  endpoints,
  failed,
}: {
  readonly endpoints: readonly Endpoint[] | undefined;
  readonly failed: boolean;
}) {
  if (!endpoints) return failed ? null : h(Bars, { rows: 1 });
  const down = endpoints.filter(inTrouble);
  const waiting = endpoints.reduce((sum, one) => sum + one.waiting, 0);
  const forDown = down.reduce((sum, one) => sum + one.waiting, 0);
  const text =
    down.length > 0
      ? `Accepting mail. ${count(down.length, 'endpoint')} failing, ${count(forDown, 'message')} waiting.`
      : waiting > 0
        ? `All systems normal. ${count(waiting, 'message')} being delivered.`
        : 'All systems normal.';
  return h(HealthSentence, { state: down.length > 0 ? 'fault' : 'ok', text });
}

/** Items that need attention; empty if all is well. */
function NeedsYou({
  endpoints: { data: endpoints = [], again },
  dead,
  held,
  domains,
  host,
}: {
  readonly endpoints: Loaded<readonly Endpoint[]>;
  readonly dead: readonly Mail[];
  /** How many mails routes hold. */
  readonly held: number;
  readonly domains: readonly InboundDomain[];
  /** Items that need the attention of the operator. */
  readonly host: readonly HostNeed[];
}) {
  const isSeveral = useSeveral();
  const down = endpoints.filter((one) => inTrouble(one) || one.paused);
  // Endpoints of the account that is shown have their rows already.
  const others = host.filter(
    ({ url, account: of }) => of?.id !== account.value?.id || !endpoints.some((one) => one.url === url),
  );
  if (down.length + dead.length + held + domains.length + others.length === 0) return null;
  const rowsOf = (wanted: HostNeed['level']) =>
    others
      .slice(0, MAX_NEEDS)
      .filter(({ level }) => level === wanted)
      .map((need, i) => h(NeedRow, { key: `${need.what} ${need.url} ${i}`, need }));
  return h('section.needs', { 'aria-labelledby': 'needs-attention' }, [
    h('h2', { id: 'needs-attention' }, 'Needs attention'),
    h('ul.rows', [
      rowsOf('fault'),
      down.slice(0, FEW).map((endpoint) => h(EndpointNeed, { key: endpoint.url, endpoint, again })),
      down.length > FEW &&
        h('li', [h('a', { href: linkTo('/endpoints') }, `and ${count(down.length - FEW, 'more endpoint')}`)]),
      domains
        .slice(0, FEW)
        .map((domain) =>
          h('li', { key: domain.domain, 'data-row': domain.domain }, [
            h('a', { href: domainLink(domain.domain) }, [
              h(State, { icon: 'alert', word: 'DNS', tone: 'bad' }),
              h('span.url', [h('bdi', plain(domain.domain))]),
              h('span.sentence', domainSentence(domain)),
            ]),
          ]),
        ),
      domains.length > FEW &&
        h('li', [h('a', { href: linkTo('/domains') }, `and ${count(domains.length - FEW, 'more domain')}`)]),
      dead.length > 0 &&
        h('li', { 'data-row': 'dead' }, [
          h('a', { href: linkTo('/given-up') }, [
            h(State, { icon: 'cross', word: 'Failed', tone: 'bad' }),
            h('span.url', dead.length < COUNTED ? count(dead.length, 'message') : `${COUNTED} or more messages`),
            h('span.sentence', 'Review failures, then replay'),
          ]),
        ]),
      held > 0 &&
        h('li', { 'data-row': 'held' }, [
          h('a', { href: linkTo('/mail', { q: 'state:held' }) }, [
            h(State, { icon: 'pause', word: 'Held', tone: 'wait' }),
            h('span.url', count(held, 'message')),
            h('span.sentence', [
              `Held by ${held === 1 ? 'its route' : 'routes'}: release or drop ${held === 1 ? 'it' : 'them'}`,
            ]),
          ]),
        ]),
      rowsOf('warning'),
      others.length > MAX_NEEDS &&
        h('li', [
          h(
            'a',
            { href: linkTo('/host') },
            `and ${number(others.length - MAX_NEEDS)} more${isSeveral ? '' : ' on this host'}`,
          ),
        ]),
    ]),
  ]);
}

function EndpointNeed({ endpoint, again }: { readonly endpoint: Endpoint; again(): void }) {
  const { url } = endpoint;
  return h('li', { 'data-row': url }, [
    h(EndpointLink, { endpoint }),
    canTry(endpoint) &&
      h(Button, {
        label: 'Retry now',
        icon: 'replay',
        title: `Retry everything that waits for ${shortUrl(url)}`,
        onPress: () => call('endpoints/retry', { url }).then(again),
      }),
  ]);
}

/** How many mails routes hold: asked for after what else is shown, and again when that says so. */
function useHeld(newest: readonly Mail[] | undefined): number {
  const seen = newest?.filter(({ state }) => state === 'held').map(({ id }) => id);
  return useCall('inbound/causes', seen && { query: 'state:held' }, seen?.join()).data?.count ?? 0;
}

/** The domain of the test message, which no DNS has. */
const OF_TEST = /^account-\d+\.test$/;

/** Domains whose DNS was asked and leads elsewhere, or that are not proven. */
function useWrongDomains(): readonly InboundDomain[] {
  const { data = [] } = useDomains();
  return data.filter(
    ({ domain, tested_at: testedAt, valid_mx: isRight, routed }) =>
      !OF_TEST.test(domain) && ((testedAt !== null && !isRight) || !routed),
  );
}

type FeedEntry = { readonly at: number; readonly mail: Mail } | { readonly at: number; readonly refusal: RefusalRow };

/** Mail and refusals as they come. It stands still while the pointer or the focus is on it. */
function Feed({ mail, refused }: { readonly mail: List<Mail>; readonly refused: List<RefusalRow> }) {
  const [held, setHeld] = useState(false);
  const shown = useRef<readonly FeedEntry[] | undefined>(undefined);
  const newest = [
    ...(mail.rows ?? []).map((one) => ({ at: toMs(one.at), mail: one })),
    ...(refused.rows ?? []).map((one) => ({ at: toMs(one.at), refusal: one })),
  ]
    .sort((a, b) => b.at - a.at)
    .slice(0, FEED);
  if (!held || shown.current === undefined) shown.current = newest;
  const entries = shown.current;
  const failed = mail.error ? mail : refused.error ? refused : undefined;
  const hold = (on: boolean) => () => setHeld(on);
  return h(
    'section',
    {
      'aria-labelledby': 'feed',
      onMouseEnter: hold(true),
      onMouseLeave: hold(false),
      onFocusIn: hold(true),
      onFocusOut: hold(false),
    },
    [
      h('div.heading', [h('h2', { id: 'feed' }, 'Live feed'), held && h('span.faint', 'paused while you hover')]),
      failed?.error && h(Fault, { error: failed.error, since: failed.failedAt, again: failed.again }),
      mail.rows === undefined && !failed
        ? h(Bars, { rows: 8 })
        : h('ul.rows.feed', [
            entries.map((entry) =>
              'mail' in entry
                ? h(MailRow, { key: entry.mail.id, mail: entry.mail, canMark: false })
                : h(RefusedRow, { key: `r${entry.refusal.id}`, refusal: entry.refusal }),
            ),
          ]),
    ],
  );
}

function RefusedRow({ refusal }: { readonly refusal: RefusalRow }) {
  const { sender, recipient, client, reply, at, times } = refusal;
  return h('li.mail-row', { 'data-row': `r${refusal.id}` }, [
    h('a', { href: linkTo('/refused', { q: recipient === null ? '' : `to:${recipient}` }) }, [
      h(State, { icon: 'refused', word: 'Refused', tone: 'bad' }),
      h(Parties, { from: sender || client, to: recipient }),
      h('span.subject', plain(reply)),
      h('span.answer', [times > 1 && `\u00d7${number(times)}`]),
      h('span.age', [h(Time, { at })]),
    ]),
  ]);
}

/** How the first mail gets here. */
function FirstMinute() {
  const { smtp = [] } = person.value ?? {};
  const [host = '127.0.0.1', port = '25'] = (smtp[0] ?? '').split(/:(?=\d+$)/);
  const isLocal = /^(?:localhost|127\.0\.0\.1|\[::1\])$/.test(window.location.hostname);
  return h(Notice, { icon: 'inbox', title: 'No messages yet' }, [
    isLocal &&
      may('inbound/add-route') && [
        h('p', ['A test message arrives over SMTP and is posted to a built-in receiver.']),
        h(Button, {
          label: 'Send a test message',
          kind: 'main',
          onPress: () => ask('POST', '/console/test-message', {}),
        }),
      ],
    h('p', ['Or add ', h('a', { href: linkTo('/domains') }, 'a domain and a route'), ', and send a message to it:']),
    h('pre.code', { tabIndex: 0 }, [`swaks --server ${host} --port ${port} --to anything@your-domain.example`]),
    h('p', [h('a', { href: '/docs', target: '_blank', rel: 'noopener' }, 'API reference')]),
  ]);
}
