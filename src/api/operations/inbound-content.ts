import { z } from 'zod';
import { sizeOf } from '../../base/bytes.ts';
import { optional, text } from '../../base/schema.ts';
import { capture, matches, sampleMailbox } from '../../inbound/patterns.ts';
import { isPulled } from '../../inbound/pulled.ts';
import type { Match } from '../../inbound/types.ts';
import { parseReplyAddress } from '../../mail/addresses/reply-address.ts';
import { covers, memberOf } from '../../mail/addresses/wildcard-domain.ts';
import { AUTOMATED_KINDS } from '../../mail/automated.ts';
import type { AttemptRecord } from '../../queue/delivery.ts';
import type { InboundRouteRow } from '../../store/rows/domains.ts';
import type { ShownMessage } from '../../webhooks/render/content.ts';
import type { QueuedMail } from '../account/account-queue.ts';
import { type Call, operation, textOperation } from '../operation.ts';
import { attemptRecord, toAttemptRecord } from './deliveries.ts';
import { bool, emailAddress, endpointUrl, int, listOf, record, str, strOrNull } from './fields.ts';
import { findRoute } from './inbound-routes.ts';
import { factsRecord, toFactsRecord } from './message-facts.ts';

// The content of one delivery of inbound mail. Everything in it was written by a stranger.

const deliveryId = text(255).describe('id of the delivery');

/**
 * Uses the delivery with its message. Throws Unknown_Message if it is not the account's or not kept, also when it is
 * purged meanwhile.
 */
async function withMail<T>(
  id: string,
  call: Call<'Unknown_Message'>,
  use: (mail: QueuedMail) => Promise<T>,
): Promise<T> {
  const mail = call.orRefuse(await call.queue.message(id), 'Unknown_Message', id);
  try {
    return await use(mail);
  } catch (error) {
    if (!(await call.queue.message(id))) throw call.refuse('Unknown_Message', id);
    throw error;
  }
}

/** Shows one message of an account at a time, because the threads that show messages also render mail. */
function view<T>(id: string, call: Call<'Unknown_Message'>, use: (mail: QueuedMail) => Promise<T>): Promise<T> {
  return call.inTurn('content', () => withMail(id, call, use));
}

const contentRecord = record('message in the queue', {
  headers: listOf(
    z.object({ name: z.string(), value: z.string() }),
    'the header fields in order, those added by Postern first; values are unfolded and decoded',
  ),
  parts: listOf(
    z.object({
      n: int('its number in this list, from 1'),
      path: str('its number as in IMAP: 2.1 is the first part of the second part'),
      type: str('media type'),
      name: strOrNull('file name, decoded, without characters that are unsafe to display; null if it has none'),
      size: int('bytes, decoded'),
      disposition: strOrNull('inline, attachment or another value; null if it has none'),
    }),
    'texts and files, in order',
  ),
  text: strOrNull('the text; null if it has none'),
  truncated: bool('true if the text was cut at 5 MiB'),
  has_html: bool('true if it has HTML'),
  facts: factsRecord
    .nullable()
    .describe('what a person sees, as in the payload of a route with `facts`; null if it cannot be parsed'),
  raw_bytes: int('size of the received message'),
  automated: z
    .object({
      is: z.boolean(),
      why: strOrNull(
        'the first of these that applies: ' +
          `${AUTOMATED_KINDS.map(([why, about]) => `${why} (${about})`).join(', ')}; null if none`,
      ),
    })
    .describe('whether a program wrote or distributed it, as `automated` in the payload'),
  parse_error: strOrNull('why the message cannot be parsed and is posted raw; null if it can'),
});

function toContentRecord(shown: ShownMessage, rawBytes: number): z.input<typeof contentRecord> {
  const { headers, parts, text: shownText, cut, hasHtml, facts, automated, parseError } = shown;
  return {
    headers: headers.map(({ name, value }) => ({ name, value })),
    parts: parts.map(({ path, type, name, size, disposition }, i) => ({
      n: i + 1,
      path,
      type,
      name: name === '' ? null : name,
      size,
      disposition,
    })),
    text: shownText,
    truncated: cut,
    has_html: hasHtml,
    facts: facts && toFactsRecord(facts),
    raw_bytes: rawBytes,
    automated: { ...automated },
    parse_error: parseError,
  };
}

