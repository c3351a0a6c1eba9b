import { runInSlices, type SlicedWork } from '../../base/concurrency.ts';
import { parseAddressList } from '../../mail/addresses/address-list.ts';
import { applyChanges, findFields, toCrlf } from '../../mail/compose/fields.ts';
import { headerBlock, isOverlong } from '../../mail/mime/header-section.ts';
import { parseHeaders } from '../../mail/mime/headers.ts';

// Raw messages from callers, headers included. The header block and each address list are read once, so the time is
// linear in the length.

/**
 * The recipients in a document's own header: the addresses of To, Cc and Bcc (RFC 5322 section 3.6.3) in order, and the
 * text of any that cannot be parsed, so that the caller can be told. At most `max` of them.
 */
export function headerRecipients(document: Buffer, max: number): string[] {
  const found: string[] = [];
  for (const { name, value } of parseHeaders(headerOf(document))) {
    if (!/^(?:to|cc|bcc)$/i.test(name)) continue;
    const { mailboxes, unreadable } = parseAddressList(value);
    found.push(...mailboxes.map(({ address }) => address), ...unreadable);
    if (found.length >= max) return found.slice(0, max);
  }
  return found;
}

export function withoutBcc(document: Buffer): Buffer {
  const { fields } = findFields(headerOf(document), 0);
  const bcc = fields
    .filter(({ name }) => name === 'bcc')
    .map(({ start, end }) => ({ start, end, bytes: Buffer.alloc(0) }));
  return bcc.length === 0 ? document : Buffer.concat(applyChanges(document, bcc));
}

/** The header block; of one that is too large to read, its first lines. */
function headerOf(document: Buffer): Buffer {
  const block = headerBlock(document);
  return isOverlong(document) ? block.subarray(0, block.lastIndexOf('\n') + 1) : block;
}

/** Characters between two steps: about a millisecond of work. */
const SLICE = 262_144;

/** The bytes of a document with all line ends as CRLF, as on the wire. In slices: it may be large. */
export const toWireBytes = (document: string): Promise<Buffer> => runInSlices(wireBytes(document));

function* wireBytes(document: string): SlicedWork<Buffer> {
  const parts: Buffer[] = [];
  for (let at = 0; at < document.length; ) {
    const end = endOfSlice(document, at + SLICE);
    parts.push(toCrlf(Buffer.from(document.slice(at, end))));
    at = end;
    yield;
  }
  return Buffer.concat(parts);
}

/** A slice does not end within CRLF or within a character. */
function endOfSlice(document: string, at: number): number {
  if (at >= document.length) return document.length;
  const isWithin = /^(?:\r\n|[\ud800-\udbff][\udc00-\udfff])/.test(document.slice(at - 1, at + 1));
  return isWithin ? at + 1 : at;
}
