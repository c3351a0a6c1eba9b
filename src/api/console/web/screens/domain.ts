import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { type Loaded, useLoad } from '../load.ts';
import { Bars, Button, Dialog, Fault, Notice, Title } from '../parts/elements.ts';
import { Confirm, Form, type FormField, type Values } from '../parts/form.ts';
import { Icon } from '../parts/icons.ts';
import { count, plain, shortUrl } from '../parts/text.ts';
import type { DomainServers, InboundDomain, InboundRoute } from '../records.ts';
import { go, linkTo, place, withQuery } from '../router.ts';
import { account, may } from '../session.ts';
import { DnsRecords } from './domain-dns.ts';
import { DomainStateMark, domainSentence, useDomains } from './domains.ts';
import { inOrder, Tester } from './route-tester.ts';

/** One domain: its DNS records, its routes, and beside them the tester. */
export function Domain({ name }: { readonly name: string }): ComponentChildren {
  const { data, error, failedAt, again, change } = useDomains();
  const routes = useLoad(may('inbound/routes') ? `routes ${account.value?.id} ${name}` : undefined, (stop) =>
    call<readonly InboundRoute[]>('inbound/routes', { domain: name }, stop),
  );
  const domain = data?.find((one) => one.domain.toLowerCase() === name.toLowerCase());
  const servers = useLoad(
    domain !== undefined && may('inbound/domain-servers') ? `servers ${account.value?.id} ${name}` : undefined,
    (stop) => call<DomainServers>('inbound/domain-servers', { domain: name }, stop),
  );
  const checked = (newer: InboundDomain) => {
    change((rows) => rows.map((one) => (one.domain === newer.domain ? newer : one)));
    servers.again();
  };
  return h(
    'div',
    { class: 'screen beside' },
    h(
      'div',
      { class: 'pane' },
      h(
        'p',
        { class: 'back' },
        h('a', { href: linkTo('/domains'), 'data-key': 'back' }, h(Icon, { name: 'back' }), 'Domains'),
      ),
      h(Title, { text: plain(name) }),
      error && h(Fault, { error, since: failedAt, again }),
      data === undefined
        ? !error && h(Bars, { rows: 6 })
        : domain === undefined
          ? h(Notice, { title: 'The account has no such domain.' })
          : [
              h(
                'p',
                { key: 'sentence', class: 'sentence' },
                h(DomainStateMark, { domain }),
                ' ',
                domainSentence(domain),
                '.',
              ),
              h(Actions, { key: 'actions', domain, routes: routes.data?.length ?? 0, checked }),
              h(DnsRecords, { key: 'records', domain, servers }),
              may('inbound/routes') && h(Routes, { key: 'routes', domain: name, routes }),
            ],
    ),
    domain !== undefined && may('inbound/test-route') && h(Tester, { stamp: JSON.stringify(routes.data ?? '') }),
  );
}

function Actions({
  domain: { domain },
  routes,
  checked,
}: {
  readonly domain: InboundDomain;
  readonly routes: number;
  checked(newer: InboundDomain): void;
}): ComponentChildren {
  const [removing, setRemoving] = useState(false);
  return h(
    'div',
    { class: 'buttons' },
    may('inbound/check-domain') &&
      h(Button, {
        label: 'Check now',
        icon: 'replay',
        onPress: async () => checked(await call<InboundDomain>('inbound/check-domain', { domain })),
      }),
    may('inbound/delete-domain') && h(Button, { label: 'Remove the domain\u2026', onPress: () => setRemoving(true) }),
    removing &&
      h(
        Confirm,
        {
          title: `Remove ${plain(domain)}?`,
          label: 'Remove it',
          onConfirm: async () => {
            await call('inbound/delete-domain', { domain });
            go(linkTo('/domains'));
          },
          onClose: () => setRemoving(false),
        },
        h(
          'p',
          null,
          routes === 0 ? 'It has no routes. ' : `Its ${count(routes, 'route')} ${routes === 1 ? 'is' : 'are'} lost. `,
          'Mail to it is refused from then on. Mail that was taken already is still posted.',
        ),
      ),
  );
}

