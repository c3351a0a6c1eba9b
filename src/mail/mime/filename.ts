import { frozen } from '../../base/frozen.ts';

// Control and format characters (including bidi ones, which can make "txt.exe" look like "exe.txt"), line separators,
// lone surrogates.
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;
const LONGEST = 200;

const EXTENSIONS: ReadonlyMap<string, string> = new Map([
  ['message/rfc822', '.eml'],
  ['message/delivery-status', '.txt'],
  ['text/plain', '.txt'],
  ['text/html', '.html'],
  ['text/calendar', '.ics'],
  ['text/csv', '.csv'],
  ['text/vcard', '.vcf'],
  ['text/x-vcard', '.vcf'],
  ['image/png', '.png'],
  ['image/jpeg', '.jpg'],
  ['image/gif', '.gif'],
  ['image/webp', '.webp'],
  ['image/svg+xml', '.svg'],
  ['application/pdf', '.pdf'],
  ['application/zip', '.zip'],
  ['application/json', '.json'],
  ['application/pgp-signature', '.asc'],
  ['application/pkcs7-signature', '.p7s'],
  ['application/ics', '.ics'],
]);

/**
 * Makes a file name safe to show and to join to a folder: no paths, control or bidi characters, nor dots and blanks at
 * the end, which Windows drops, so that a name looks like another; empty if nothing is left.
 */
export function toFileName(name: string): string {
  const clean = name.replace(UNSAFE, '');
  const last = withoutEnd(clean.slice(Math.max(clean.lastIndexOf('/'), clean.lastIndexOf('\\')) + 1));
  if (last.length <= LONGEST) return last;
  const { base, extension } = split(last);
  return wellFormed(base.slice(0, LONGEST - Math.min(extension.length, 20)) + extension.slice(0, 20));
}

function withoutEnd(name: string): string {
  const text = name.trim();
  let end = text.length;
  while (end > 0 && /[.\s]/.test(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** Gives every attachment of a message a unique name. */
export function createNames(): { take(wanted: string, type: string): string } {
  const taken = new Set<string>();
  const next = new Map<string, number>();
  return frozen({
    take(wanted, type): string {
      const name = wanted === '' ? `attachment${EXTENSIONS.get(type) ?? ''}` : wanted;
      let own = name;
      // The counter is kept per name, so that a thousand equal names do not cost a million lookups.
      for (let n = next.get(name) ?? 2; taken.has(own); n++) {
        own = numbered(name, n);
        next.set(name, n + 1);
      }
      taken.add(own);
      return own;
    },
  });
}

function numbered(name: string, n: number): string {
  const { base, extension } = split(name);
  return `${base} (${n})${extension}`;
}

function split(name: string): { base: string; extension: string } {
  const dot = name.lastIndexOf('.');
  return dot <= 0 ? { base: name, extension: '' } : { base: name.slice(0, dot), extension: name.slice(dot) };
}

/** Truncation may split a surrogate pair. */
function wellFormed(text: string): string {
  return text.replace(UNSAFE, '');
}
