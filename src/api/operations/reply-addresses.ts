import { z } from 'zod';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { addressDataSize, maxDataBytes, sealReplyAddress, toFullMinute } from '../../mail/addresses/reply-address.ts';
import { isWildcard, memberOf } from '../../mail/addresses/wildcard-domain.ts';
import { type InboundDomainRow, isClaim } from '../../store/rows/domains.ts';
import { type Call, operation } from '../operation.ts';
import { bool, knownDomain, str, timeOrNull, toTime, withinCalendar } from './fields.ts';

type Errors = 'Unknown_InboundDomain' | 'ServiceUnavailable';

/** Leaves room for data; tags of other software are part of the name. */
const MAX_MAILBOX = 32;
const mailboxName = text(MAX_MAILBOX)
  .refine(
    (value) => /^[a-z0-9](?:[a-z0-9._+-]*[a-z0-9])?$/i.test(value) && !value.includes('..'),
    'Please enter a mailbox name of ASCII letters, digits and . _ + - between them',
  )
  .transform((value) => value.toLowerCase());

/** Returns the domain's row, if mail to it is accepted. */
async function findRouted(
  { id, domain }: { readonly id: string; readonly domain: string },
  { inbound, orRefuse, invalid }: Call<Errors>,
): Promise<InboundDomainRow> {
  const row = orRefuse(await inbound.covering(id), 'Unknown_InboundDomain', domain);
  if (isClaim(row)) throw invalid('domain', 'Mail to this domain is not accepted yet: publish its TXT record first');
  return row;
}

/** The key that signs addresses of the domain, created on first use. */
async function keyOf({ id, replyKey }: InboundDomainRow, call: Call<Errors>): Promise<string | undefined> {
  if (typeof replyKey === 'string') return replyKey;
  const made = await call.inbound.change(id, () =>
    call.store.inboundDomains.change({ id, replyKey: null }, { replyKey: call.newToken() }),
  );
  // A key that a concurrent call has created takes precedence.
  return (made ?? (await call.inbound.find(id)))?.replyKey ?? undefined;
}

const replyAddress = operation({
  path: '/inbound/reply-address',
  access: 'settings',
  extension: true,
  summary:
    'Creates an address for replies: mail to it goes to the route of the mailbox, and its payload includes the data.',
  notes:
    'Set it as the Reply-To of a message: the payload of a reply has the data, such as a ticket, user or thread, in ' +
    '`msg.reply_data`. The data is encrypted: only Postern can read or change it, or create such an address. It is ' +
    'part of the address, so nothing is stored, and it must be short: a local part may have 64 octets (RFC 5321), ' +
    'which leaves 24 bytes for the mailbox `reply`, or 20 with an expiry; a longer mailbox name leaves less. A UUID ' +
    'in lower case takes 16 bytes. For longer data, store it yourself and put its id into the address. A forged ' +
    'address is rejected with 550 5.1.1, an expired one with 550 5.7.1. Case is ignored. An address is valid only ' +
    'for this domain and account, until the domain is deleted.',
  params: {
    domain: knownDomain,
    mailbox: mailboxName.describe('the mailbox for replies, such as `reply`; a route of the domain must match it'),
    data: text(1000).describe('the `reply_data` in the payload of a reply'),
    expires_at: optional(optionalTime).describe(
      'when it expires, rounded up to a full minute, UTC, YYYY-MM-DD HH:MM:SS; never if omitted',
    ),
  },
  returns: z.object({
    email: str('the address'),
    data: str('the data'),
    expires_at: timeOrNull('when it expires', 'null if never'),
  }),
  errors: ['Unknown_InboundDomain', 'ServiceUnavailable'],
  example: {
    domain: 'inbound.example.com',
    mailbox: 'mailbox-1',
    data: 'ticket 4711',
    expires_at: '2026-02-05 12:00:00',
  },
  async handle({ domain, mailbox, data, expires_at }, call) {
    if (isWildcard(domain.id))
      throw call.invalid(
        'domain',
        `This is a wildcard domain: please enter one of its names, such as ${memberOf(domain.id)}`,
      );
    const row = await findRouted(domain, call);
    const expiresAt = expires_at === undefined ? null : toFullMinute(withinCalendar(expires_at.getTime()).getTime());
    if (expires_at !== undefined && expires_at <= call.now())
      throw call.invalid('expires_at', 'Please enter a time in the future');
    const room = maxDataBytes(mailbox, expiresAt !== null);
    const size = addressDataSize(data);
    if (size > room)
      throw call.invalid(
        'data',
        `An address of this mailbox has room for ${room} bytes of data, not for ${size}: please enter an id`,
      );
    const found = await call.inbound.lookup(mailbox, domain.id);
    if (found.kind === 'unknown' || found.kind === 'too-new') throw call.refuse('ServiceUnavailable');
    if (found.kind !== 'matched') throw call.invalid('mailbox', 'No route of the domain matches this mailbox');
    const key = call.orRefuse(await keyOf(row, call), 'Unknown_InboundDomain', domain.domain);
    const local = sealReplyAddress(key, { account: row.account, domain: domain.id, mailbox }, { data, expiresAt });
    return {
      email: `${local}@${domain.id}`,
      data,
      expires_at: toTime(expiresAt),
    };
  },
});

const rotateReplyKey = operation({
  path: '/inbound/rotate-reply-key',
  access: 'secrets',
  extension: true,
  summary: 'Changes the key that seals the reply addresses of a domain.',
  notes:
    'Addresses created with the previous key are accepted until the next rotation. With `revoke`, all existing ' +
    'addresses are rejected from now on.',
  params: {
    domain: knownDomain,
    revoke: optional(z.boolean()).describe('true also rejects all existing addresses'),
  },
  returns: z.object({
    domain: str('the domain'),
    revoked: bool('whether existing addresses are rejected'),
  }),
  errors: ['Unknown_InboundDomain', 'ServiceUnavailable'],
  example: { domain: 'inbound.example.com' },
  async handle({ domain, revoke = false }, call) {
    const note = await call.actions.begin();
    for (;;) {
      const { id, domain: name, replyKey = null } = await findRouted(domain, call);
      const previousReplyKey = revoke ? null : replyKey;
      const turned = { replyKey: call.newToken(), previousReplyKey };
      // Repeats if another call changed the key meanwhile: its addresses must stay valid.
      const row = await call.inbound.change(id, () => call.store.inboundDomains.change({ id, replyKey }, turned));
      if (!row) continue;
      note('reply key changed', 1, revoke ? `${name}: addresses made so far are rejected` : name);
      return { domain: name, revoked: revoke };
    }
  },
});

export const replyAddresses = [replyAddress, rotateReplyKey];
