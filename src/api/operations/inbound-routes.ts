import { z } from 'zod';
import { optional, PLEASE_ENTER, text } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { matchesUnknown } from '../../inbound/conditions.ts';
import { ACTION_NAMES, ACTIONS, type RouteAction, toAction } from '../../inbound/decision.ts';
import {
  ATTACHMENT_MODES,
  type AttachmentMode,
  FORMAT_NAMES,
  FORMATS,
  type FormatName,
  factsOf,
  toStyle,
} from '../../inbound/formats.ts';
import { ORDER_NAMES, ORDERS, toOrder } from '../../inbound/order.ts';
import { isPulled } from '../../inbound/pulled.ts';
import { MAX_ROUTES_TRIED } from '../../inbound/routing.ts';
import { foldCase } from '../../mail/addresses/address.ts';
import { type InboundRouteRow, nameOf, pagesOfRoutes } from '../../store/rows/domains.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { bool, int, knownDomain, pattern, record, routeUrl, shownUrl, str, verifyUrl } from './fields.ts';
import { findDomain } from './inbound-domains.ts';
import {
  action,
  also,
  MAX_OF_A_PATTERN,
  priority,
  ruleRecord,
  sameWhen,
  tags,
  toAlsoRecord,
  toAlsoRows,
  toWhenRecord,
  toWhenRow,
  when,
  withoutUndefined,
} from './route-rules.ts';

export const inboundRouteRecord = record('inbound route record', {
  id: str('unique identifier'),
  pattern: str('pattern for the mailbox name'),
  url: str('webhook URL that inbound messages are posted to; `pull:` or `pull:NAME` if they are pulled'),
  batch_events: int('maximum number of messages per POST'),
  format: z.enum(FORMAT_NAMES).describe('payload format'),
  raw: bool('whether posts of a parsed message include the raw message'),
  attachments: z.enum(ATTACHMENT_MODES).describe('how attachments are delivered'),
  link_over: int('files up to this size in bytes are inlined'),
  facts: bool('whether posts include `facts`: what a person sees of the message'),
  has_password: bool('whether posts have a password (Basic authentication)'),
  order: z.enum(ORDER_NAMES).describe('delivery order'),
  ...ruleRecord,
});

/** All messages of a POST must be handled before its deadline, so there cannot be many. */
const MAX_BATCHED = 100;

const routeId = text(255).describe('id of the route');
const batchEvents = optional(z.int().min(1).max(MAX_BATCHED)).describe(
  `maximum number of messages per POST when several are waiting, 1 to ${MAX_BATCHED}; 1 for a new route if ` +
    'omitted',
);
const format = optional(z.enum(FORMAT_NAMES)).describe(
  `payload format: ${FORMAT_NAMES.map((name) => `${name} (${FORMATS[name].about})`).join(', ')}; for a new ` +
    'route, inbound.default_format if omitted',
);
const raw = optional(z.boolean()).describe(
  'false leaves raw_msg, raw or RawEmail out of posts of a parsed message; true for a new route if omitted',
);
const attachments = optional(z.enum(ATTACHMENT_MODES)).describe(
  'auto (for a new route if omitted): inline, or links after the receiver has responded with 413, or twice with 400 ' +
    'or 500 to a message above 1 MB; inline: in the post; link: as links, without raw_msg; none: name, type and size ' +
    'only. The formats that contain the whole message (raw, mailgun-mime, sendgrid-raw) always include them',
);
const linkOver = optional(
  z
    .int()
    .min(0)
    .max(1024 ** 3),
).describe('files up to this size in bytes stay in the post when others are links; 0 for a new route if omitted');
const facts = optional(z.boolean()).describe(
  'true adds `facts` to the post: visible text, hidden text, invisible characters, and links whose text names ' +
    'another host; false for a new route if omitted. Not available in formats that contain the whole message',
);
const password = optional(z.string().max(255)).describe(
  'sent as Basic authentication with the user `actionmailbox`, and never shown again; an empty text removes ' +
    'it. A user and password in the URL take precedence',
);

const order = optional(z.enum(ORDER_NAMES)).describe(
  `delivery order: ${ORDER_NAMES.map((name) => `${name} (${ORDERS[name].about})`).join(', ')}; none for a new ` +
    'route if omitted',
);

/** In place of a URL, for a route that posts nothing. */
const NOWHERE = 'nowhere';

/** The parameters of a route besides its pattern and URL. */
const OPTIONS = {
  batch_events: batchEvents,
  format,
  raw,
  attachments,
  link_over: linkOver,
  facts,
  password,
  order,
  action,
  when,
  tags,
  priority,
  also,
};