const content = operation({
  path: '/inbound/content',
  access: 'content',
  extension: true,
  summary: 'Shows the content of an inbound message: header, text, and a list of its parts.',
  notes:
    'Content is kept as long as the delivery (`/inbound/deliveries`). Header, text and names come from the ' +
    'sender: display them as text, never as HTML.',
  params: { id: deliveryId },
  returns: contentRecord,
  notHereError: 'Unknown_Message',
  example: { id: '01kcexamplemessage00000000-eKx7WvL3VyFo' },
  handle: ({ id }, call) =>
    view(id, call, async (mail) => {
      const rawBytes = sizeOf(mail.body);
      return toContentRecord(await call.views.content(mail), rawBytes);
    }),
});

const eventRecord = record('inbound event', {
  event: str('`inbound`'),
  ts: int('when the message was accepted, in seconds since 1970'),
  _id: str('id of the delivery'),
  msg: z.record(z.string(), z.unknown()).describe('the message, as in docs/payload.md'),
});

const payload = textOperation({
  path: '/inbound/payload',
  access: 'content',
  extension: true,
  summary: 'Shows a delivery as it is posted, in the format of its route.',
  notes:
    'For the Mandrill format, returns an element of `mandrill_events`; for other JSON formats, the JSON; for the ' +
    'rest, `content_type` and the body as text in `body`. It is rendered again, with the verdicts (SPF, DKIM, DMARC, ' +
    'ARC) of the first attempt. Before the first attempt, they are computed for this call and not stored.',
  params: { id: deliveryId },
  returns: z.union([eventRecord, z.record(z.string(), z.unknown())]),
  notHereError: 'Unknown_Message',
  example: { id: '01kcexamplemessage00000000-eKx7WvL3VyFo' },
  text: ({ id }, call) => view(id, call, (mail) => call.views.event(mail)),
});

/** Errors that would reveal names in networks that webhooks may not reach. */
const UNREACHABLE: ReadonlySet<string | null> = new Set(['forbidden address', 'host not found']);

/** The start of an error about the URL itself: its port. */
const FORBIDDEN = 'forbidden address: ';

const tryOut = operation({
  path: '/inbound/try',
  access: 'content',
  extension: true,
  summary: 'Posts a delivery to another URL, once, and shows the response.',
  notes:
    'The POST is the same as to a route, with the additional header `X-Postern-Trial: 1`, and may take 30 seconds. ' +
    'Its `_id` and webhook-id are those of the delivery plus `-trial-` and a suffix that is new each time, so a ' +
    'receiver that ignores known ids handles both the trial and the delivery. It is not retried or stored, and does ' +
    'not affect the delivery or its endpoint. An account may make 10 trials in a minute and 2 at a time, the host 4 ' +
    'at a time; beyond that, the error is RequestLimitExceeded.',
  params: {
    id: deliveryId,
    url: endpointUrl.describe('the URL to post to; it need not belong to a route'),
  },
  returns: attemptRecord
    .omit({ batch: true })
    .extend({
      signing_key_url: str(
        'the URL whose key signed the POST: `url` if the account has a key for it, otherwise the URL of the delivery',
      ),
    })
    .meta({ title: 'trial' }),
  errors: ['ServiceUnavailable'],
  notHereError: 'Unknown_Message',
  example: { id: '01kcexamplemessage00000000-eKx7WvL3VyFo', url: 'https://staging.example.com/hooks/mail' },
  async handle({ id, url }, call) {
    const tried = call.orRefuse(await withMail(id, call, (mail) => call.trials.post(mail, url)), 'ServiceUnavailable');
    return { ...toTrial(tried.attempt, 'url', call), signing_key_url: tried.keyUrl };
  },
});