/** The routes in the order in which they are tried. */
function Routes({
  domain,
  routes,
}: {
  readonly domain: string;
  readonly routes: Loaded<readonly InboundRoute[]>;
}): ComponentChildren {
  const { data, error, failedAt, again, change } = routes;
  // Who comes from a refusal wants a route for that mailbox.
  const wanted = place.value.query.get('add') ?? undefined;
  const [open, setOpen] = useState<
    { readonly what: 'add' | 'edit' | 'remove'; readonly route?: InboundRoute } | undefined
  >(wanted !== undefined && may('inbound/add-route') ? { what: 'add' } : undefined);
  const close = () => {
    setOpen(undefined);
    if (wanted !== undefined) go(withQuery({ add: undefined }), true);
  };
  const done = () => {
    close();
    again();
  };
  return h(
    'section',
    { 'aria-labelledby': 'routes' },
    h(
      'div',
      { class: 'heading' },
      h('h2', { id: 'routes' }, 'Routes'),
      may('inbound/add-route') && h(Button, { label: 'Add a route\u2026', onPress: () => setOpen({ what: 'add' }) }),
    ),
    h(
      'p',
      { class: 'faint' },
      'In the order in which they are tried: exact names, then patterns with the most literal characters, then the oldest.',
    ),
    error && h(Fault, { error, since: failedAt, again }),
    data === undefined
      ? !error && h(Bars, { rows: 3 })
      : data.length === 0
        ? h(
            Notice,
            { title: 'No route yet.' },
            h('p', null, 'Mail to this domain is refused until a route says where it is posted to.'),
          )
        : h(
            'ol',
            { class: 'rows routes' },
            inOrder(data).map((route) =>
              h(RouteRow, {
                key: route.id,
                route,
                onEdit: () => setOpen({ what: 'edit', route }),
                onRemove: () => setOpen({ what: 'remove', route }),
              }),
            ),
          ),
    open?.what === 'add' && h(AddRoute, { domain, mailbox: wanted, done, onClose: close }),
    open?.what === 'edit' && open.route && h(EditRoute, { route: open.route, done, onClose: close }),
    open?.what === 'remove' &&
      open.route &&
      h(RemoveRoute, {
        route: open.route,
        removed: (id) => change((rows) => rows.filter((one) => one.id !== id)),
        onClose: close,
      }),
  );
}

function RouteRow({
  route: { id, pattern, url, batch_events: batch, format, has_password: hasPassword },
  onEdit,
  onRemove,
}: {
  readonly route: InboundRoute;
  onEdit(): void;
  onRemove(): void;
}): ComponentChildren {
  return h(
    'li',
    { 'data-row': id },
    h('code', { class: 'pattern' }, plain(pattern)),
    h('span', { class: 'faint' }, id),
    h(
      'span',
      { class: 'target' },
      h('span', { 'aria-hidden': 'true', class: 'arrow' }, '\u2192 '),
      h('a', { href: linkTo('/endpoint', { url }) }, shortUrl(url)),
      format !== MANDRILL && h('span', { class: 'faint' }, `, as ${format}`),
      hasPassword && h('span', { class: 'faint' }, ', with a password'),
      batch > 1 && h('span', { class: 'faint' }, `, up to ${batch} mails in a POST`),
    ),
    h(
      'span',
      { class: 'buttons' },
      h('a', { class: 'button quiet', href: linkTo('/mail', { q: `route:${id}` }) }, 'Mail'),
      may('inbound/update-route') &&
        h(Button, { label: 'Change\u2026', kind: 'quiet', title: `Route ${id}`, onPress: onEdit }),
      may('inbound/delete-route') &&
        h(Button, { label: 'Remove\u2026', kind: 'quiet', title: `Route ${id}`, onPress: onRemove }),
    ),
  );
}

const MANDRILL = 'mandrill';

/** The forms of posts, by the applications that read them (inbound/formats.ts). */
const FORMATS: readonly (readonly [string, string])[] = [
  [MANDRILL, 'Mandrill: a form with mandrill_events'],
  ['raw', 'the message itself: Rails (relay), MIME libraries'],
  ['json', "Postern's own JSON"],
  ['postmark', 'Postmark'],
  ['mailgun', 'Mailgun, parsed'],
  ['mailgun-mime', 'Mailgun, raw (URLs that end in mime)'],
  ['sendgrid', 'SendGrid, parsed'],
  ['sendgrid-raw', 'SendGrid, raw'],
  ['cloudmailin', 'CloudMailin'],
];

