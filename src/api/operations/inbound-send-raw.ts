import { z } from 'zod';
import { normalizeAddress } from '../../base/networks.ts';
import { optional, text } from '../../base/schema.ts';
import type { RoutedRecipient } from '../../inbound/types.ts';
import { type Address, parseAddress } from '../../mail/addresses/address.ts';
import { type Call, operation } from '../operation.ts';
import { headerRecipients, toWireBytes, withoutBcc } from '../requests/raw-document.ts';
import { emailAddress, MAX_RECIPIENTS, readAs, str } from './fields.ts';

/** The reverse-path: an address, with or without angle brackets, or nothing for the null sender. */
const reversePath = z
  .string()
  .max(1000)
  .transform(
    readAs((value) => {
      const path = value.trim().replace(/^<(.*)>$/s, '$1');
      return path === '' || parseAddress(path) ? path : undefined;
    }, 'Not a valid email address'),
  );

/** An IP address without brackets or zone; an IPv4-mapped one is written as IPv4. */
const ipAddress = text(64).transform(
  readAs((value) => {
    const address = value.trim().replace(/^\[(?:IPv6:)?(.*)\]$/i, '$1');
    return address.includes('%') ? undefined : normalizeAddress(address);
  }, 'Not a valid IP address'),
);

/** The argument of HELO or EHLO: a name or an address literal, in any case without spaces. */
const greeting = z
  .string()
  .max(255)
  .refine((value) => !/[\p{Cc}\s]/u.test(value), 'Please enter a HELO name without spaces')
  .transform((value) => (value === '' ? undefined : value));

const RAW =
  'From: sender@example.net\r\nTo: mailbox-123@inbound.example.com\r\nSubject: Some Subject\r\n\r\nSome content.';

/** An empty list is a mistake: the caller would not expect the headers to be used instead. */
const recipients = z
  .array(emailAddress)
  .min(1, 'Please enter at least one recipient, or leave it out')
  .max(MAX_RECIPIENTS);

/** Submits a document to the inbound path, as if it had arrived over SMTP. */
const sendRaw = operation({
  path: '/inbound/send-raw',
  access: 'settings',
  summary: 'Accepts a raw MIME document and delivers it to inbound routes, as if it had arrived over SMTP.',
  notes:
    'Returns one struct for each recipient that matches a route of the account, or an empty array. The call ' +
    'returns once the message is safely on disk; it is posted to the URL afterwards. If the recipients are ' +
    'taken from the headers, Bcc is removed from the document; if `to` is given, the document is unchanged. ' +
    'Line endings become CRLF.',
  large: true,
  params: {
    raw_message: z.string().min(1, 'Please enter a value').describe('the full MIME document, including headers'),
    to: optional(recipients).describe('recipients, at least one; if omitted, those of the To, Cc and Bcc headers'),
    mail_from: optional(reversePath).describe('the MAIL FROM address; required for the SPF check'),
    helo: optional(greeting).describe('how the client MTA identified itself; required for the SPF check'),
    client_address: optional(ipAddress).describe('IP address of the remote MTA; required for the SPF check'),
  },
  returns: z.array(
    z.object({
      email: str('the recipient'),
      pattern: str('the pattern of the route that matched'),
      url: str('the webhook URL of the route'),
    }),
  ),
  errors: ['ServiceUnavailable'],
  example: {
    raw_message: RAW,
    mail_from: 'sender@example.net',
    helo: 'mail.example.net',
    client_address: '192.0.2.25',
  },
  async handle({ raw_message, to, mail_from = '', helo = null, client_address = null }, call) {
    const given = await toWireBytes(raw_message);
    const fromHeaders = to === undefined;
    // With `to` we act as an MTA, which changes no header (RFC 5321 section 6.4). Without it we build the envelope from
    // the headers, as a sender's mail client does, which removes Bcc (RFC 5322 section 3.6.3).
    const named = to ?? readable(headerRecipients(given, MAX_RECIPIENTS));
    const bytes = fromHeaders ? withoutBcc(given) : given;
    if (bytes.length > call.settings.maxMessageBytes)
      throw call.invalid('raw_message', `The message is larger than ${call.settings.maxMessageBytes} bytes`);
    const routed = await route(named, mail_from, call);
    if (routed.length === 0) return [];
    const arrival = {
      protocol: 'HTTP',
      envelope: { mailFrom: mail_from, client: { address: client_address, helo, tls: null } },
    };
    const accepted = await call.queue.accept(arrival, routed, bytes);
    if (accepted.outcome === 'unrouted') return [];
    if (accepted.outcome !== 'accepted') throw call.refuse('ServiceUnavailable');
    return (accepted.routed ?? routed).map(({ recipient, match }) => ({
      email: recipient,
      pattern: match.pattern,
      url: match.url,
    }));
  },
});

/** The addresses that can be parsed. A header may contain other text ("undisclosed-recipients:;"). */
function readable(addresses: readonly string[]): Address[] {
  return addresses.map(parseAddress).filter((address) => address !== undefined);
}

/** Each recipient once, with the route that it matches. */
async function route(
  recipients: readonly Address[],
  sender: string,
  call: Call<'ServiceUnavailable'>,
): Promise<RoutedRecipient[]> {
  const once = new Map(recipients.map((address) => [`${address.mailbox}@${address.domain}`, address]));
  const routed = await Promise.all(
    [...once.values()].map(async ({ text: recipient, mailbox, domain }) => {
      const found = await call.inbound.lookup(mailbox, domain, sender);
      // Unknown does not mean absent: no mail may be lost while the store is unavailable.
      if (found.kind === 'unknown' || found.kind === 'too-new') throw call.refuse('ServiceUnavailable');
      return found.kind === 'matched' ? [{ recipient, match: found.match }] : [];
    }),
  );
  return routed.flat();
}

export const inboundSendRaw = [sendRaw];
