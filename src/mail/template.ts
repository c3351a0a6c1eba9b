// Names and limits of templates. What a template holds is filled in by regions.ts and merge/.

/**
 * Bytes of the code and of the text part of a template. MongoDB takes documents of 16 MiB, and a template is in its row twice: as a
 * draft and as published.
 */
export const MAX_CODE_BYTES = 5_000_000;
export const MAX_TEXT_BYTES = 2_000_000;

/** Longest name, in characters; a slug is never longer than what its name becomes under normalization. */
export const MAX_TEMPLATE_NAME = 255;

// Controls, what is invisible or turns the order of text around, private use, unassigned, and the two line ends of Unicode:
// none can be typed twice alike, and some break lines in a log.
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/u;
const NOT_IN_SLUG = /[^\p{L}\p{M}\p{N}]+/gu;

/**
 * The code name that belongs to a name: lower case, every run of other characters than letters and digits one hyphen.
 * `slugOf(slugOf(x)) === slugOf(x)`, so a name can never be another template's slug without having the same slug itself.
 */
export function slugOf(name: string): string {
  // Twice, because lower-casing may leave what the normal form would put together.
  const folded = name.normalize('NFKC').toLowerCase().normalize('NFKC').toLowerCase();
  return folded.replace(NOT_IN_SLUG, '-').replace(/^-/, '').replace(/-$/, '');
}

/** Why a template cannot have this name; undefined when it can. */
export function nameFault(name: string): string | undefined {
  if (UNSAFE.test(name)) return 'A template name has no line ends, control characters and invisible characters';
  if (slugOf(name) === '') return 'A template name has at least one letter or digit';
  return undefined;
}
