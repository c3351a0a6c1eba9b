import { parseAddressList } from '../../../mail/addresses/address-list.ts';
import { AUTOMATED_FIELD, authenticationResults, withoutForged } from '../../../mail/authentication-results.ts';
import type { FilePart, Mailbox, Text } from '../../../mail/message.ts';
import { withHeader } from '../../../mail/mime/header-section.ts';
import { allValues, firstValue, type HeaderField, parseHeaders } from '../../../mail/mime/headers.ts';
import { textWithoutForged } from '../as-utf8.ts';
import { type InboundEvent, ownFields, sendersFields, traceFields } from '../payload.ts';
import type { Piece, Plain } from '../pieces.ts';

/** The input of every format: one message for one recipient, parsed if possible. */
export interface ParsedMail {
  readonly inbound: InboundEvent;
  /** The fields in order, ours first; those that claim to be ours are left out. */
  readonly fields: readonly HeaderField[];
  readonly from: Mailbox | undefined;
  readonly to: readonly Mailbox[];
  readonly cc: readonly Mailbox[];
  readonly bcc: readonly Mailbox[];
  readonly subject: string;
  readonly text: Text | undefined;
  readonly html: Text | undefined;
  readonly files: readonly FilePart[];
  /** The fields that we put in front of a raw message. */
  readonly head: string;
  /** Whether to include the raw message with a parsed one. */
  readonly withRaw: boolean;
  /** The key for signatures within the body. */
  readonly key: string;
  /** Milliseconds since 1970 of this attempt. */
  readonly at: number;
}

/** A post in one format: its media type and its bytes. */
export interface Written {
  readonly type: string;
  readonly pieces: Iterable<Piece | Plain>;
}

export function toParsedMail(inbound: InboundEvent, rest: Pick<ParsedMail, 'withRaw' | 'key' | 'at'>): ParsedMail {
  const { message, content, author } = inbound;
  const parsed = 'parsed' in content ? content.parsed : undefined;
  const trace = traceFields(message);
  const head = headOf(inbound);
  const own = parseHeaders(Buffer.from(head));
  return {
    inbound,
    ...rest,
    fields: parsed
      ? [...own.slice(0, -trace.length || undefined), ...trace, ...sendersFields(inbound, parsed, true)]
      : own,
    from: author.mailbox,
    to: parsed?.to ?? [],
    cc: parsed?.cc ?? [],
    bcc: allValues(parsed?.fields ?? [], 'bcc').flatMap((value) => parseAddressList(value).mailboxes),
    subject: parsed?.subject ?? '',
    text: parsed?.text,
    html: parsed?.html,
    files: parsed?.files ?? [],
    head,
  };
}

/** The value of a field; '' if there is none. */
export const fieldOf = (mail: ParsedMail, name: string): string => firstValue(mail.fields, name) ?? '';

function headOf({ message, recipient, hostname, verdicts, senderAuth, automated }: InboundEvent): string {
  const { envelope, trace } = message;
  const own = `Return-Path: <${oneLine(envelope.mailFrom)}>\r\nX-Original-To: ${oneLine(recipient)}\r\n`;
  const kind = automated.why === null ? '' : `${AUTOMATED_FIELD}: ${automated.why}\r\n`;
  return `${own}${authenticationResults(hostname, envelope, verdicts, senderAuth.domain)}${kind}${trace}`;
}

/** Replaces characters that could end or fold a line. */
const oneLine = (text: string): string => text.replace(/[\p{Cc}\u2028\u2029]/gu, '?');

/** The original message, after our fields. */
export function* rawBytes({ inbound, head }: ParsedMail): Iterable<Plain> {
  yield { bytes: Buffer.from(head) };
  for (const bytes of withoutForged(withHeader(inbound.raw), ownFields(inbound, true))) yield { bytes };
}

/** As `rawBytes`, as UTF-8: parts in other charsets are encoded for transfer. For fields that must be text. */
export function* rawAsUtf8(mail: ParsedMail): Iterable<Plain> {
  const { inbound, head } = mail;
  yield { bytes: Buffer.from(head) };
  const whole = withHeader(inbound.raw);
  for (const bytes of textWithoutForged(whole, inbound.root, ownFields(inbound, true))) yield { bytes };
}

/** A mailbox as in a header: `Ann Example <ann@example.com>`. */
function toText({ name, address }: Mailbox): string {
  if (name === null || name === '') return address;
  return `${/^[\p{L}\p{N} ]+$/u.test(name) ? name : `"${name.replace(/["\\]/g, '\\$&')}"`} <${address}>`;
}

export const toTexts = (mailboxes: readonly Mailbox[]): string => mailboxes.map(toText).join(', ');
