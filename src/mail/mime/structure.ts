import { headerLimitBreach, MESSAGE_LIMITS } from '../outgoing.ts';
import { ownCharset, rawCharset } from './header-section.ts';
import {
  asciiParameter,
  firstValue,
  type HeaderField,
  type ParameterizedValue,
  parseHeaders,
  parseStructured,
} from './headers.ts';
import type { TransferEncoding } from './transfer.ts';

/** A part of a message, as offsets into the message. */
export interface Part {
  readonly fields: readonly HeaderField[];
  readonly type: ParameterizedValue;
  readonly parent: Part | undefined;
  readonly children: Part[];
  readonly headerStart: number;
  readonly bodyStart: number;
  bodyEnd: number;
}

/** The parts without parts of their own, in order. */
export function leavesOf(part: Part): Part[] {
  return part.children.length === 0 ? [part] : part.children.flatMap(leavesOf);
}

/** Whether a part should have parts of its own; some software leaves out the subtype. */
export function isMultipart({ type }: Part): boolean {
  return type.value.startsWith('multipart/') || type.value === 'multipart';
}

/** The parts of a message, or a description of the cap that it exceeds. */
export type StructureScan =
  | { readonly root: Part; readonly breach?: undefined }
  | { readonly root?: undefined; readonly breach: string };

/** The media type of a part; if none is declared, the default of RFC 2045 section 5.2 or RFC 2046 section 5.1.5. */
export function mediaTypeOf({ type, parent }: Part): string {
  if (type.value !== '') return type.value;
  return parent?.type.value === 'multipart/digest' ? 'message/rfc822' : 'text/plain';
}

/** Encodings by name; uuencode was never registered and has several. */
const ENCODINGS: ReadonlyMap<string, TransferEncoding> = new Map([
  ['base64', 'base64'],
  ['quoted-printable', 'quoted-printable'],
  ['x-uuencode', 'uuencode'],
  ['uuencode', 'uuencode'],
  ['x-uue', 'uuencode'],
  ['uue', 'uuencode'],
]);

/** The Content-Transfer-Encoding of a part (RFC 2045 section 6) as a word in lower case, without comments. */
export function encodingWord({ fields }: Part): string {
  const value = firstValue(fields, 'content-transfer-encoding') ?? '';
  return value
    .replace(/\([^()]*\)/g, '')
    .trim()
    .toLowerCase();
}

/** Unknown words mean no encoding. */
export const encodingOf = (part: Part): TransferEncoding => ENCODINGS.get(encodingWord(part)) ?? 'identity';

const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/;

/** Whether a declared type is a media type: senders write anything. */
export function isMediaType(type: string): boolean {
  return MEDIA_TYPE.test(type);
}

interface Open {
  readonly part: Part;
  readonly boundary: string;
  /** Whether its closing delimiter was seen. Parts after it count all the same: gateways append them. */
  closed: boolean;
}

interface Walk {
  readonly bytes: Buffer;
  /** The multiparts around the current position, outermost first. */
  readonly open: Open[];
  /** Index into `open` by boundary, so that a delimiter costs the same at any depth. */
  readonly levels: Map<string, number>;
  leaf: Part | undefined;
  parts: number;
  headerBytes: number;
  addressBytes: number;
  /** The charset for raw 8-bit fields of the message, once determined. */
  charset: { readonly label: string | undefined } | undefined;
  breach: string | undefined;
}

const LF = 0x0a;
const CR = 0x0d;
const DASH = 0x2d;
const COLON = 0x3a;
const SPACE = 0x20;
const DELIMITER = Buffer.from('\n--');
// RFC 2046 section 5.1.1 allows 70 characters; real software uses more.
const LONGEST_BOUNDARY = 1000;
// All fields with addresses.
const ADDRESS_FIELDS =
  /^(?:from|to|cc|bcc|sender|reply-to|delivered-to|return-path|disposition-notification-to|list-.*)$/i;

/**
 * Finds the parts of a message in one linear pass, without decoding, and checks MESSAGE_LIMITS before any parser gets
 * it.
 */
