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

/** Whether a parameter is in one of the extended forms of RFC 2231: `name*=`, or in pieces, `name*0=`. */
export function isExtended({ params }: Structured, name: string): boolean {
  for (const key of params.keys()) if (key.startsWith(`${name}*`)) return true;
  return false;
}

/**
 * A parameter of ASCII, such as a boundary, in whatever form it is; '' when there is none. The extended form goes
 * before the plain one, as mailparser has it: we have to see the same parts.
 */
export function asciiParameter(type: Structured, name: string): string {
  if (!isExtended(type, name)) return type.params.get(name) ?? '';
  const pieces: { readonly number: number; readonly text: string }[] = [];
  for (const [key, value] of type.params) {
    const match = key.startsWith(`${name}*`) ? /^(\d{0,4})\*?$/.exec(key.slice(name.length + 1)) : null;
    if (match) pieces.push({ number: Number(match[1]), text: value });
  }
  const text = pieces
    .toSorted((a, b) => a.number - b.number)
    .map((piece) => piece.text)
    .join('');
  const encoded = /^[^']*'[^']*'(.*)$/s.exec(text)?.[1];
  const decode = (_: string, hex: string) => String.fromCharCode(Number.parseInt(hex, 16));
  return encoded === undefined ? text : encoded.replace(/%([0-9a-f]{2})/gi, decode);
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
    if (code === BACKSLASH && (quoted || name !== undefined)) {
      plain = false;
      at++;
    } else if (code === QUOTE && (name !== undefined || quoted)) {
      plain = false;
      quoted = !quoted;
    } else if (quoted) continue;
    else if (code === SEMICOLON) break;
    else if (code === EQUALS && name === undefined) {
      name = text.slice(from, at).trim();
      from = at + 1;
    }
  }
  const written = text.slice(from, at).trim();
  return { name, value: plain ? written : unquote(written), next: at + 1 };
}

function unquote(text: string): string {
  return text.replace(/\\([^])|"/g, '$1').replace(/\\$/, '');
}
