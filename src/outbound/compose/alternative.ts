import { findFields, type Change, type FieldSpan } from '../../mail/compose/fields.ts';
import { firstValue } from '../../mail/headers.ts';
import { parseStructured } from '../../mail/parameters.ts';
import type { Part } from '../../mail/structure.ts';
import { toTextPart } from './mime.ts';

const NOTHING = Buffer.alloc(0);
const LINE_END = Buffer.from('\r\n');
const ABOUT_THE_BODY = /^content-/i;
const EIGHT_BIT = /^content-transfer-encoding[ \t]*:[ \t\r\n]*(8bit|binary)/im;

/** The text part of a message without HTML: what HTML can be made of. Undefined when there is none, or somebody's signature is over it. */
export function findLoneText(root: Part, sealed: ReadonlySet<string>): Part | undefined {
  let found: Part | undefined;
  const open = [root];
  for (let part = open.pop(); part; part = open.pop()) {
    if (sealed.has(part.type.value)) return undefined;
    open.push(...part.children.toReversed());
    if (part.children.length > 0 || isFile(part)) continue;
    if (part.type.value === 'text/html') return undefined;
    if (part.type.value === 'text/plain' || (part.type.value === '' && part.parent?.type.value !== 'multipart/digest')) found ??= part;
  }
  return found;
}

function isFile({ fields }: Part): boolean {
  const disposition = parseStructured(firstValue(fields, 'content-disposition') ?? '').value;
  return disposition !== '' && disposition !== 'inline';
}

/**
 * Puts a text part and its HTML into a multipart/alternative that takes its place (RFC 2046 section 5.1.4). `changes` are those of
 * the text part itself.
 */
export function withHtml(bytes: Buffer, part: Part, changes: readonly Change[], html: string, boundary: string): Change[] {
  const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
  const moved = fields.filter(({ name }) => ABOUT_THE_BODY.test(name));
  const body = changes.find(({ start }) => start === part.bodyStart);
  const inside = new Set(changes.filter((change) => change !== body && ABOUT_THE_BODY.test(change.bytes.toString('latin1', 0, 20))));
  const header = Buffer.concat([
    ...moved.map((span) => [...inside].find((change) => isOver(change, span))?.bytes ?? bytes.subarray(span.start, span.end)),
    ...[...inside].filter((change) => !moved.some((span) => isOver(change, span))).map((change) => change.bytes),
  ]);
  const content = body?.bytes ?? bytes.subarray(part.bodyStart, part.bodyEnd);
  const others = changes.filter((change) => change !== body && !inside.has(change));
  const encoding = EIGHT_BIT.exec(header.toString('latin1'))?.[1];
  const outer = [
    `Content-Type: multipart/alternative; boundary="${boundary}"\r\n`,
    ...(encoding === undefined ? [] : [`Content-Transfer-Encoding: ${encoding}\r\n`]),
    ...(part.parent === undefined && others.length === 0 && firstValue(part.fields, 'mime-version') === undefined ? ['MIME-Version: 1.0\r\n'] : []),
  ];
  const at = moved[0]?.start ?? part.headerStart;
  const delimiter = Buffer.from(`--${boundary}\r\n`);
  return [
    ...others,
    { start: at, end: at, bytes: Buffer.from(outer.join('')) },
    ...moved.map(({ start, end }) => ({ start, end, bytes: NOTHING })),
    {
      start: part.bodyStart, end: part.bodyEnd,
      bytes: Buffer.concat([delimiter, header, LINE_END, content, LINE_END, delimiter, toTextPart('text/html', html), LINE_END, Buffer.from(`--${boundary}--\r\n`)]),
    },
  ];
}

function isOver(change: Change, span: FieldSpan): boolean {
  return change.start === span.start && change.end === span.end;
}
