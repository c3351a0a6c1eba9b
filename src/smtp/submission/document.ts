import { parseAddress } from '../../mail/address.ts';
import { soleAuthor } from '../../mail/author.ts';
import { breachOfBlock } from '../../mail/caps.ts';
import { allValues, firstValue, parseHeaders } from '../../mail/headers.ts';
import { isHeadless } from '../../mail/headless.ts';
import { type McOptions, parseMcHeaders } from '../../mail/mc-headers.ts';
import { MC_FIELD } from '../../mail/mc-reading.ts';
import { decodeWords } from '../../mail/words.ts';
import { REFUSALS, type Reply } from '../refusal.ts';

/** A message as it was handed over, with what its header asks. */
export interface Document {
  /** Lower case. */
  readonly sender: string;
  readonly fromName: string | null;
  readonly subject: string;
  readonly options: McOptions;
  /** Without the fields that were for us. */
  readonly bytes: Buffer;
}

const END_OF_HEADER = '\r\n\r\n';
// Bcc names whom nobody shall see; Return-Path is for whoever delivers at last (RFC 5321 section 4.4).
const NOT_SENT = /^(?:bcc|return-path)$/i;
/** Bytes of the From field; RFC 5322 has no limit, and no name comes near. */
const LONGEST_FROM = 4096;
/** What X-MC-Important becomes: what mail programs look at. */
const IMPORTANT = 'X-Priority: 1\r\nX-MSMail-Priority: High\r\nImportance: High\r\n';

/** Reads the header of a message, and takes off what was for us. */
export function readDocument(
  bytes: Buffer,
): { readonly refused: Reply } | { readonly refused?: undefined; readonly document: Document } {
  const end = bytes.subarray(0, 2).equals(Buffer.from('\r\n')) ? 0 : bytes.indexOf(END_OF_HEADER) + 2;
  const headerEnd = end === 1 ? bytes.length : end; // no empty line: all of it is header
  const block = bytes.subarray(0, headerEnd);
  if (breachOfBlock(block) !== undefined) return { refused: REFUSALS.badHeader };
  const fields = isHeadless(bytes) ? [] : parseHeaders(block);
  const tooLong = allValues(fields, 'from').some((value) => Buffer.byteLength(value) > LONGEST_FROM);
  const from = tooLong ? undefined : soleAuthor(fields);
  const address = from && parseAddress(from.address);
  if (!from || !address || address.domain.startsWith('[')) return { refused: REFUSALS.badFrom };
  const options = parseMcHeaders(fields);
  const header = Buffer.from(`${options.important ? IMPORTANT : ''}${strip(block.toString('latin1'))}`, 'latin1');
  const rest = headerEnd === bytes.length && end === 1 ? Buffer.from('\r\n') : bytes.subarray(headerEnd);
  return {
    document: {
      sender: from.address.toLowerCase(),
      fromName: from.name,
      subject: subjectOf(fields),
      options,
      bytes: Buffer.concat([header, rest]),
    },
  };
}

function subjectOf(fields: Parameters<typeof firstValue>[0]): string {
  const subject = firstValue(fields, 'subject') ?? '';
  return decodeWords(subject);
}

/** Takes fields out of a header block, each with its folded lines, and leaves every other byte alone. */
function strip(block: string): string {
  return block.replace(/^([!-9;-~]+)[ \t]*:.*\r\n(?:[ \t].*\r\n)*/gm, (field, name: string) =>
    MC_FIELD.test(name) || NOT_SENT.test(name) ? '' : field,
  );
}
