import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall, useRepeat } from '../load.ts';
import type { Answer } from '../operations.ts';
import { ReplayDialog } from '../parts/changes.ts';
import { Button, Dialog, DialogButton, Facts, Loading, Notice, Table, Time, Title } from '../parts/elements.ts';
import { Confirm, Copy } from '../parts/form.ts';
import { Back, mayOpen, ToScreen } from '../parts/sections.ts';
import { canTry, EndpointStateMark, endpointSentence, WAITS_FOR } from '../parts/states.ts';
import { clockTime, count, isPulled, number, plain, shortUrl, span, toMs } from '../parts/text.ts';
import { PostSample } from '../parts/trial.ts';
import { withField } from '../query.ts';
import type { EndpointDetail, Figures } from '../records.ts';
import { linkTo, location, messageLink } from '../router.ts';
import { account, may } from '../session.ts';

const ofUrl = (url: string) => withField('', 'url', url);

/** One endpoint: its state, its answers, and how to catch up. */
export function Endpoint() {
  const url = location.value.query.get('url') ?? '';
  const loaded = useRepeat(useCall('endpoints/info', { url }));
  const { data: endpoint, error, again } = loaded;
  return h('div.screen.narrow', [
    h(Back),
    h(Title, { text: shortUrl(url) }),
    error?.kind === 'Unknown_Endpoint'
      ? h(Notice, { title: 'No route or webhook uses this URL, and nothing is waiting for it' })
      : h(Loading, { of: loaded, rows: 6 }),
    endpoint && h(Detail, { endpoint, again }),
  ]);
}

function Detail({ endpoint, again }: { readonly endpoint: EndpointDetail; again(): void }) {
  const { url, waiting, oldest_at: oldestAt, in_flight: inFlight, hour, day } = endpoint;
  return h('article', [
    h('p.sentence', [h(EndpointStateMark, { endpoint }), ' ', endpointSentence(endpoint), '.']),
    h(Actions, { endpoint, again }),
    h(Facts, {
      rows: [
        [
          'Waiting',
          waiting === 0
            ? 'None'
            : h('span', [
                h(ToScreen, { path: '/mail', query: { q: `${ofUrl(url)} state:waiting` } }, count(waiting, 'message')),
                oldestAt !== null && [', oldest ', h(Time, { at: oldestAt })],
              ]),
        ],
        ['In flight', number(inFlight)],
        ['Last hour', figuresText(hour)],
        ['Last 24 hours', figuresText(day)],
        [
          'Routes',
          endpoint.routes.length === 0
            ? 'None'
            : endpoint.routes.map((id, i) => [
                i > 0 && ', ',
                h(ToScreen, { key: id, path: '/mail', query: { q: `route:${id}` } }, id),
              ]),
        ],
      ],
    }),
    h('h2', 'Recent POSTs'),
    h(Strip, { posts: endpoint.recent }),
    // An answer may quote the mail.
    mayOpen('/mail') && [h('h2', 'Responses'), h(Answers, { endpoint })],
    endpoint.preparing.length > 0 && [h('h2', 'In preparation'), h(PreparingList, { preparing: endpoint.preparing })],
    mayOpen('/mail') &&
      h('p.faint', [h('a', { href: linkTo('/mail', { q: ofUrl(url) }) }, 'All messages for this endpoint')]),
  ]);
}

function Actions({ endpoint, again }: { readonly endpoint: EndpointDetail; again(): void }) {
  const [said, setSaid] = useState<string>();
  const { url, paused, paused_by: by } = endpoint;
  const [route] = endpoint.routes;
  const isOperators = by === 'operator';
  const run = async (operation: 'endpoints/retry' | 'endpoints/pause' | 'endpoints/resume', done: string) => {
    await call(operation, { url });
    setSaid(done);
    again();
  };
  return h('div.buttons', [
    canTry(endpoint) &&
      h(Button, {
        label: 'Retry now',
        kind: 'main',
        icon: 'replay',
        onPress: () => run('endpoints/retry', 'Retrying all waiting messages.'),
      }),
    may('endpoints/pause') &&
      !paused &&
      h(Button, {
        label: 'Pause',
        icon: 'pause',
        onPress: () => run('endpoints/pause', 'Paused. Mail is still accepted, and waits.'),
      }),
    isOperators &&
      may('host/resume') &&
      h(Button, {
        label: 'Resume',
        kind: 'main',
        onPress: async () => {
          await call('host/resume', { query: `account:${account.value?.id} url:${url}`, at_most: 1 });
          setSaid('Resumed.');
          again();
        },
      }),
    may('endpoints/resume') &&
      paused &&
      !isOperators &&
      h(Button, { label: 'Resume', kind: 'main', onPress: () => run('endpoints/resume', 'Resumed.') }),
    may('inbound/replay') &&
      h('span', { 'data-key': 'replay' }, [
        h(DialogButton, {
          label: 'Replay failed mail\u2026',
          dialog: (onClose) => h(ReplayDialog, { wish: { query: ofUrl(url), state: 'dead' }, onClose }),
          onClosed: again,
        }),
      ]),
    route !== undefined &&
      !isPulled(url) &&
      may('inbound/try-route') &&
      h(PostSample, { route, label: 'Post a sample' }),
    route !== undefined && may('inbound/route-key') && h(SigningKey, { route }),
    said !== undefined && h('span.faint', { role: 'status' }, [said]),
    isOperators && !may('host/resume') && h('span.faint', 'Only the operator can resume it.'),
  ]);
}

function figuresText({ attempts, ok, p50_ms: p50, p95_ms: p95 }: Figures): string {
  if (attempts === 0) return 'No POSTs';
  const share = Math.floor((ok / attempts) * 1000) / 10;
  // A number is not parted from its unit.
  const time = (ms: number | null) => span(ms ?? 0).replaceAll(' ', '\u00a0');
  return `${count(attempts, 'POST')}, ${share}% successful; median ${time(p50)}, p95 ${time(p95)}`;
}

