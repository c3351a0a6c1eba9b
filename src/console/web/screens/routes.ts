import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Loaded } from '../load.ts';
import { Button, Dialog, DialogButton, Loading, Notice } from '../parts/elements.ts';
import { ConfirmButton, Form, type FormField, type Values } from '../parts/form.ts';
import { plain, shortUrl } from '../parts/text.ts';
import type { InboundRoute } from '../records.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { may } from '../session.ts';
import {
  ACTIONS,
  ATTACHMENTS,
  CONDITIONS,
  type Condition,
  FORMATS,
  isWhole,
  MANDRILL,
  ORDERS,
  YES_NO,
} from './route-choices.ts';
import { inOrder } from './route-tester.ts';

/** The routes in the order in which they are tried. */
export function Routes({
  domain,
  routes,
}: {
  readonly domain: string;
  readonly routes: Loaded<readonly InboundRoute[]>;
}) {
  const { data, again, change } = routes;
  // A visitor coming from a refusal wants a route for that mailbox.
  const wanted = location.value.query.get('add') ?? undefined;
  const [adding, setAdding] = useState(wanted !== undefined && may('inbound/add-route'));
  const close = () => {
    setAdding(false);
    if (wanted !== undefined) go(withQuery({ add: undefined }), true);
  };
  return h('section', { 'aria-labelledby': 'routes' }, [
    h('div.heading', [
      h('h2', { id: 'routes' }, 'Routes'),
      may('inbound/add-route') && h(Button, { label: 'Add a route\u2026', onPress: () => setAdding(true) }),
    ]),
    h('p.faint', [
      'Listed in the order they are tried: by priority, then exact names, then patterns with the most ' +
        'literal characters, then the oldest.',
    ]),
    h(Loading, { of: routes, rows: 3 }),
    data &&
      (data.length === 0
        ? h(Notice, { title: 'No routes yet' }, [h('p', 'Mail to this domain is refused until a route accepts it.')])
        : h('ol.rows.routes', [
            inOrder(data).map((route) =>
              h(RouteRow, {
                key: route.id,
                route,
                again,
                removed: () => change((rows) => rows.filter((one) => one.id !== route.id)),
              }),
            ),
          ])),
    adding &&
      h(RouteDialog, {
        route: { pattern: wanted ?? '' },
        save: (params) => call('inbound/add-route', { domain, ...params }).then(again),
        onClose: close,
      }),
  ]);
}

function RouteRow({ route, again, removed }: { readonly route: InboundRoute; again(): void; removed(): void }) {
  const { id, pattern, url, format, facts, order, action, also } = route;
  const { batch_events: batch, has_password: hasPassword } = route;
  const rules = rulesOf(route);
  return h('li', { 'data-row': id }, [
    h('code.pattern', plain(pattern)),
    h('span.faint', id),
    h('span.target', [
      action === 'post'
        ? [
            h('span.arrow', { 'aria-hidden': 'true' }, '\u2192 '),
            h('a', { href: linkTo('/endpoint', { url }) }, shortUrl(url)),
            format !== MANDRILL && h('span.faint', `, as ${format}`),
            facts && h('span.faint', ', with facts'),
            hasPassword && h('span.faint', ', with a password'),
            batch > 1 && h('span.faint', `, up to ${batch} messages per POST`),
            order !== 'none' && h('span.faint', `, in order by ${order}`),
            ...also.map((one) =>
              h('span', { key: one.url }, [
                ' and ',
                h('a', { href: linkTo('/endpoint', { url: one.url }) }, shortUrl(one.url)),
              ]),
            ),
          ]
        : ACTIONS[action].does,
      rules !== '' && h('span.faint', ` ${rules}`),
    ]),
    h('span.buttons', [
      h('a.button.quiet', { href: linkTo('/mail', { q: `route:${id}` }) }, 'Messages'),
      may('inbound/update-route') &&
        h(DialogButton, {
          label: 'Edit\u2026',
          kind: 'quiet',
          title: `Route ${id}`,
          dialog: (onClose) =>
            h(RouteDialog, {
              route,
              save: (params) => call('inbound/update-route', { id, ...params }).then(again),
              onClose,
            }),
        }),
      may('inbound/delete-route') &&
        h(ConfirmButton, {
          label: 'Remove\u2026',
          kind: 'quiet',
          title: `Route ${id}`,
          question: `Remove route ${id}?`,
          text: [
            [
              'Mail to ',
              h('code', plain(pattern)),
              ' will match another route or be refused with 550. Mail already accepted is still posted.',
            ],
          ],
          confirm: 'Remove route',
          onConfirm: () => call('inbound/delete-route', { id }).then(removed),
        }),
    ]),
  ]);
}