/** The defaults of these parameters for a new route. */
const NEW_ROUTE = {
  batchEvents: 1,
  raw: true,
  attachments: 'auto',
  linkOver: 0,
  facts: false,
  password: null,
  order: 'none',
  action: 'post',
  when: null,
  tags: [],
  priority: 0,
  ...toAlsoRows([], {}),
} as const;

/** Converts these parameters to columns; undefined: unchanged. */
function toColumns(
  {
    batch_events: batchEvents,
    link_over: linkOver,
    password,
    when,
    also,
    ...same
  }: z.output<z.ZodObject<typeof OPTIONS>>,
  before: Pick<InboundRouteRow, 'also' | 'lastAlso'>,
) {
  return {
    ...same,
    batchEvents,
    linkOver,
    password: password === '' ? null : password,
    when: when && toWhenRow(when),
    ...(also && toAlsoRows(also, before)),
  };
}

type RouteOption = Exclude<keyof InboundRouteRow, 'id' | 'pattern' | 'url' | 'account' | 'domain' | 'createdAt'>;

export function toRouteRecord(
  row: Pick<InboundRouteRow, 'id' | 'pattern' | 'url'> & Partial<Pick<InboundRouteRow, RouteOption>>,
) {
  const { id, pattern, url, batchEvents = 1, password, also = [], tags = [], priority = 0 } = row;
  const { linkOver, facts, ...style } = toStyle(row);
  return {
    id,
    pattern,
    url,
    batch_events: batchEvents,
    ...style,
    link_over: linkOver,
    facts,
    has_password: Boolean(password),
    order: toOrder(row.order),
    action: toAction(row.action),
    when: toWhenRecord(row.when),
    tags: [...tags],
    priority,
    also: also.map(toAlsoRecord),
  };
}

/** A route as text, for the list of actions. */
const routeText = ({ pattern, domain, url, action }: Pick<InboundRouteRow, 'pattern' | 'domain' | 'url' | 'action'>) =>
  `${pattern}@${domain} ${url === '' ? `(${toAction(action)})` : `to ${shownUrl(url)}`}`;

/** Throws Unknown_InboundRoute, also for a route of another account. */
export async function findRoute(
  id: string,
  { store, orRefuse }: Call<'Unknown_InboundRoute'>,
): Promise<InboundRouteRow> {
  return orRefuse(await store.inboundRoutes.one({ id }), 'Unknown_InboundRoute', id);
}

const routes = listOperation({
  path: '/inbound/routes',
  access: 'settings',
  summary: 'Lists the routes of an inbound domain, oldest first.',
  params: { domain: knownDomain },
  returns: z.array(inboundRouteRecord),
  errors: ['Unknown_InboundDomain'],
  example: { domain: 'inbound.example.com' },
  async *pages({ domain }, call) {
    const id = nameOf(await findDomain(domain, call));
    yield* mapPages(pagesOfRoutes(call.store, id), (page) => page.map(toRouteRecord));
  },
});

const addRoute = operation({
  path: '/inbound/add-route',
  access: 'settings',
  summary: 'Adds a route: mail to mailboxes of the domain that match the pattern is posted to the URL.',
  notes:
    'The first route that matches takes the mail: by `priority`, then an exact name, then the pattern with the most ' +
    'literal characters, then the oldest. With `when`, a route matches only mail that meets the conditions; ' +
    'otherwise the next route is tried. Mail to a mailbox that no pattern matches is refused with 550 5.1.1; if only ' +
    'conditions are not met, with 550 5.7.1. An unknown result meets no condition, so a failing DNS or scanner never ' +
    'rejects or discards mail. Conditions on DMARC and on scanners are checked before the reply to the message, if ' +
    `the decision depends on them. Of the routes that match a mailbox, the first ${MAX_ROUTES_TRIED} are tried. ` +
    'A message that may be refused for its content is accepted for one recipient at a time (452 4.5.3). ' +
    'With `batch_events` above 1, waiting messages of the route share a POST: ' +
    '`mandrill_events` has several events, each with its own `_id`. Messages never wait for a batch to fill; if a ' +
    'batch fails, its messages are posted again one by one. With `order`, a message waits until the previous one of ' +
    'the same author, or of the same conversation, has ended; other mail is not delayed. If that one fails for ' +
    'longer than delivery.order_hold_minutes while the endpoint is up, the next one is tried, and the sequence ' +
    'continues without it if that succeeds.',
  params: {
    domain: knownDomain,
    pattern,
    url: routeUrl
      .or(z.literal(NOWHERE))
      .describe(
        'the webhook URL; it is checked now, and must respond to HEAD with 200, or to a POST of an empty batch ' +
          'with 2xx. Or `pull:` or ' +
          '`pull:NAME`: nothing is posted, and mail waits for `/inbound/pull`. Optional with the actions ' +
          inWords(ACTION_NAMES.filter((name) => !ACTIONS[name].needsUrl)),
      ),
    ...OPTIONS,
  },
  defaults: ({ action }) =>
    ACTIONS[toAction(typeof action === 'string' ? action : undefined)].needsUrl ? {} : { url: NOWHERE },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundDomain'],
  example: { domain: 'inbound.example.com', pattern: 'support', url: 'https://app.example.com/hooks/support' },
  async handle({ domain, pattern, url: to, ...given }, call) {
    const url = to === NOWHERE ? '' : to;
    const format = call.settings.defaultFormat;
    const options = { ...NEW_ROUTE, format, ...withoutUndefined(toColumns(given, {})) };
    mustHaveUrl(url, options.action, call);
    const domainId = nameOf(await findDomain(domain, call));
    checkAttachments('attachments', options, call);
    checkRules({ ...options, also: given.also }, call);
    if (url !== '') await verifyUrl(url, call, options.format);
    await verifyAlso(given.also ?? [], [], call);
    const row = {
      id: await call.inbound.newRouteId(),
      domain: domainId,
      pattern,
      folded: foldCase(pattern),
      url,
      ...options,
      createdAt: call.now(),
    };
    await mustBeOne(row, call);
    const note = await call.actions.begin();
    await call.inbound.change(domainId, async () => {
      await call.store.inboundRoutes.insert(row);
      // The domain may have been deleted meanwhile, and nothing else would remove this route.
      if (await call.inbound.find(domainId)) return;
      await call.store.inboundRoutes.remove({ id: row.id });
      throw call.refuse('Unknown_InboundDomain', domain.domain);
    });
    note('route added', 1, `${row.id}: ${routeText(row)}`);
    return toRouteRecord(row);
  },
});

