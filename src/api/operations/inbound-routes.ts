import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import {
  ATTACHMENT_MODES,
  type AttachmentMode,
  FORMAT_NAMES,
  FORMATS,
  type FormatName,
  factsOf,
  toStyle,
} from '../../inbound/formats.ts';
import { fold } from '../../mail/address.ts';
import { type InboundRouteRow, nameOf } from '../../store/rows/domains.ts';
import { type Call, operation } from '../operation.ts';
import { knownDomain, pattern, routeUrl, shownUrl, str, verifyUrl } from './fields.ts';
import { findDomain } from './inbound-domains.ts';

export const inboundRouteRecord = z
  .object({
    id: str('unique identifier'),
    pattern: str('what the mailbox name must match'),
    url: str('webhook URL that inbound messages are posted to; `pull:` or `pull:NAME` if they are pulled'),
    batch_events: z.int().meta({ description: 'maximum number of messages per POST' }),
    format: z.enum(FORMAT_NAMES).meta({ description: 'the form of its posts' }),
    raw: z.boolean().meta({ description: 'whether posts of a parsed message hold the raw message too' }),
    attachments: z.enum(ATTACHMENT_MODES).meta({ description: 'how attachments reach the receiver' }),
    link_over: z.int().meta({ description: 'files of at most so many bytes are never links' }),
    has_password: z.boolean().meta({ description: 'whether posts carry a password (Basic authentication)' }),
  })
  .meta({ title: 'inbound route record' });

/** A POST must end before its deadline with all that it holds: that is a reason for few more than for many. */
const MOST_BATCHED = 100;

const routeId = text(255).meta({ description: 'id of the route' });
const batchEvents = optional(z.int().min(1).max(MOST_BATCHED)).meta({
  description: `maximum number of messages per POST when several are waiting, 1 to ${MOST_BATCHED}; 1 for a new route if omitted`,
});
const format = optional(z.enum(FORMAT_NAMES)).meta({
  description: `the form of its posts: ${FORMAT_NAMES.map((name) => `${name} (${FORMATS[name].about})`).join(', ')}; that of the setting inbound.default_format for a new route if omitted`,
});
const raw = optional(z.boolean()).meta({
  description:
    'false leaves raw_msg, raw or RawEmail out of posts that hold the parsed message; true for a new route if omitted',
});
const attachments = optional(z.enum(ATTACHMENT_MODES)).meta({
  description:
    'auto (for a new route if omitted): in the post, and as links once the receiver has answered 413, or twice 400 or 500 to a message above 1 MB; inline: in the post; link: as links, without raw_msg; none: name, type and size only. ' +
    'A post that is the message itself (raw, mailgun-mime, sendgrid-raw) holds them always',
});
const linkOver = optional(
  z
    .int()
    .min(0)
    .max(1024 ** 3),
).meta({
  description: 'files of at most so many bytes stay in the post when others are links; 0 for a new route if omitted',
});
const password = optional(z.string().max(255)).meta({
  description:
    'sent as Basic authentication with the user `actionmailbox`; it is never shown again. Empty: none. A user and password in the URL come first',
});

const ROUTE_STYLE = {
  format: 'mandrill',
  raw: true,
  attachments: 'auto',
  link_over: 0,
  has_password: false,
} as const;
export const ROUTE = {
  id: '1.1',
  pattern: 'mailbox-*',
  url: 'https://app.example.com/hooks/mail',
  batch_events: 1,
  ...ROUTE_STYLE,
};

type RouteOption = 'batchEvents' | 'format' | 'raw' | 'attachments' | 'linkOver' | 'password';

/** The record of a route. */
export function toRouteRecord(
  row: Pick<InboundRouteRow, 'id' | 'pattern' | 'url'> & Partial<Pick<InboundRouteRow, RouteOption>>,
) {
  const { id, pattern, url, batchEvents = 1, password } = row;
  const { linkOver, ...style } = toStyle(row);
  return {
    id,
    pattern,
    url,
    batch_events: batchEvents,
    ...style,
    link_over: linkOver,
    has_password: Boolean(password),
  };
}

