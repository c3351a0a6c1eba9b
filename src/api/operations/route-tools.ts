import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { type ConditionResult, conditionResults, DMARC_RESULTS, type MailFacts } from '../../inbound/conditions.ts';
import { ACTIONS, decide, type RouteDecision, toAction } from '../../inbound/decision.ts';
import { FORMAT_NAMES, toStyle } from '../../inbound/formats.ts';
import { matches } from '../../inbound/patterns.ts';
import type { Lookup, Match } from '../../inbound/types.ts';
import { parseReplyAddress } from '../../mail/addresses/reply-address.ts';
import { isWildcard, memberOf } from '../../mail/addresses/wildcard-domain.ts';
import { automatedOf } from '../../mail/automated.ts';
import { type InboundRouteRow, nameOf } from '../../store/rows/domains.ts';
import { toSigningSecret } from '../../webhooks/signing.ts';
import { operation } from '../operation.ts';
import { emailAddress, knownDomain, listOf, MAX_URL, shownUrl, str, strOrNull } from './fields.ts';
import { findRoute, inboundRouteRecord, toRouteRecord } from './inbound-routes.ts';
import { fieldName } from './route-rules.ts';

// Tools to set up and debug routes.

const routeKey = operation({
  path: '/inbound/route-key',
  access: 'secrets',
  extension: true,
  summary: 'Shows the key that signs the posts of a route, or rotates it.',
  notes:
    'The key belongs to the account and the URL: routes with the same URL share a key. It is the key for ' +
    'X-Mandrill-Signature; signing_secret is the same key in the form that Standard Webhooks libraries expect. ' +
    'Turn off their JSON parsing (jsonParse: false), because the body is a form. After a rotation, posts carry ' +
    'the signatures of both keys (webhook-signature) for a day.',
  params: {
    id: text(255).describe('id of the route'),
    rotate: optional(z.boolean()).describe('true creates a new key'),
    url: optional(text(MAX_URL)).describe('a further URL of the route (`also`); its own if omitted'),
  },
  returns: z.object({
    id: str('id of the route'),
    url: str('the URL that the key belongs to'),
    auth_key: str('the key'),
    signing_secret: str('`whsec_` and the base64 of the key'),
  }),
  errors: ['Unknown_InboundRoute', 'ServiceUnavailable'],
  example: { id: '1.1' },
  async handle({ id, rotate = false, url: asked }, call) {
    const { signingKeys, actions, orRefuse, invalid } = call;
    const route = await findRoute(id, call);
    const urls = [route.url, ...(route.also ?? []).map((one) => one.url)];
    const url = asked ?? route.url;
    if (url === '' || !urls.includes(url)) throw invalid('url', `The route ${id} posts nothing there`);
    const note = rotate ? await actions.begin() : undefined;
    const key = orRefuse(rotate ? await signingKeys.rotate(url) : await signingKeys.of(url), 'ServiceUnavailable');
    note?.('signing key changed', 1, shownUrl(url));
    return { id, url, auth_key: key, signing_secret: toSigningSecret(key) };
  },
});

const RESULTS = ['hit', 'tags', 'conditions', 'depends', 'less specific', 'no match'] as const;

const given = optional(
  z.strictObject({
    sender: optional(z.string().max(1000)).describe('MAIL FROM; empty: the null sender'),
    from: optional(z.string().max(1000)).describe('the address in From'),
    subject: optional(z.string().max(1000)),
    header: optional(z.record(fieldName, z.string().max(1000))).describe('header fields'),
    size: optional(z.int().min(0)).describe('bytes'),
    automated: optional(z.boolean()).describe('whether it is automated; derived from `header` and `sender` if omitted'),
    authenticated: optional(z.boolean()),
    dmarc: optional(z.enum(DMARC_RESULTS)),
    spam: optional(z.enum(['ham', 'spam', 'unknown'])),
    virus: optional(z.enum(['clean', 'infected', 'unknown'])),
  }),
);

/** The facts of a described message. If any of its content is given, the rest counts as empty. */
function toFacts({
  sender,
  authenticated,
  dmarc,
  spam,
  virus,
  ...content
}: NonNullable<z.output<typeof given>>): MailFacts {
  const { from = null, subject = '', header = {}, size = 0 } = content;
  const fields = Object.entries(header).map(([name, value]) => ({ name, value }));
  const author = from === null ? undefined : { address: from, name: null };
  const { automated = automatedOf({ fields, author, mailFrom: sender ?? null }).is } = content;
  const hasContent = Object.values(content).some((value) => value !== undefined);
  const result = dmarc === 'unknown' ? 'temperror' : (dmarc ?? (authenticated ? 'pass' : 'none'));
  return {
    sender,
    content: hasContent ? { from, subject, size, fields, automated } : undefined,
    auth:
      authenticated === undefined && dmarc === undefined
        ? undefined
        : {
            authenticated: authenticated ?? dmarc === 'pass',
            dmarc: { result, policy: null, aligned: false, domain: null },
          },
    scan:
      spam === undefined && virus === undefined ? undefined : { spam: spam ?? 'unknown', virus: virus ?? 'unknown' },
  };
}

