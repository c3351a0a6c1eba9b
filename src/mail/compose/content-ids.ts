import { percentDecoded } from '../../base/form-pairs.ts';
import { characterOf, decodeEntities } from '../../base/html.ts';

// HTML refers to its pictures as `cid:<name>` (RFC 2392), and their names are any file names. A Content-ID is one word
// of ASCII, so the id of such a picture and the references to it are chosen together.

/** An id that all mail programs compare alike: printable ASCII without delimiters of ids and URLs, in one line. */
const ID = /^[!#$&()*+,./0-9:;=?@A-Z[\]^_`a-z{|}~-]{1,900}$/;
const LONGEST_ID = 900;
/** The characters that an id, and a reference to it, may have anywhere in an HTML text. */
const PLAIN = /^[\w.@+=~-]+$/;
/** People write `<logo.png>` too. */
const AROUND = /^\s*<?|>?\s*$/g;
const LEFT_OUT = /[\p{Cc}<>\s]/gu;

/**
 * The Content-ID of each picture, by their names: the name without blanks and brackets where that is an id of its own,
 * as ever; else what `made` returns for the position of the picture. Undefined for an empty name.
 */
export function contentIds(names: readonly string[], made: (at: number) => string): (string | undefined)[] {
  const taken = new Set<string>();
  const ids = names.map(() => '');
  const take = (form: RegExp, wanted: (name: string, id: string) => boolean) => {
    for (const [at, name] of names.entries()) {
      const id = bare(name);
      if (ids[at] !== '' || taken.has(id) || !form.test(id) || !wanted(name, id)) continue;
      ids[at] = id;
      taken.add(id);
    }
  };
  take(ID, (name, id) => id === name); // `logo1.png` has precedence over `logo 1.png`
  take(ID, (name, id) => id === name.replace(AROUND, ''));
  take(PLAIN, (_, id) => id.length <= LONGEST_ID); // its references are written anew
  return names.map((name, at) => (bare(name) === '' ? undefined : ids[at] || made(at)));
}

const bare = (name: string) => name.replace(LEFT_OUT, '');

/** The end of a reference, by the text in front of it. */
const OPENINGS: readonly { readonly behind: RegExp; readonly end: string }[] = [
  { behind: /"\s*$/, end: '"' },
  { behind: /'\s*$/, end: "'" },
  { behind: /&quot;\s*$/i, end: '&quot;' },
  { behind: /&#0*34;\s*$/, end: '&#34;' },
  { behind: /&(?:apos|#0*39);\s*$/i, end: '&#39;' },
  { behind: /\(\s*$/, end: ')' },
];
const REFERENCE = /\bcid:/gi;
/** Where a reference ends that no quote encloses, as in srcset. */
const WORD = /^[^\s"'<>),]*/;
const UNQUOTED = /^[^\s"'<>]*/;
/** The width or density that follows a URL in srcset. */
const CANDIDATE = /^([\s\S]*?)\s+[\d.]+[wxh]\s*(?:,|$)/;
/** Characters of a reference that are examined: each of a name may be nine in the URL (`%E2%82%AC`). */
const LONGEST = 4096;
const reach = (names: readonly string[]) =>
  Math.min(LONGEST, 64 + 9 * Math.max(0, ...names.map(({ length }) => length)));
/** The limit of examined characters: a base amount, plus some for each of the text. Only hostile HTML needs more. */
const EFFORT = { base: 4_000_000, each: 16 };

/**
 * HTML in which each reference to a picture names its id, however the reference is written: with blanks, entities,
 * percent signs or escapes of CSS, in any attribute, style or comment. Everything else stays as it is; linear.
 */
export function withContentIds(html: string, names: readonly string[], ids: readonly (string | undefined)[]): string {
  const find = finder(names, ids);
  const pieces: string[] = [];
  let kept = 0;
  const longest = reach(names);
  let left = EFFORT.base + EFFORT.each * html.length;
  for (const { index, 0: scheme } of html.matchAll(REFERENCE)) {
    const start = index + scheme.length;
    if (start < kept || left < 0) continue;
    left -= longest;
    for (const end of endsAt(html, index, start, longest)) {
      const written = html.slice(start, end);
      const id = find(written);
      if (id === undefined) continue;
      if (!agrees(written, id)) {
        pieces.push(html.slice(kept, start), PLAIN.test(id) ? id : encodeURIComponent(id));
        kept = end;
      }
      break;
    }
  }
  return pieces.length === 0 ? html : pieces.join('') + html.slice(kept);
}

/** Whether a reference names an id as it is written; programs that decode URLs, and those that do not, must find it. */
function agrees(written: string, id: string): boolean {
  return written === id || (!PLAIN.test(id) && withoutPercent(decodeEntities(written)) === id);
}

/** Where the reference may end, the farthest first: names may contain blanks, commas and parentheses. */
function endsAt(html: string, scheme: number, start: number, longest: number): number[] {
  const before = html.slice(Math.max(0, scheme - 16), scheme);
  const ahead = html.slice(start, start + longest);
  const ends: number[] = [];
  const opening = OPENINGS.find(({ behind }) => behind.test(before));
  const close = opening ? ahead.indexOf(opening.end) : -1;
  if (opening?.end === ')' && close >= 0) {
    const next = ahead.indexOf(')', close + 1); // `url(cid:logo (1).png)`
    if (next >= 0 && /^[^"'<>;]*$/.test(ahead.slice(close, next))) ends.push(start + next);
  }
  if (close >= 0) ends.push(start + close);
  const inside = close >= 0 ? ahead.slice(0, close) : (/^[^"'<>]*/.exec(ahead)?.[0] ?? '');
  const candidate = CANDIDATE.exec(inside)?.[1];
  if (candidate !== undefined) ends.push(start + candidate.length);
  if (close < 0) ends.push(start + (UNQUOTED.exec(ahead)?.[0].length ?? 0));
  ends.push(start + (WORD.exec(ahead)?.[0].length ?? 0));
  return ends;
}

/** Finds the id that a reference means. */
function finder(
  names: readonly string[],
  ids: readonly (string | undefined)[],
): (written: string) => string | undefined {
  const exact = new Map<string, string>();
  const loose = new Map<string, string>();
  for (const [at, name] of names.entries()) {
    const id = ids[at];
    if (id === undefined) continue;
    if (!exact.has(name)) exact.set(name, id);
    const key = looseKey(name);
    if (!loose.has(key) || id === key) loose.set(key, id);
  }
  return (written) => {
    const text = decodeEntities(written);
    const forms = [written, text, withoutPercent(text), withoutEscapes(text), withoutPercent(withoutEscapes(text))];
    for (const form of forms) {
      const id = exact.get(form);
      if (id !== undefined) return id;
    }
    for (const form of forms) {
      const id = loose.get(looseKey(form));
      if (id !== undefined) return id;
    }
    return undefined;
  };
}

const looseKey = (name: string) => bare(name).normalize('NFC');

/** Invalid sequences stay as written: `100%.png`. */
function withoutPercent(text: string): string {
  if (!text.includes('%')) return text;
  return text.replace(/(?:%[0-9a-f]{2})+/gi, percentDecoded);
}

/** Without the escapes of CSS: `my\ logo.png`, `my\20 logo.png`. */
function withoutEscapes(text: string): string {
  if (!text.includes('\\')) return text;
  return text.replace(/\\(?:([0-9a-f]{1,6})\s?|([^\n]))/gi, (whole, hex?: string, char?: string) =>
    hex === undefined ? (char ?? '') : characterOf(Number.parseInt(hex, 16), whole),
  );
}