type StripPost = EndpointDetail['recent'][number];

const isOk = ({ status }: StripPost) => status !== null && status >= 200 && status < 300;
const answerText = ({ status, error }: { readonly status: number | null; readonly error: string | null }) =>
  status === null ? plain(error ?? 'no response') : `HTTP ${status}`;

const STEP = 7;
const HIGH = 28;

/** The last POSTs as bars: high ones were answered with 2xx, low ones were not. */
function Strip({ posts }: { readonly posts: readonly StripPost[] }) {
  if (posts.length === 0) return h('p.faint', 'None yet');
  const good = posts.filter(isOk).length;
  return h('figure.strip', [
    h(
      'svg',
      {
        viewBox: `0 0 ${100 * STEP} ${HIGH}`,
        role: 'img',
        'aria-label': `${good} of the last ${posts.length} POSTs succeeded`,
        preserveAspectRatio: 'xMinYMid meet',
      },
      [
        posts.map((post, i) => {
          const ok = isOk(post);
          return h(
            'rect',
            {
              key: `${post.at} ${i}`,
              class: ok ? 'good' : 'bad',
              x: i * STEP,
              y: ok ? 0 : HIGH / 2,
              width: STEP - 2,
              height: ok ? HIGH : HIGH / 2,
              rx: 1,
            },
            [h('title', [`${clockTime(toMs(post.at))}, ${answerText(post)}, ${post.ms} ms`])],
          );
        }),
      ],
    ),
    h('figcaption.faint', [`${good} of the last ${posts.length} succeeded; newest on the right.`]),
    h('details', [
      h('summary', 'Show as table'),
      h(Table, {
        label: 'Recent POSTs',
        columns: ['Time', 'Response', 'Duration'],
        rows: posts.map((post) => [clockTime(toMs(post.at)), answerText(post), `${post.ms} ms`]).toReversed(),
      }),
    ]),
  ]);
}

/** One cause is one row. */
function Answers({ endpoint }: { readonly endpoint: EndpointDetail }) {
  if (endpoint.answers.length === 0) return h('p.faint', 'None yet');
  return [
    h('ul.rows.columns.answers', [
      endpoint.answers.map((answer) => {
        const status = answer.status === null ? 'none' : String(answer.status);
        return h('li', { key: `${answer.status} ${answer.error} ${answer.text}` }, [
          h('span', { class: answer.status !== null && answer.status < 300 ? 'good' : 'bad' }, answerText(answer)),
          h('span.count', `\u00d7${number(answer.count)}`),
          h('span.said', { dir: 'auto' }, plain(answer.text)),
          h('span.faint', [h(Time, { at: answer.last_at })]),
          h('span', [
            h('a', { href: messageLink(answer.example_id) }, 'Example'),
            ' \u00b7 ',
            h('a', { href: linkTo('/mail', { q: `${ofUrl(endpoint.url)} status:${status}` }) }, [
              'Messages with this status',
            ]),
          ]),
        ]);
      }),
    ]),
    endpoint.answers.some(({ text }) => text.includes('#')) &&
      h('p.faint', 'Responses that differ only in numbers are counted together: # stands for a number.'),
    endpoint.sampled && h('p.faint', 'Counts cover the most recent POSTs only.'),
  ];
}

function PreparingList({ preparing }: { readonly preparing: EndpointDetail['preparing'] }) {
  return h('ul.rows', [
    preparing.map(({ id, since, waits_for: waitsFor, question }) =>
      h('li', { key: id }, [
        h('p', [
          h('a', { href: messageLink(id) }, [WAITS_FOR[waitsFor]]),
          question !== null && [', looking up ', h('code', plain(question))],
          ', started ',
          h(Time, { at: since }),
        ]),
      ]),
    ),
  ]);
}

/** A button that shows the key by which a receiver knows that posts are ours, and makes a new one. */
function SigningKey({ route }: { readonly route: string }) {
  const [key, setKey] = useState<Answer<'inbound/route-key'>>();
  const [rotating, setRotating] = useState(false);
  const load = async (rotate?: boolean) => setKey(await call('inbound/route-key', { id: route, rotate }));
  return h('span', [
    h(Button, { label: 'Signing key\u2026', onPress: () => load() }),
    key &&
      h(Dialog, { title: 'Signing key', onClose: () => setKey(undefined) }, [
        h('p', ['Signs the POSTs to this URL. Anyone who has it can forge them.']),
        h(OneForm, { title: 'For X-Mandrill-Signature, or as the Mailgun signing key', text: key.auth_key }),
        h(OneForm, { title: 'For webhook-signature (Standard Webhooks libraries)', text: key.signing_secret }),
        h('p.buttons', [
          h(Button, { label: 'Rotate\u2026', onPress: () => setRotating(true) }),
          h(Button, { label: 'Close', kind: 'main', onPress: () => setKey(undefined) }),
        ]),
      ]),
    key &&
      rotating &&
      h(Confirm, {
        question: 'Rotate the signing key?',
        text: [
          'For 24 hours, webhook-signature carries the signatures of both keys, and X-Mandrill-Signature ' +
            'alternates between them. After that, the old key stops working.',
        ],
        confirm: 'Rotate key',
        onConfirm: () => load(true),
        onClose: () => setRotating(false),
      }),
  ]);
}

function OneForm({ title, text }: { readonly title: string; readonly text: string }) {
  return h('div', [h('p.faint', title), h('p.copied', [h('code.secret', text), h(Copy, { text, label: 'Copy' })])]);
}