/** Throws if another route matches all mail that this one would. Routes that only tag do not count. */
async function mustBeOne(
  { id, domain, pattern, when, action }: Pick<InboundRouteRow, 'id' | 'domain' | 'pattern' | 'when' | 'action'>,
  { store, invalid }: Call<never>,
): Promise<void> {
  const limit = MAX_OF_A_PATTERN + 1;
  // Rows of earlier versions have the pattern only in its original form.
  const [folded, written] = await Promise.all([
    store.inboundRoutes.many({ domain, folded: foldCase(pattern) }, { limit }),
    store.inboundRoutes.many({ domain, pattern }, { limit }),
  ]);
  const others = [...folded, ...written].filter((row) => row.id !== id);
  const takes = (name: string | undefined) => ACTIONS[toAction(name)].takes;
  const same = others.find((row) => takes(row.action) === takes(action) && sameWhen(row.when, when));
  if (same && !when)
    throw invalid(
      'pattern',
      `Route ${same.id} already has this pattern and takes its mail: add a condition (when), or change that route`,
    );
  if (same) throw invalid('when', `Route ${same.id} already has this pattern and these conditions: change that route`);
  if (new Set(others.map((row) => row.id)).size >= MAX_OF_A_PATTERN)
    throw invalid('pattern', `At most ${MAX_OF_A_PATTERN} routes can have the same pattern: delete one first`);
}

function mustHaveUrl(url: string, action: RouteAction, { invalid }: Call<never>): void {
  if (url === '' && ACTIONS[action].needsUrl) throw invalid('url', PLEASE_ENTER);
}

/** The rules of a route must make sense together. */
function checkRules(
  {
    action,
    when,
    tags,
    also = [],
  }: Pick<InboundRouteRow, 'when' | 'tags'> & {
    readonly action: RouteAction;
    readonly also?: readonly Parameters<typeof checkAttachments>[1][] | undefined;
  },
  call: Call<never>,
): void {
  if (ACTIONS[action].loses && when && matchesUnknown(when))
    throw call.invalid(
      'when',
      `A route with the action ${action} cannot have a condition that unknown results meet: mail would be lost`,
    );
  if (action === 'tag' && (tags ?? []).length === 0) throw call.invalid('tags', 'Please enter the tags that it adds');
  if (also.length > 0 && action !== 'post')
    throw call.invalid('also', `A route with the action ${action} posts nothing: please omit also`);
  for (const one of also) checkAttachments('also', one, call);
}

/** Throws ValidationError if there is no webhook at one of the URLs that are new. */
async function verifyAlso(
  also: readonly { readonly url: string; readonly format?: FormatName | undefined }[],
  before: readonly { readonly url: string }[],
  call: Call<never>,
): Promise<void> {
  if (new Set(also.map(({ url }) => url)).size < also.length) throw call.invalid('also', 'Please enter each URL once');
  const known = new Set(before.map(({ url }) => url));
  for (const { url, format } of also) {
    const cause = known.has(url) || isPulled(url) ? undefined : await call.urlFault(url, format);
    if (cause !== undefined)
      throw call.invalid('also', `We can't verify that the URL ${shownUrl(url)} exists. Cause: ${cause}`);
  }
}

