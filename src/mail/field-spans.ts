// Fields found in the bytes of a header without reading the others: whoever accepts or prepares a message looks at a few.

/** Where a field begins, and where the next one does. */
export type Span = readonly [start: number, end: number];

/** Calls `take` with each field of a header in order, folded lines included, in at most so many lines. */
export function eachField(head: Buffer, mostLines: number, take: (at: number, end: number) => void): void {
  // As for every reader: a message that begins with a blank is all body (`isHeadless`).
  if (isBlank(head[0])) return;
  let lines = 0;
  for (let at = 0; at < head.length && lines < mostLines && !isEmptyLine(head, at); ) {
    let end = nextLine(head, at);
    for (lines++; isBlank(head[end]) && lines < mostLines; lines++) end = nextLine(head, end);
    take(at, end);
    at = end;
  }
}

const [LF, CR, SPACE, TAB, COLON] = [0x0a, 0x0d, 0x20, 0x09, 0x3a];

const isBlank = (byte: number | undefined): boolean => byte === SPACE || byte === TAB;

const isEmptyLine = (bytes: Uint8Array, at: number): boolean =>
  bytes[at] === LF || (bytes[at] === CR && bytes[at + 1] === LF);

const nextLine = (bytes: Uint8Array, at: number): number => bytes.indexOf(LF, at) + 1 || bytes.length;

/** Names of fields by the code of their first letter, in lower case: one comparison rules most lines out. */
export type NameTable = readonly (string | undefined)[];

/** The table of names that all begin differently. */
export function byFirstLetter(names: readonly string[]): NameTable {
  return Array.from({ length: 256 }, (_, code) => names.find((name) => name.charCodeAt(0) === code));
}

/** Which of these names a field has; undefined for another. */
export function nameAt(bytes: Uint8Array, start: number, names: NameTable): string | undefined {
  const name = names[(bytes[start] ?? 0) | CASE_BIT];
  return name !== undefined && isNamed(bytes, start, name) ? name : undefined;
}

/** Whether it has this name, in any case, with or without blanks before the colon, which may be on the next line. */
function isNamed(bytes: Uint8Array, start: number, name: string): boolean {
  let at = start;
  for (let i = 0; i < name.length; i++)
    if (((bytes[at++] ?? 0) | CASE_BIT) !== (name.charCodeAt(i) | CASE_BIT)) return false;
  while (isBlank(bytes[at]) || bytes[at] === CR || bytes[at] === LF) at++;
  return bytes[at] === COLON;
}

/** What tells capitals from small letters. */
const CASE_BIT = 0x20;
