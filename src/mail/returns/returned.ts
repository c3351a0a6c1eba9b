import { decoderOfText } from '../charset.ts';
import { firstValue, type HeaderField, parseHeaders } from '../headers.ts';
import { asciiParameter } from '../parameters.ts';
import { mediaTypeOf, type Part, scanStructure } from '../structure.ts';
import { decodeTransfer, toTransferEncoding } from '../transfer.ts';

/** A mail that came back, as far as it is needed to say what it is. */
export interface Returned {
  readonly fields: readonly HeaderField[];
  /** Parts that are no multiparts, in their order. */
  readonly leaves: readonly Leaf[];
  /** The parameter `report-type` of a multipart/report (RFC 6522), lower case; '' for everything else. */
  readonly reportType: string;
}

/** A part with its body, which is decoded when it is asked for. */
export interface Leaf {
  /** Media type in lower case; text/plain when nothing is said (RFC 2045 section 5.2). */
  readonly type: string;
  readonly bytes: () => Buffer;
}

/** Characters of a text that are looked at; what a bounce has to say stands at its beginning. */
const LONGEST_TEXT = 64 * 1024;
const LONGEST_LINE = 998;

/** Reads the bytes of a mail that came back; undefined when it breaks a cap that no sane message does (mail/caps.ts). */
export function readReturned(bytes: Buffer): Returned | undefined {
  const scan = scanStructure(bytes);
  if (scan.breach !== undefined) return undefined;
  const { root } = scan;
  const leaves = leavesOf(root).map((part) => toLeaf(bytes, part));
  const report = root.type.value === 'multipart/report' ? asciiParameter(root.type, 'report-type') : '';
  return { fields: root.fields, leaves, reportType: report.toLowerCase() };
}

/** The value of a field of the mail itself, '' when there is none; as long as a line may be (RFC 5322 section 2.1.1), so that no pattern takes long over it. */
export function valueOf({ fields }: Returned, name: string): string {
  return (firstValue(fields, name) ?? '').slice(0, LONGEST_LINE).trim();
}

/** The text that a person would read first, at most 64 Ki characters, LF line ends; HTML without its tags when there is nothing else. */
export function readText({ leaves }: Returned): string {
  const leaf = leaves.find(({ type }) => type === 'text/plain') ?? leaves.find(({ type }) => type === 'text/html');
  if (!leaf) return '';
  const text = leaf.bytes().subarray(0, LONGEST_TEXT).toString('utf8').replaceAll('\r\n', '\n');
  return leaf.type === 'text/html' ? withoutTags(text) : text;
}

/** The header section of a message, or of what stands in for one, as text of at most 64 KiB. */
export function headerText(bytes: Buffer): string {
  const start = bytes.subarray(0, LONGEST_TEXT).toString('latin1').replaceAll('\r\n', '\n').trimStart();
  const end = start.indexOf('\n\n');
  return end === -1 ? start : start.slice(0, end);
}

/** Blocks of fields with an empty line between, as reports are written (RFC 3464 section 2.1); at most `most`. */
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

function leavesOf(part: Part): Part[] {
  if (!part.type.value.startsWith('multipart/')) return [part];
  return part.children.flatMap(leavesOf);
}

function toLeaf(bytes: Buffer, part: Part): Leaf {
  const type = mediaTypeOf(part);
  const charset = asciiParameter(part.type, 'charset');
  return {
    type,
    bytes() {
      const decoded = decodeTransfer(
        bytes.subarray(part.bodyStart, part.bodyEnd),
        toTransferEncoding(firstValue(part.fields, 'content-transfer-encoding')),
      );
      return type.startsWith('text/') ? Buffer.from(decoderOfText(charset, () => [decoded])(decoded, true)) : decoded;
    },
  };
}

/** One pass, so that a text of nothing but `<` costs no more than another. */
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