/** A format that contains the whole message cannot leave its attachments out. */
function checkAttachments(
  field: 'attachments' | 'also',
  {
    format = 'mandrill',
    attachments,
  }: { readonly format?: FormatName | undefined; readonly attachments?: AttachmentMode | undefined },
  { invalid }: Call<never>,
): void {
  if ((attachments === 'link' || attachments === 'none') && factsOf(format).whole)
    throw invalid(field, `The format ${format} is the whole message, with its attachments: please use auto or inline`);
}

const updateRoute = operation({
  path: '/inbound/update-route',
  access: 'settings',
  summary: 'Changes a route; null fields remain unchanged.',
  notes:
    'A new format also applies to queued mail; a new order applies only to new mail. With a new URL, queued ' +
    'mail of this route is posted there too, and the signing key stays the same unless a webhook or another ' +
    'route of the account already has a key for that URL.',
  params: {
    id: routeId,
    pattern: optional(pattern),
    url: optional(routeUrl),
    ...OPTIONS,
  },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { id: '1.1', pattern: 'box-*' },
  async handle({ id, pattern, url, ...given }, call) {
    const before = await findRoute(id, call);
    const columns = toColumns(given, before);
    const style = toStyle(before);
    const { format = style.format, attachments = style.attachments } = given;
    const { action = toAction(before.action), tags = before.tags ?? [] } = given;
    const when = columns.when === undefined ? (before.when ?? null) : columns.when;
    checkAttachments('attachments', { format, attachments }, call);
    mustHaveUrl(url ?? before.url, action, call);
    checkRules({ action, when, tags, also: given.also ?? (before.also ?? []).map(toAlsoRecord) }, call);
    if (url !== undefined) await verifyUrl(url, call, format);
    if (given.also) await verifyAlso(given.also, before.also ?? [], call);
    const after = { ...before, pattern: pattern ?? before.pattern, when, action };
    if (foldCase(after.pattern) !== foldCase(before.pattern) || given.when || given.action)
      await mustBeOne(after, call);
    const note = await call.actions.begin();
    if (url !== undefined && url !== before.url) await call.signingKeys.carryOver(before.url, url);
    const patch = { pattern, url, ...columns, folded: pattern === undefined ? undefined : foldCase(pattern) };
    const changed = await call.inbound.change(before.domain, () => call.store.inboundRoutes.change({ id }, patch));
    const row = call.orRefuse(changed, 'Unknown_InboundRoute', id);
    // After the change is in force, so that no more mail can be accepted for the old URL.
    if (url !== undefined) await call.queue.redirect(row, url);
    const changes = changesOf(before, row);
    if (changes !== '') note('route changed', 1, `${id} of ${row.domain}: ${changes}`);
    return toRouteRecord(row);
  },
});

/** The changes of an update as text; empty if there are none. */
function changesOf(before: InboundRouteRow, after: InboundRouteRow): string {
  const batches = [before, after].map(({ batchEvents = 1 }) => batchEvents);
  return [
    before.pattern !== after.pattern && `pattern ${before.pattern} to ${after.pattern}`,
    before.url !== after.url && `URL ${shownUrl(before.url)} to ${shownUrl(after.url)}`,
    batches[0] !== batches[1] && `batch_events ${batches.join(' to ')}`,
    toOrder(before.order) !== toOrder(after.order) && `order ${toOrder(before.order)} to ${toOrder(after.order)}`,
    toAction(before.action) !== toAction(after.action) &&
      `action ${toAction(before.action)} to ${toAction(after.action)}`,
    !sameWhen(before.when, after.when) && 'conditions',
    (before.priority ?? 0) !== (after.priority ?? 0) && `priority ${before.priority ?? 0} to ${after.priority ?? 0}`,
    urlsOf(before) !== urlsOf(after) && `also ${urlsOf(after) || 'nowhere'}`,
  ]
    .filter(Boolean)
    .join(', ');
}

const urlsOf = ({ also = [] }: InboundRouteRow): string => also.map(({ url }) => shownUrl(url)).join(' ');

const deleteRoute = operation({
  path: '/inbound/delete-route',
  access: 'settings',
  summary: 'Deletes a route.',
  notes: "Mail that was already accepted is still posted to its URL, in Mandrill's format.",
  params: { id: routeId },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { id: '1.1' },
  async handle({ id }, call) {
    const note = await call.actions.begin();
    const { domain } = await findRoute(id, call);
    const removed = await call.inbound.change(domain, () => call.store.inboundRoutes.remove({ id }));
    const row = call.orRefuse(removed, 'Unknown_InboundRoute', id);
    note('route removed', 1, `${id}: ${routeText(row)}`);
    return toRouteRecord(row);
  },
});

export const inboundRouteOperations = [routes, addRoute, updateRoute, deleteRoute];