/** A route as the list of actions names it. */
const routeText = ({ pattern, domain, url }: Pick<InboundRouteRow, 'pattern' | 'domain' | 'url'>) =>
  `${pattern}@${domain} to ${shownUrl(url)}`;

const routes = operation({
  path: '/inbound/routes',
  summary: 'Lists the routes of an inbound domain, oldest first.',
  params: { domain: knownDomain },
  returns: z.array(inboundRouteRecord),
  errors: ['Unknown_InboundDomain'],
  example: { params: { domain: 'inbound.example.com' }, answer: [ROUTE] },
  async handle({ domain }, call) {
    const id = nameOf(await findDomain(domain, call));
    return (await call.store.inboundRoutes.many({ domain: id }, { sort: 'createdAt' })).map(toRouteRecord);
  },
});

const addRoute = operation({
  path: '/inbound/add-route',
  summary: 'Adds a route: mail to mailboxes of the domain that match the pattern is posted to the URL.',
  notes:
    'Each recipient matches one route: an exact name first, then the pattern with the most literal characters, then the oldest route. ' +
    'With `batch_events` above 1, messages that wait for the route share a POST: `mandrill_events` holds several events, each with the `_id` by which it is known. ' +
    'Nothing waits for a batch to fill; when a batch fails, its messages are posted again one by one.',
  params: {
    domain: knownDomain,
    pattern,
    url: routeUrl,
    batch_events: batchEvents,
    format,
    raw,
    attachments,
    link_over: linkOver,
    password,
  },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundDomain'],
  example: {
    params: { domain: 'inbound.example.com', pattern: 'support', url: 'https://app.example.com/hooks/support' },
    answer: {
      id: '1.2',
      pattern: 'support',
      url: 'https://app.example.com/hooks/support',
      batch_events: 1,
      ...ROUTE_STYLE,
    },
  },
  async handle({ domain, pattern, url, batch_events = 1, raw = true, password = '', ...given }, call) {
    const domainId = nameOf(await findDomain(domain, call));
    const { format = call.settings.defaultFormat, attachments: mode = 'auto', link_over: linkOver = 0 } = given;
    checkAttachments(format, given.attachments, call);
    await verifyUrl(url, call, format);
    const row = {
      id: await call.inbound.newRouteId(),
      domain: domainId,
      pattern,
      folded: fold(pattern),
      url,
      batchEvents: batch_events,
      format,
      raw,
      attachments: mode,
      linkOver,
      password: password === '' ? null : password,
      createdAt: call.now(),
    };
    await mustBeOne(row, call);
    const note = await call.actions.begin();
    await call.store.inboundRoutes.insert(row);
    // The domain may have been deleted meanwhile, and nothing else would remove this route.
    if (!(await call.inbound.find(domainId))) {
      await call.store.inboundRoutes.remove({ id: row.id });
      throw call.refuse('Unknown_InboundDomain', domain.domain);
    }
    await call.inbound.routingChanged(domainId);
    note('route added', 1, `${row.id}: ${routeText(row)}`);
    return toRouteRecord(row);
  },
});

/** A second route with the same pattern would never get mail. */
async function mustBeOne(
  { id, domain, pattern }: Pick<InboundRouteRow, 'id' | 'domain' | 'pattern'>,
  { store, invalid }: Call<never>,
): Promise<void> {
  // Rows of earlier versions have the pattern only as it was written.
  const [folded, written] = await Promise.all([
    store.inboundRoutes.many({ domain, folded: fold(pattern) }, { limit: 2 }),
    store.inboundRoutes.many({ domain, pattern }, { limit: 2 }),
  ]);
  const other = [...folded, ...written].find((row) => row.id !== id);
  if (other) throw invalid('pattern', `The route ${other.id} has this pattern already, and would get the mail`);
}

