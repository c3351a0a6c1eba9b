import type { Structured } from '../parameters.ts';

/** A header field in the bytes of a message, its line end included. */
export interface FieldSpan {
  /** Lower case; empty for a line that is no field. */
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

export interface HeaderBlock {
  readonly fields: readonly FieldSpan[];
  /** Where the empty line begins; undefined when there is none. */
  readonly end: number | undefined;
}

/** A piece of a message that is replaced; nothing is replaced where `start` is `end`. */
export interface Change {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

// A name as RFC 5322 section 2.2 has it, white space before the colon being obsolete syntax (section 4.5). Names of
// more than 100 characters mean nothing to us.
const NAME = /^([!-9;-~]{1,100})[ \t]*:/;
const LF = 0x0a;
const CR = 0x0d;

/** Finds the fields of the header block that begins at `start`, in bytes with CRLF line ends. */
export function findFields(bytes: Buffer, start: number): HeaderBlock {
  const fields: { name: string; start: number; end: number }[] = [];
  for (let at = start; at < bytes.length; ) {
    if (bytes[at] === CR && bytes[at + 1] === LF) return { fields, end: at };
    const newline = bytes.indexOf(LF, at);
    const end = newline < 0 ? bytes.length : newline + 1;
    const last = fields.at(-1);
    if (last && (bytes[at] === 0x20 || bytes[at] === 0x09)) last.end = end;
    else fields.push({ name: nameAt(bytes, at, end), start: at, end });
    at = end;
  }
  return { fields, end: undefined };
}

function nameAt(bytes: Buffer, at: number, end: number): string {
  return (NAME.exec(bytes.toString('latin1', at, Math.min(end, at + 110)))?.[1] ?? '').toLowerCase();
}

/** The bytes in pieces, with the changes made. They may come in any order but must not overlap. */
export function applyChanges(bytes: Buffer, changes: readonly Change[]): Buffer[] {
  const pieces: Buffer[] = [];
  let kept = 0;
  for (const change of changes.toSorted((a, b) => a.start - b.start || a.end - b.end)) {
    pieces.push(bytes.subarray(kept, change.start), change.bytes);
    kept = change.end;
  }
  return [...pieces, bytes.subarray(kept)];
}

/** The change that makes a field say `value`: in its place where there is one, else at `otherwise`. */
export function setField(fields: readonly FieldSpan[], otherwise: number, name: string, value: string): Change {
  const found = fields.find((field) => field.name === name.toLowerCase());
  const bytes = Buffer.from(`${name}: ${value}\r\n`);
  return { start: found?.start ?? otherwise, end: found?.end ?? otherwise, bytes };
}

/** A Content-Type with another charset and the other parameters that it had. */
export function toContentType(type: string, { params }: Structured, charset: string): string {
  const others = [...params]
    .filter(([name]) => name !== 'charset')
    .map(([name, value]) => `;\r\n\t${name}="${value.replace(/["\\]/g, '\\$&')}"`);
  return [type, `; charset=${charset}`, ...others].join('');
}