const testRoute = operation({
  path: '/inbound/test-route',
  access: 'settings',
  extension: true,
  summary: 'Shows which route an address matches, why the other routes do not match, and what would be posted.',
  notes:
    'Pass `address`, or `domain` and `mailbox`; for routes with conditions, describe the message in `message`. ' +
    'Nothing is sent, scanned or looked up.',
  params: {
    address: optional(emailAddress).describe('the address to try'),
    domain: optional(knownDomain),
    mailbox: optional(text(64)).describe('the part before the @'),
    format: optional(z.enum(FORMAT_NAMES)).describe('payload format; that of the route if omitted'),
    message: given.describe(
      'the message. If one of the content fields (from, subject, header, size, automated) is given, omitted ' +
        'ones count as empty; other omitted fields count as unknown',
    ),
  },
  returns: z.object({
    email: str('the tested address'),
    route: inboundRouteRecord
      .nullable()
      .describe(
        'the route that takes the mail; null if mail is refused with 550, or if unknown facts decide (`result` ' +
          'is depends)',
      ),
    routes: listOf(
      inboundRouteRecord.extend({
        result: z
          .enum(RESULTS)
          .describe(
            'hit: takes the mail; tags: adds its tags; conditions: the pattern matches, but its conditions ' +
              'are not met; depends: depends on unknown facts; less specific: matches, but another route takes ' +
              'precedence; no match: the pattern does not match',
          ),
        why: str('the result in words'),
      }),
      'every route of the domain, oldest first',
    ),
    payload: z
      .unknown()
      .describe(
        'the payload for a sample message: the value of mandrill_events, the JSON of another format, or the ' +
          'body as text; null if no route matches',
      ),
    content_type: strOrNull('Content-Type of that post; null if no route matches'),
  }),
  errors: ['Unknown_InboundDomain', 'ServiceUnavailable'],
  example: { address: 'mailbox-123@inbound.example.com' },
  async handle({ address, domain, mailbox, format, message = {} }, { store, inbound, refuse, invalid }) {
    const tried =
      address ??
      (domain && mailbox !== undefined
        ? {
            mailbox,
            domain: memberOf(domain.id),
            text: `${mailbox}@${isWildcard(domain.id) ? memberOf(domain.id) : domain.domain}`,
          }
        : undefined);
    if (!tried) throw invalid('address', 'Please enter an address, or a domain and a mailbox');
    const covering = await inbound.covering(tried.domain);
    if (!covering) throw refuse('Unknown_InboundDomain', domain?.domain ?? tried.domain);
    await inbound.refresh();
    const found = await inbound.lookup(tried.mailbox, tried.domain, message.sender);
    if (found.kind === 'unknown' || found.kind === 'too-new') throw refuse('ServiceUnavailable');
    const rows = await store.inboundRoutes.many({ domain: nameOf(covering) }, { sort: 'createdAt' });
    const facts = toFacts(message);
    const tokenless = mailboxOf(found, tried.mailbox);
    const decision = found.kind === 'not-ours' ? NONE : decide(inbound.choices(tokenless, tried.domain), facts);
    const hit = found.kind === 'matched' ? hitOf(found.match, facts) : undefined;
    const row = rows.find(({ id }) => id === hit?.routeId);
    const own = toStyle(row ?? {});
    const style = { ...own, format: format ?? own.format };
    const sample = hit && (await inbound.sample(tried.text, hit, style));
    return {
      email: tried.text,
      route: row && hit ? toRouteRecord(row) : null,
      routes: rows.map((one) => ({ ...toRouteRecord(one), ...resultOf(one, tokenless, { facts, decision, hit }) })),
      payload: sample?.payload ?? null,
      content_type: sample?.type ?? null,
    };
  },
});

const NONE: RouteDecision = { kind: 'none' };

/** The mailbox whose routes are tried: for our reply addresses, the one without the token. */
function mailboxOf(found: Lookup, mailbox: string): string {
  const isReply = found.kind === 'expired' || (found.kind === 'matched' && found.match.replyData !== undefined);
  return (isReply && parseReplyAddress(mailbox)?.mailbox) || mailbox;
}

/** The match of the route for the mail, with the data in its address. */
function hitOf({ choices, ...match }: Match, facts: MailFacts): Match | undefined {
  if (!choices) return match;
  const decision = decide(choices, facts);
  if (decision.kind !== 'matched') return undefined;
  return { ...decision.match, ...(match.replyData !== undefined && { replyData: match.replyData }) };
}

interface Trial {
  readonly facts: MailFacts;
  readonly decision: RouteDecision;
  readonly hit: Match | undefined;
}

/** The result of a route for the mail, and the reason. */
function resultOf(
  route: InboundRouteRow,
  mailbox: string,
  { facts, decision, hit }: Trial,
): { readonly result: (typeof RESULTS)[number]; readonly why: string } {
  if (!matches(route.pattern, mailbox)) return { result: 'no match', why: 'The pattern does not match the mailbox.' };
  const conditions = route.when ? conditionResults(route.when, facts) : [];
  const named = (isOne: (truth: ConditionResult) => boolean) =>
    conditions.flatMap(({ name, truth }) => (isOne(truth) ? [name] : [])).join(', ');
  const failed = named((truth) => truth === false);
  if (failed !== '') return { result: 'conditions', why: `Condition not met: ${failed}.` };
  const missing = named((truth) => truth !== true && truth !== 'unknown');
  if (missing !== '') return { result: 'depends', why: `Depends on: ${missing}.` };
  const unknown = named((truth) => truth === 'unknown');
  if (unknown !== '') return { result: 'conditions', why: `Unknown, so the condition is not met: ${unknown}.` };
  const action = toAction(route.action);
  const taker = decision.kind === 'matched' || decision.kind === 'rejected' ? decision.match.routeId : undefined;
  if (route.id === (hit?.routeId ?? taker)) return { result: 'hit', why: ACTIONS[action].does };
  if (action === 'tag' && route.tags?.every((tag) => hit?.tags?.includes(tag)))
    return { result: 'tags', why: ACTIONS.tag.does };
  if (taker === undefined) return { result: 'depends', why: 'Depends on whether an earlier route accepts the mail.' };
  return { result: 'less specific', why: `Route ${taker} is tried first and accepts the mail.` };
}

export const routeTools = [routeKey, testRoute];