/** The mail that a route takes, and its tags. */
function rulesOf({ when, tags, priority }: InboundRoute): string {
  const conditions = Object.entries(when).map(
    ([name, value]) => `${name}${isNested(value) ? ' ' : ' = '}${valueText(value)}`,
  );
  return [
    conditions.length > 0 && `when ${conditions.join(' and ')}`,
    tags.length > 0 && `tags ${tags.join(', ')}`,
    priority !== 0 && `priority ${priority}`,
  ]
    .filter(Boolean)
    .map(String)
    .map(plain)
    .join(' \u00b7 ');
}

const isNested = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function valueText(value: unknown): string {
  if (Array.isArray(value)) return value.map(valueText).join(' or ');
  if (!isNested(value)) return value === true ? 'yes' : value === false ? 'no' : String(value);
  return Object.entries(value)
    .map(([name, inner]) => `${name} ${valueText(inner)}`)
    .join(' and ');
}

/** The conditions that the form asks for. Others are kept as they are. */
const ASKED: readonly (Condition & { readonly name: string })[] = Object.entries(CONDITIONS).flatMap(([name, one]) =>
  one === null ? [] : { ...one, name },
);

const isConditional = ({ conditional }: Values): boolean => conditional === 'yes';

/** A condition as text in its field; lists have commas. */
const textOf = (route: Partial<InboundRoute>, name: string): string => {
  const value = route.when?.[name];
  return value === undefined ? '' : Array.isArray(value) ? value.join(', ') : String(value);
};

const conditionFields = (route: Partial<InboundRoute>): readonly FormField[] => [
  {
    name: 'conditional',
    label: 'Applies to',
    value: Object.keys(route.when ?? {}).length > 0 ? 'yes' : 'no',
    options: [
      ['no', 'All mail to the mailbox'],
      ['yes', 'Only mail that meets conditions'],
    ],
  },
  ...ASKED.map((field) => ({ ...field, when: isConditional, value: textOf(route, field.name) })),
];

/** The conditions of the form, and those that it does not have. */
function whenOf(values: Values, route: Partial<InboundRoute>): Readonly<Record<string, unknown>> {
  if (!isConditional(values)) return {};
  const given = ASKED.flatMap(({ name, options }) => {
    const value = (values[name] ?? '').trim();
    if (value === '') return [];
    // A result that is a list was made elsewhere: it stays unless it is changed here.
    if (options && value === textOf(route, name)) return [[name, route.when?.[name]] as const];
    return [[name, options ? (options === YES_NO ? value === 'true' : value) : listOf(value)] as const];
  });
  const others = Object.entries(route.when ?? {}).filter(([name]) => !ASKED.some((one) => one.name === name));
  return Object.fromEntries([...others, ...given.filter(([, value]) => !Array.isArray(value) || value.length > 0)]);
}

const listOf = (text = ''): readonly string[] =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

const isPosting = ({ action }: Values): boolean => action === 'post';
const hasUrl = ({ action }: Values): boolean => action === 'post' || action === 'hold';

