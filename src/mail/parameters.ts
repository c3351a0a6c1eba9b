/** A header value with parameters (RFC 2045 section 5.1): `text/plain; charset=utf-8`. */
export interface Structured {
  /** In lower case and without white space around it; empty when there is none. */
  readonly value: string;
  /** By name in lower case. A name that comes twice keeps its last value. */
  readonly params: ReadonlyMap<string, string>;
}

const SEMICOLON = 0x3b;
const EQUALS = 0x3d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Splits a value from its parameters in one pass. RFC 2231 parameters keep their written names (`filename*0*`). */
export function parseStructured(text: string): Structured {
  const params = new Map<string, string>();
  let at = 0;
  let value: string | undefined;
  while (at <= text.length) {
    const piece = readPiece(text, at);
    if (value === undefined) value = piece.name === undefined ? piece.value : `${piece.name}=${piece.value}`;
    else if (piece.name !== undefined) params.set(piece.name.toLowerCase(), piece.value);
    else if (piece.value !== '') params.set(piece.value.toLowerCase(), '');
    at = piece.next;
  }
  return { value: (value ?? '').toLowerCase(), params };
}

/** One piece between semicolons, which do not count inside quotes. */
function readPiece(text: string, start: number): { name: string | undefined; value: string; next: number } {
  let name: string | undefined;
  let from = start;
  let quoted = false;
  let plain = true;
  let at = start;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH && (quoted || name !== undefined)) { plain = false; at++; }
    else if (code === QUOTE && (name !== undefined || quoted)) { plain = false; quoted = !quoted; }
    else if (quoted) continue;
    else if (code === SEMICOLON) break;
    else if (code === EQUALS && name === undefined) { name = text.slice(from, at).trim(); from = at + 1; }
  }
  const written = text.slice(from, at).trim();
  return { name, value: plain ? written : unquote(written), next: at + 1 };
}

function unquote(text: string): string {
  return text.replace(/\\([^])|"/g, '$1').replace(/\\$/, '');
}
