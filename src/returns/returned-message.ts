import { decoderOfText } from '../mail/mime/charset.ts';
import { asciiParameter, firstValue, type HeaderField, parseHeaders } from '../mail/mime/headers.ts';
import { encodingOf, isMultipart, leavesOf, mediaTypeOf, type Part, scanStructure } from '../mail/mime/structure.ts';
import { decodeTransfer } from '../mail/mime/transfer.ts';

/** A returned message, parsed as far as needed to classify it. */
export interface ReturnedMessage {
  readonly fields: readonly HeaderField[];
  /** The leaf parts, in order. */
  readonly leaves: readonly Leaf[];
}

/** A leaf part; its body is decoded on demand. */
type Leaf = ReturnType<typeof toLeaf>;

/** Characters of a text that are examined; a bounce states its reason at the beginning. */
const LONGEST_TEXT = 64 * 1024;
const LONGEST_LINE = 998;

/** Parses a returned message; undefined if it exceeds a structural limit, as no sane one does (mail/outgoing.ts). */
export function readReturned(bytes: Buffer): ReturnedMessage | undefined {
  const scan = scanStructure(bytes);
  if (scan.breach !== undefined) return undefined;
  const { root } = scan;
  const leaves = leavesOf(root).map((part) => toLeaf(bytes, part));
  return { fields: root.fields, leaves };
}

/** The value of a top-level field, or ''; cut to the longest line (RFC 5322 section 2.1.1), to bound matching. */
export function valueOf({ fields }: ReturnedMessage, name: string): string {
  return (firstValue(fields, name) ?? '').slice(0, LONGEST_LINE).trim();
}

/** The text that a person reads first, up to 64 Ki characters with LF; of HTML, without tags. */
export function readText({ leaves }: ReturnedMessage): string {
  const leaf = leaves.find(({ type }) => type === 'text/plain') ?? leaves.find(({ type }) => type === 'text/html');
  if (!leaf) return '';
  const text = leaf.bytes().subarray(0, LONGEST_TEXT).toString('utf8').replaceAll('\r\n', '\n');
  return leaf.type === 'text/html' ? withoutTags(text) : text;
}

/** The header section of a message or an excerpt, as text; at most 64 KiB are read. */
export function headerText(bytes: Buffer): string {
  const start = bytes.subarray(0, LONGEST_TEXT).toString('latin1').replaceAll('\r\n', '\n').trimStart();
  const end = start.indexOf('\n\n');
  return end === -1 ? start : start.slice(0, end);
}

/** Parses blocks of fields separated by empty lines, as in reports (RFC 3464 section 2.1); at most `most`. */
export function readBlocks(bytes: Buffer, most: number): HeaderField[][] {
  const text = bytes.subarray(0, LONGEST_TEXT).toString('latin1').replaceAll('\r\n', '\n');
  const blocks: HeaderField[][] = [];
  for (const block of text.split(/\n[ \t]*(?=\n)/)) {
    const fields = parseHeaders(Buffer.from(block.replace(/^\n+/, ''), 'latin1'));
    if (fields.length > 0) blocks.push(fields);
    if (blocks.length === most) break;
  }
  return blocks;
}

function toLeaf(bytes: Buffer, part: Part) {
  // A multipart in which no boundary is found is one text: gateways change boundaries.
  const type = isMultipart(part) ? 'text/plain' : mediaTypeOf(part);
  const charset = asciiParameter(part.type, 'charset');
  return {
    /** Media type in lower case; default text/plain (RFC 2045 section 5.2). */
    type,
    bytes() {
      const decoded = decodeTransfer(bytes.subarray(part.bodyStart, part.bodyEnd), encodingOf(part));
      return type.startsWith('text/') ? Buffer.from(decoderOfText(charset, () => [decoded])(decoded, true)) : decoded;
    },
  };
}

/** A single pass, so that a text of nothing but `<` costs no more than any other. */
function withoutTags(html: string): string {
  let text = '';
  for (let at = 0; at < html.length; ) {
    const open = html.indexOf('<', at);
    if (open === -1) return text + html.slice(at);
    text += `${html.slice(at, open)} `;
    const close = html.indexOf('>', open);
    if (close === -1) return text;
    at = close + 1;
  }
  return text;
}