/** The record of a trial; `field` named the URL. Throws a ValidationError if it may not be reached. */
function toTrial(attempt: AttemptRecord, field: string, call: Call<never>) {
  if (UNREACHABLE.has(attempt.error))
    throw call.invalid(field, 'Nothing was posted: the host has no address that webhooks may reach');
  if (attempt.error?.startsWith(FORBIDDEN))
    throw call.invalid(field, `Nothing was posted: ${attempt.error.slice(FORBIDDEN.length)}`);
  const { batch: _, ...trial } = toAttemptRecord(attempt);
  return trial;
}

const tryRoute = operation({
  path: '/inbound/try-route',
  access: 'settings',
  extension: true,
  summary: 'Posts a sample message to the URL of a route, once, and shows the response.',
  notes:
    'Posts the payload that /inbound/test-route shows, signed like other mail of the route, with the header ' +
    '`X-Postern-Trial: 1` and its own `_id` and webhook-id. The limits are those of /inbound/try; nothing is stored.',
  params: {
    id: text(255).describe('id of the route'),
    address: optional(emailAddress).describe(
      'the recipient of the sample, which must match the pattern of the route, or a reply address for the ' +
        'route; generated if omitted. A forged or expired reply address is a ValidationError, because mail to ' +
        'it is refused',
    ),
  },
  returns: attemptRecord
    .omit({ batch: true })
    .extend({ email: str('the recipient of the sample'), url: str('the URL of the POST') })
    .meta({ title: 'sample' }),
  errors: ['Unknown_InboundRoute', 'ServiceUnavailable'],
  example: { id: '1.1', address: 'mailbox-123@inbound.example.com' },
  async handle({ id, address }, call) {
    const route = await findRoute(id, call);
    const { domain, pattern, url } = route;
    if (isPulled(url))
      throw call.invalid('id', 'Nothing is posted for this route: its mail is fetched by /inbound/pull');
    if (url === '') throw call.invalid('id', `The route ${id} posts nothing`);
    const mailbox = address?.mailbox ?? sampleMailbox(pattern);
    if (address) await mustBeTaken(address, route, call);
    const match = await matchOf(route, { mailbox, domain: address?.domain ?? memberOf(domain) }, call);
    if (!match)
      throw call.invalid('address', `Please enter an address that the route ${id} matches: ${pattern}@${domain}`);
    const email = address?.text ?? `${mailbox}@${memberOf(domain)}`;
    const attempt = call.orRefuse(await call.trials.postSample(email, route, match), 'ServiceUnavailable');
    return { ...toTrial(attempt, 'id', call), email, url };
  },
});

/** Throws a ValidationError for an invalid reply address, which SMTP refuses too. */
async function mustBeTaken(
  { mailbox, domain }: { readonly mailbox: string; readonly domain: string },
  route: InboundRouteRow,
  { inbound, invalid }: Call<never>,
): Promise<void> {
  if (!covers(route.domain, domain) || !parseReplyAddress(mailbox)) return;
  const { kind } = await inbound.lookup(mailbox, domain);
  const refused = 'Nothing was posted: mail to it would be refused with 550';
  if (kind === 'expired') throw invalid('address', `${refused} 5.7.1, because this reply address has expired`);
  if (kind === 'no-route')
    throw invalid(
      'address',
      `${refused} 5.1.1, because this reply address was not created here, or no route matches its mailbox`,
    );
}

/**
 * The part of the payload that depends on the address, if the route matches it, or would if no route came before it.
 */
async function matchOf(
  { id, domain, pattern }: InboundRouteRow,
  address: { readonly mailbox: string; readonly domain: string },
  { inbound }: Call<never>,
): Promise<Pick<Match, 'replyData' | 'captures' | 'tags'> | undefined> {
  if (!covers(domain, address.domain)) return undefined;
  const found = await inbound.lookup(address.mailbox, address.domain);
  if (found.kind === 'matched' && found.match.routeId === id) return found.match;
  return matches(pattern, address.mailbox) ? { captures: capture(pattern, address.mailbox) } : undefined;
}

export const inboundContent = [content, payload, tryOut, tryRoute];
