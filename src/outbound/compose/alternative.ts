import { type Change, type FieldSpan, findFields } from '../../mail/compose/fields.ts';
import { firstValue } from '../../mail/headers.ts';
import { parseStructured } from '../../mail/parameters.ts';
import { mediaTypeOf, type Part } from '../../mail/structure.ts';
import { toTextPart } from './mime.ts';

const NOTHING = Buffer.alloc(0);
const LINE_END = Buffer.from('\r\n');
const ABOUT_THE_BODY = /^content-/i;
const EIGHT_BIT = /^content-transfer-encoding[ \t]*:[ \t\r\n]*(8bit|binary)/im;

/** What a message says, as text or as HTML. */
export type Saying = 'text/plain' | 'text/html';

/**
 * The part of a message that says it in one way and in no other: what the other can be made of. Undefined when there is none, or
 * somebody's signature is over it.
 */
export function findLone(root: Part, wanted: Saying, sealed: ReadonlySet<string>): Part | undefined {
  let found: Part | undefined;
  const open = [root];
  for (let part = open.pop(); part; part = open.pop()) {
    if (sealed.has(part.type.value)) return undefined;
    open.push(...part.children.toReversed());
    if (part.children.length > 0 || isFile(part)) continue;
    const saying = sayingOf(part);
    if (saying === wanted) found ??= part;
    else if (saying !== undefined) return undefined;
  }
  return found;
}

function sayingOf(part: Part): Saying | undefined {
  const type = mediaTypeOf(part);
  return type === 'text/html' || type === 'text/plain' ? type : undefined;
}

function isFile({ fields }: Part): boolean {
  const disposition = parseStructured(firstValue(fields, 'content-disposition') ?? '').value;
  return disposition !== '' && disposition !== 'inline';
}

/**
 * Puts a part and what says the same in the other way into a multipart/alternative that takes its place. `changes` are those of the
 * part itself.
 */
export function withOther(
  bytes: Buffer,
  part: Part,
  changes: readonly Change[],
  other: { readonly type: Saying; readonly text: string },
  boundary: string,
): Change[] {
  const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
  const moved = fields.filter(({ name }) => ABOUT_THE_BODY.test(name));
  const body = changes.find(({ start }) => start === part.bodyStart);
  const inside = changes.filter(
    (change) => change !== body && ABOUT_THE_BODY.test(change.bytes.toString('latin1', 0, 20)),
  );
  const others = changes.filter((change) => change !== body && !inside.includes(change));
  const header = innerHeader(bytes, moved, inside);
  const own = Buffer.concat([header, LINE_END, body?.bytes ?? bytes.subarray(part.bodyStart, part.bodyEnd)]);
  const made = toTextPart(other.type, other.text);
  const isMime =
    part.parent !== undefined || others.length > 0 || firstValue(part.fields, 'mime-version') !== undefined;
  const at = moved[0]?.start ?? part.headerStart;
  return [
    ...others,
    { start: at, end: at, bytes: outerHeader(boundary, header, isMime) },
    ...moved.map(({ start, end }) => ({ start, end, bytes: NOTHING })),
    // The plainest first (RFC 2046 section 5.1.4).
    {
      start: part.bodyStart,
      end: part.bodyEnd,
      bytes: other.type === 'text/html' ? join(boundary, own, made) : join(boundary, made, own),
    },
  ];
}

/** What the header says about the body, with the changes that were made to it. */
function innerHeader(bytes: Buffer, moved: readonly FieldSpan[], inside: readonly Change[]): Buffer {
  return Buffer.concat([
    ...moved.map(
      (span) => inside.find((change) => isOver(change, span))?.bytes ?? bytes.subarray(span.start, span.end),
    ),
    ...inside.filter((change) => !moved.some((span) => isOver(change, span))).map((change) => change.bytes),
  ]);
}

/** What the header says about both. `inner`: what it said about the one. */
function outerHeader(boundary: string, inner: Buffer, isMime: boolean): Buffer {
  const encoding = EIGHT_BIT.exec(inner.toString('latin1'))?.[1];
  return Buffer.from(
    [
      `Content-Type: multipart/alternative; boundary="${boundary}"\r\n`,
      ...(encoding === undefined ? [] : [`Content-Transfer-Encoding: ${encoding}\r\n`]),
      ...(isMime ? [] : ['MIME-Version: 1.0\r\n']),
    ].join(''),
  );
}

function join(boundary: string, first: Buffer, second: Buffer): Buffer {
  const delimiter = Buffer.from(`--${boundary}\r\n`);
  return Buffer.concat([delimiter, first, LINE_END, delimiter, second, LINE_END, Buffer.from(`--${boundary}--\r\n`)]);
}

function isOver(change: Change, span: FieldSpan): boolean {
  return change.start === span.start && change.end === span.end;
}
