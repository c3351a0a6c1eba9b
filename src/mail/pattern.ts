/**
 * Route patterns: a glob on the mailbox name. `*` is any run of characters, `?` exactly one; everything else is itself,
 * letters in any case; the whole mailbox must match. No regular expressions: they can be made to take for ever.
 */

/** Longest pattern; a mailbox name has at most 64 characters (RFC 5321 section 4.5.3.1.1). */
export const MAX_PATTERN = 255;

/** Whether `mailbox` matches. Time grows with the product of the two lengths at worst, never faster. */
export function matches(pattern: string, mailbox: string): boolean {
  const glob = [...fold(pattern)];
  const name = [...fold(mailbox)];
  let g = 0;
  let n = 0;
  let star = -1; // the last `*` seen, to come back to with one more character in it
  let resume = 0;
  while (n < name.length) {
    if (glob[g] === '*') {
      star = g++;
      resume = n;
    } else if (g < glob.length && (glob[g] === '?' || glob[g] === name[n])) {
      g++;
      n++;
    } else if (star >= 0) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (glob[g] === '*') g++;
  return g === glob.length;
}

/** Whether the pattern has no wildcard: then it is one mailbox, and wins over all others. */
export function isExact(pattern: string): boolean {
  return !/[*?]/.test(pattern);
}

/** How many characters of the pattern stand for themselves: the more, the more specific it is. */
export function literals(pattern: string): number {
  return [...pattern].filter((c) => c !== '*' && c !== '?').length;
}

/** What a mailbox name is compared by: letters in any case, composed characters in one form. */
export function fold(text: string): string {
  return text.normalize('NFC').toLowerCase();
}