export function scanStructure(bytes: Buffer): StructureScan {
  const walk: Walk = {
    bytes,
    open: [],
    levels: new Map(),
    leaf: undefined,
    parts: 0,
    headerBytes: 0,
    addressBytes: 0,
    charset: undefined,
    breach: undefined,
  };
  const root = openPart(walk, undefined, 0);
  let at = root?.bodyStart ?? bytes.length;
  while (walk.breach === undefined && walk.open.length > 0) {
    const delimiter = nextDelimiter(walk, at);
    if (delimiter === undefined) break;
    at = passDelimiter(walk, delimiter);
  }
  if (root === undefined || walk.breach !== undefined) return { breach: walk.breach ?? 'unreadable' };
  return { root };
}

/** Reads the header block at `start` and enters the part that it begins. */
function openPart(walk: Walk, parent: Part | undefined, start: number): Part | undefined {
  const { headersEnd, bodyStart } = headerBlock(walk, parent, start);
  const block = walk.bytes.subarray(start, headersEnd);
  walk.parts += 1;
  walk.headerBytes += block.length;
  walk.breach = headerLimitBreach(block) ?? breachOfCounts(walk);
  if (walk.breach !== undefined) return undefined;
  const fields = parseHeaders(block, () => (parent && ownCharset(block)) ?? charsetOf(walk));
  walk.addressBytes += addressBytes(fields);
  if (walk.addressBytes > MESSAGE_LIMITS.addressBytes)
    walk.breach = `more than ${MESSAGE_LIMITS.addressBytes} bytes of addresses`;
  const type = parseStructured(firstValue(fields, 'content-type') ?? '');
  const part: Part = {
    fields,
    type,
    parent,
    children: [],
    headerStart: start,
    bodyStart,
    bodyEnd: walk.bytes.length,
  };
  parent?.children.push(part);
  walk.leaf = part;
  if (isMultipart(part)) enterMultipart(walk, part);
  return part;
}

function charsetOf(walk: Walk): string | undefined {
  walk.charset ??= { label: rawCharset(walk.bytes) };
  return walk.charset.label;
}

function breachOfCounts(walk: Walk): string | undefined {
  if (walk.parts > MESSAGE_LIMITS.parts) return `more than ${MESSAGE_LIMITS.parts} parts`;
  if (walk.headerBytes > MESSAGE_LIMITS.allHeaderBytes)
    return `more than ${MESSAGE_LIMITS.allHeaderBytes} bytes of part headers`;
  return undefined;
}

function addressBytes(fields: readonly HeaderField[]): number {
  let sum = 0;
  for (const { name, value } of fields) if (ADDRESS_FIELDS.test(name)) sum += value.length;
  return sum;
}

function enterMultipart(walk: Walk, part: Part): void {
  // It cannot end in a blank (RFC 2046 section 5.1.1), because blanks are padding there.
  const boundary = Buffer.from(asciiParameter(part.type, 'boundary')).toString('latin1').trimEnd();
  if (boundary === '' || boundary.length > LONGEST_BOUNDARY) return;
  walk.leaf = undefined;
  walk.levels.set(boundary, walk.open.length);
  walk.open.push({ part, boundary, closed: false });
  if (walk.open.length > MESSAGE_LIMITS.nesting) walk.breach = `parts nested more than ${MESSAGE_LIMITS.nesting} deep`;
}

interface Block {
  readonly headersEnd: number;
  readonly bodyStart: number;
}

/**
 * A header block ends at the first empty line, or at a delimiter: a part may have no body. If the empty line is missing
 * in a part, its body begins at what is neither a field nor a folded line.
 */
function headerBlock(walk: Walk, parent: Part | undefined, start: number): Block {
  const { bytes } = walk;
  let at = start;
  let noField: number | undefined;
  while (at < bytes.length) {
    const first = bytes[at];
    const emptyLine = first === LF ? 1 : first === CR && bytes[at + 1] === LF ? 2 : 0;
    if (emptyLine > 0) return noField === undefined ? { headersEnd: at, bodyStart: at + emptyLine } : endedAt(noField);
    if (first === DASH && delimiterAt(walk, at) !== undefined) return endedAt(noField ?? at);
    const newline = bytes.indexOf(LF, at);
    if (parent && (noField !== undefined || !isPlainField(bytes, at))) noField = beginOfBody(bytes, start, at, noField);
    if (newline === -1) break;
    at = newline + 1;
  }
  return endedAt(noField ?? bytes.length);
}

const endedAt = (at: number): Block => ({ headersEnd: at, bodyStart: at });