/** A post that is the message itself cannot leave its attachments out. */
function checkAttachments(format: FormatName, mode: AttachmentMode | undefined, { invalid }: Call<never>): void {
  if ((mode === 'link' || mode === 'none') && factsOf(format).whole)
    throw invalid('attachments', `The format ${format} holds the message as it came: please use auto or inline`);
}

const updateRoute = operation({
  path: '/inbound/update-route',
  summary: 'Changes a route; null fields remain unchanged.',
  notes:
    'A new format applies to mail that is still queued, too. With a new URL, mail still queued for this route is posted there too, and the signing key stays the same unless a webhook or another route of the account already has a key for that URL.',
  params: {
    id: routeId,
    pattern: optional(pattern),
    url: optional(routeUrl),
    batch_events: batchEvents,
    format,
    raw,
    attachments,
    link_over: linkOver,
    password,
  },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { params: { id: '1.1', pattern: 'box-*' }, answer: { ...ROUTE, pattern: 'box-*' } },
  async handle({ id, pattern, url, batch_events, format, raw, attachments: mode, link_over: over, password }, call) {
    const before = await call.store.inboundRoutes.one({ id });
    if (!before) throw call.refuse('Unknown_InboundRoute', id);
    const style = toStyle(before);
    checkAttachments(format ?? style.format, mode ?? style.attachments, call);
    if (url !== undefined) await verifyUrl(url, call, format ?? style.format);
    if (pattern !== undefined && fold(pattern) !== fold(before.pattern)) await mustBeOne({ ...before, pattern }, call);
    const note = await call.actions.begin();
    if (url !== undefined && url !== before.url) await call.signingKeys.carryOver(before.url, url);
    const row = await call.store.inboundRoutes.change(
      { id },
      {
        ...{ pattern, url, batchEvents: batch_events, format, raw, attachments: mode, linkOver: over },
        folded: pattern === undefined ? undefined : fold(pattern),
        password: password === '' ? null : password,
      },
    );
    if (!row) throw call.refuse('Unknown_InboundRoute', id);
    await call.inbound.routingChanged(row.domain);
    // After `routingChanged`, so that no mail can be accepted for the old URL after this step.
    if (url !== undefined) await call.queue.redirect(row, url);
    const changes = changesOf(before, row);
    if (changes !== '') note('route changed', 1, `${id} of ${row.domain}: ${changes}`);
    return toRouteRecord(row);
  },
});

/** What an update changed, in words; empty if nothing. */
function changesOf(before: InboundRouteRow, after: InboundRouteRow): string {
  const batches = [before, after].map(({ batchEvents = 1 }) => batchEvents);
  return [
    before.pattern !== after.pattern && `pattern ${before.pattern} to ${after.pattern}`,
    before.url !== after.url && `URL ${shownUrl(before.url)} to ${shownUrl(after.url)}`,
    batches[0] !== batches[1] && `batch_events ${batches.join(' to ')}`,
  ]
    .filter(Boolean)
    .join(', ');
}

const deleteRoute = operation({
  path: '/inbound/delete-route',
  summary: 'Deletes a route.',
  notes: 'Mail that was already accepted is still delivered.',
  params: { id: routeId },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { params: { id: '1.1' }, answer: ROUTE },
  async handle({ id }, call) {
    const note = await call.actions.begin();
    const row = await call.store.inboundRoutes.remove({ id });
    if (!row) throw call.refuse('Unknown_InboundRoute', id);
    await call.inbound.routingChanged(row.domain);
    note('route removed', 1, `${id}: ${routeText(row)}`);
    return toRouteRecord(row);
  },
});

/** Routes of inbound domains, as in Mandrill's API. */
export const inboundRoutes = [routes, addRoute, updateRoute, deleteRoute];