const fieldsOf = (route: Partial<InboundRoute>): readonly FormField[] => [
  {
    name: 'pattern',
    label: 'Mailbox',
    value: route.pattern ?? '',
    help: 'The part before the @. * matches any characters, ? matches one: support-* or *.',
  },
  ...conditionFields(route),
  {
    name: 'action',
    label: 'Action',
    value: route.action ?? 'post',
    options: Object.entries(ACTIONS).map(([name, { choice }]) => [name, choice] as const),
  },
  {
    name: 'url',
    when: hasUrl,
    label: 'URL',
    value: route.url ?? '',
    help: 'Mail is posted here. The URL is checked on save. Enter pull: to fetch the mail instead (postern listen).',
  },
  {
    name: 'format',
    when: isPosting,
    label: 'Format',
    value: route.format ?? '',
    options:
      route.format === undefined
        ? [['', 'Host default (inbound.default_format)'], ...Object.entries(FORMATS)]
        : Object.entries(FORMATS),
    help: 'Payload format your application expects.',
  },
  {
    name: 'attachments',
    when: ({ action, format = '' }) => action === 'post' && !isWhole(format),
    label: 'Attachments',
    value: route.attachments ?? 'auto',
    options: Object.entries(ATTACHMENTS),
    help: 'Anyone with a link can download the file, by default for 7 days.',
  },
  {
    name: 'facts',
    when: ({ action, format = '' }) => action === 'post' && !isWhole(format),
    label: 'Facts',
    value: String(route.facts ?? false),
    options: [
      ['false', 'Off'],
      ['true', 'Visible and hidden text, invisible characters, misleading links'],
    ],
    help: 'Adds the text that a reader sees, and what is hidden from them, to the payload.',
  },
  {
    name: 'password',
    when: isPosting,
    label: 'Password (optional)',
    type: 'password',
    help:
      'Sent with HTTP Basic authentication, with the user name ' +
      `actionmailbox.${route.has_password ? ' Leave blank to keep the current one.' : ''}`,
  },
  {
    name: 'batch_events',
    when: ({ action, format }) => action === 'post' && (format === MANDRILL || format === ''),
    label: 'Max messages per POST',
    type: 'number',
    value: String(route.batch_events ?? 1),
    help: 'Groups messages that are already waiting; none is delayed to fill a POST.',
  },
  {
    name: 'order',
    when: hasUrl,
    label: 'Order',
    value: route.order ?? 'none',
    options: Object.entries(ORDERS),
    help: 'A message that fails delays the later ones of its sender or conversation for a while.',
  },
  {
    name: 'tags',
    label: 'Tags (optional)',
    value: (route.tags ?? []).join(', '),
    help: 'Added to the tags in the payload. Separate with commas.',
  },
  {
    name: 'priority',
    label: 'Priority',
    type: 'number',
    value: String(route.priority ?? 0),
    help: 'Routes with a higher priority are tried first.',
  },
];

function paramsOf(values: Values, route: Partial<InboundRoute>) {
  const { pattern, action, url = '', format = '', attachments, facts, password = '', order, tags } = values;
  const { batch_events: batch = '', priority = '0' } = values;
  return {
    pattern,
    action,
    when: whenOf(values, route),
    tags: listOf(tags),
    url: hasUrl(values) ? url : undefined,
    ...(format !== '' && { format }),
    attachments: isWhole(format) ? 'auto' : attachments,
    facts: facts === 'true',
    ...(password !== '' && { password }),
    ...(batch.trim() !== '' && { batch_events: Number(batch) }),
    order,
    priority: Number(priority),
  };
}

/** The form of a new route, of which `route` is what is known, or of one that there is, with an id. */
function RouteDialog({
  route,
  save,
  onClose,
}: {
  readonly route: Partial<InboundRoute>;
  save(params: ReturnType<typeof paramsOf>): Promise<unknown>;
  onClose(): void;
}) {
  const isNew = route.id === undefined;
  return h(Dialog, { title: isNew ? 'Add a route' : `Edit route ${route.id}`, onClose }, [
    !isNew && h('p.faint', ['A new URL also applies to mail that is already waiting for this route.']),
    h(Form, {
      fields: fieldsOf(route),
      label: isNew ? 'Add route' : 'Save',
      onSubmit: (values) => save(paramsOf(values, route)).then(onClose),
    }),
  ]);
}