/** Whether a line is a field in the usual form, which nearly all are. */
function isPlainField(bytes: Buffer, at: number): boolean {
  const start = at;
  while ((bytes[at] ?? 0) > SPACE && bytes[at] !== COLON && at - start < LONGEST_BOUNDARY) at++;
  return at > start && bytes[at] === COLON;
}

const FIELD = /^[!-9;-~]{1,200}[ \t]*:/;
/** Fields of part headers: no body begins before one. */
const PART_FIELD = /^(?:content-|x-)[!-9;-~]{0,200}[ \t]*:/i;
/** Bytes before a line that are searched for the end of the line above. */
const LINE_END = 3;

/** Where the body begins, by the line at `at`; `begun`: by those above. Some software does not indent folded lines. */
function beginOfBody(bytes: Buffer, start: number, at: number, begun: number | undefined): number | undefined {
  const line = bytes.toString('latin1', at, at + 300);
  if (begun !== undefined) return PART_FIELD.test(line) ? undefined : begun;
  const goesOn = /^[ \t]/.test(line) || /;\s*$/.test(bytes.toString('latin1', Math.max(start, at - LINE_END), at));
  return goesOn || FIELD.test(line) ? undefined : at;
}

interface Delimiter {
  readonly level: number;
  readonly closes: boolean;
  readonly lineStart: number;
  readonly lineEnd: number;
}

function nextDelimiter(walk: Walk, from: number): Delimiter | undefined {
  // The line break before a delimiter may be the one that ends the header.
  let at = Math.max(from - 1, 0);
  for (;;) {
    at = walk.bytes.indexOf(DELIMITER, at);
    if (at === -1) return undefined;
    const delimiter = delimiterAt(walk, at + 1);
    if (delimiter !== undefined) return delimiter;
    at += 1;
  }
}

/** The delimiter on the line at `lineStart`. White space after it is transport padding (RFC 2046 section 5.1.1). */
function delimiterAt(walk: Walk, lineStart: number): Delimiter | undefined {
  const { bytes, levels } = walk;
  if (bytes[lineStart + 1] !== DASH || levels.size === 0) return undefined;
  const newline = bytes.indexOf(LF, lineStart);
  const lineEnd = newline === -1 ? bytes.length : newline + 1;
  if (lineEnd - lineStart > LONGEST_BOUNDARY + 100) return undefined;
  const text = bytes.toString('latin1', lineStart + 2, lineEnd).trimEnd();
  const opens = levels.get(text);
  if (opens !== undefined) return { level: opens, closes: false, lineStart, lineEnd };
  const closed = text.endsWith('--') ? levels.get(text.slice(0, -2)) : undefined;
  return closed === undefined ? undefined : { level: closed, closes: true, lineStart, lineEnd };
}

/**
 * Ends the parts that the delimiter closes, including nested multiparts without their own closing delimiter. Returns
 * where to continue.
 */
function passDelimiter(walk: Walk, delimiter: Delimiter): number {
  const { level, closes, lineStart, lineEnd } = delimiter;
  endPart(walk, walk.leaf, lineStart);
  for (const { part, closed } of walk.open.slice(level + 1)) if (!closed) endPart(walk, part, lineStart);
  const owner = walk.open[level];
  // Without parts, its content ends before this line.
  if (closes) endPart(walk, owner?.part, owner?.part.children.length === 0 ? lineStart : lineEnd);
  if (owner) owner.closed = closes;
  truncate(walk, level + 1);
  walk.leaf = undefined;
  if (closes) return lineEnd;
  return openPart(walk, owner?.part, lineEnd)?.bodyStart ?? walk.bytes.length;
}

/** Ends a part before a delimiter line; the line break before it belongs to the delimiter (RFC 2046 section 5.1.1). */
function endPart(walk: Walk, part: Part | undefined, at: number): void {
  if (part === undefined) return;
  let end = at;
  if (end > part.bodyStart && walk.bytes[end - 1] === LF) end -= 1;
  if (end > part.bodyStart && walk.bytes[end - 1] === CR) end -= 1;
  part.bodyEnd = end;
}

/** Forgets the multiparts inside the first `length`. Of two with one boundary the inner one counts while it is open. */
function truncate(walk: Walk, length: number): void {
  const last = walk.open[length - 1];
  if (walk.open.length === length && !last?.closed) return;
  walk.open.length = length;
  walk.levels.clear();
  for (const [level, { boundary, closed }] of walk.open.entries())
    if (!closed || !walk.levels.has(boundary)) walk.levels.set(boundary, level);
}