/** Formats whose posts are the message itself, with its attachments. */
const WHOLE = ['raw', 'mailgun-mime', 'sendgrid-raw'];

const ATTACHMENTS: readonly (readonly [string, string])[] = [
  ['auto', 'in the POST, as links once the receiver finds it too large'],
  ['inline', 'in the POST'],
  ['link', 'as links'],
  ['none', 'name and size only'],
];

const fieldsOf = (route: Partial<InboundRoute>): readonly FormField[] => [
  {
    name: 'pattern',
    label: 'Mailbox',
    value: route.pattern ?? '',
    help: 'The part before the @. * is any run of characters, ? is one: support-* or *.',
  },
  {
    name: 'url',
    label: 'URL',
    value: route.url ?? '',
    help: 'Mail is posted there. It is asked now whether it answers. With pull: a consumer fetches it (postern listen).',
  },
  {
    name: 'format',
    label: 'Format',
    value: route.format ?? '',
    options: route.format === undefined ? [['', 'Default of this host (inbound.default_format)'], ...FORMATS] : FORMATS,
    help: 'The service whose posts the application reads.',
  },
  {
    name: 'attachments',
    when: ({ format = '' }) => !WHOLE.includes(format),
    label: 'Attachments',
    value: route.attachments ?? 'auto',
    options: ATTACHMENTS,
    help: 'A link is fetched without a key, and good for a week unless the host is set otherwise.',
  },
  {
    name: 'password',
    label: 'Password',
    type: 'password',
    help: `Sent as Basic authentication with the user actionmailbox${route.has_password ? '; there is one, which stays if you leave this empty' : ''}.`,
  },
  {
    name: 'batch_events',
    when: ({ format }) => format === MANDRILL || format === '',
    label: 'Mails in a POST, at most',
    type: 'number',
    value: String(route.batch_events ?? 1),
    help: 'More than one only when several wait; nothing waits for a POST to fill.',
  },
];

const paramsOf = ({ pattern, url, format = '', attachments, password = '', batch_events: batch = '' }: Values) => ({
  pattern,
  url,
  ...(format !== '' && { format }),
  attachments: WHOLE.includes(format) ? 'auto' : attachments,
  ...(password !== '' && { password }),
  ...(batch.trim() !== '' && { batch_events: Number(batch) }),
});

interface RouteDialog {
  /** It is done: show the routes anew. */
  done(): void;
  onClose(): void;
}

function AddRoute({
  domain,
  mailbox,
  done,
  onClose,
}: RouteDialog & { readonly domain: string; readonly mailbox: string | undefined }): ComponentChildren {
  return h(
    Dialog,
    { title: 'Add a route', onClose },
    h(Form, {
      fields: fieldsOf({ pattern: mailbox ?? '' }),
      label: 'Add it',
      onSubmit: async (values) => {
        await call('inbound/add-route', { domain, ...paramsOf(values) });
        done();
      },
    }),
  );
}

function EditRoute({ route, done, onClose }: RouteDialog & { readonly route: InboundRoute }): ComponentChildren {
  return h(
    Dialog,
    { title: `Change route ${route.id}`, onClose },
    h('p', { class: 'faint' }, 'With another URL, mail that still waits for this route is posted there too.'),
    h(Form, {
      fields: fieldsOf(route),
      label: 'Save',
      onSubmit: async (values) => {
        await call('inbound/update-route', { id: route.id, ...paramsOf(values) });
        done();
      },
    }),
  );
}

function RemoveRoute({
  route: { id, pattern },
  removed,
  onClose,
}: {
  readonly route: InboundRoute;
  removed(id: string): void;
  onClose(): void;
}): ComponentChildren {
  return h(
    Confirm,
    {
      title: `Remove route ${id}?`,
      label: 'Remove it',
      onConfirm: async () => {
        await call('inbound/delete-route', { id });
        removed(id);
      },
      onClose,
    },
    h(
      'p',
      null,
      'Mail to ',
      h('code', null, plain(pattern)),
      ' then matches another route, or is refused with 550. Mail that was taken already is still posted.',
    ),
  );
}
