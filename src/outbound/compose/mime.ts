import type { KeyObject } from 'node:crypto';
import DKIM from 'nodemailer/lib/dkim';
import MailComposer, { type MailComposerOptions } from 'nodemailer/lib/mail-composer';
import MimeNode from 'nodemailer/lib/mime-node';
import { foldLines } from 'nodemailer/lib/mime-funcs';
import { encodeQuotedPrintable } from '../../mail/compose/octets.ts';

export type MimeOptions = Pick<MailComposerOptions, 'from' | 'to' | 'cc' | 'subject' | 'text' | 'html' | 'attachments' | 'headers' | 'messageId' | 'date' | 'normalizeHeaderKey'>;

export interface DkimKey {
  readonly domain: string;
  readonly selector: string;
  readonly privateKey: KeyObject;
}

/**
 * What a changed message would say in these is not what its author said. List-Unsubscribe-Post has to be signed for one click to count
 * (RFC 8058 section 4); fields that are not there are left out.
 */
const SIGNED = [
  'From', 'Sender', 'Reply-To', 'To', 'Cc', 'Subject', 'Date', 'Message-ID', 'In-Reply-To', 'References', 'MIME-Version', 'Content-Type',
  'Content-Transfer-Encoding', 'List-Id', 'List-Help', 'List-Post', 'List-Owner', 'List-Archive', 'List-Subscribe', 'List-Unsubscribe', 'List-Unsubscribe-Post',
].join(':');
const FIELD = Buffer.from('DKIM-Signature:');

/** A part with its header, for `raw` of the composer, whose own encoder takes three times as long. */
export function toTextPart(type: 'text/plain' | 'text/html', text: string): Buffer {
  return Buffer.concat([Buffer.from(`Content-Type: ${type}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n`), encodeQuotedPrintable(Buffer.from(text))]);
}

/** Builds a MIME message. Neither files nor URLs are read, whatever the options say. */
export async function buildMime(options: MimeOptions, boundary: string): Promise<Buffer> {
  const node = new MailComposer({ ...options, disableFileAccess: true, disableUrlAccess: true }).compile();
  // From the message's own id: the same message has the same bytes each time it is tried.
  node.baseBoundary = boundary;
  return node.build();
}

/** A header field with its CRLF: non-ASCII encoded (RFC 2047), folded. */
export function toField(name: string, value: string | { readonly name: string; readonly address: string }): string {
  const encoded = MimeNode.encodeHeaderValue(name, typeof value === 'string' ? value : { ...value });
  return `${foldLines(`${name}: ${encoded}`, 76)}\r\n`;
}

/** The message with a DKIM-Signature in front: relaxed/relaxed, rsa-sha256 (RFC 6376). Throws when the key cannot sign. */
export async function sign(message: Buffer, { domain, selector, privateKey }: DkimKey): Promise<Buffer> {
  const signer = new DKIM({ domainName: domain, keySelector: selector, privateKey, headerFieldNames: SIGNED });
  const signed = await whole(signer.sign(message));
  // The signer passes a message on unsigned when the key is none.
  if (!signed.subarray(0, FIELD.length).equals(FIELD)) throw new Error(`the DKIM key of ${domain} cannot sign`);
  return signed;
}

/** By events: iterating over a stream makes and drops an error at the end of each. */
function whole(stream: NodeJS.ReadableStream): Promise<Buffer> {
  const pieces: Buffer[] = [];
  return new Promise((resolve, reject) => {
    stream.on('data', (piece: Buffer) => { pieces.push(piece); }).once('error', reject).once('end', () => resolve(Buffer.concat(pieces)));
  });
}
