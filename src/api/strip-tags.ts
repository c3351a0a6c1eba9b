/**
 * The validation rule strip_tags: takes HTML tags and comments out of a text, as PHP's function of that name does.
 * One pass, character by character: no input takes longer than its length.
 */
export function stripTags(text: string): string {
  const kept: string[] = [];
  let from = 0;
  for (;;) {
    const open = nextTag(text, from);
    kept.push(text.slice(from, open));
    if (open === text.length) return kept.join('');
    from = text.startsWith('<!--', open) ? after(text, '-->', open + 4) : endOfTag(text, open + 1);
  }
}

/** The next `<` that begins a tag; one before a space is a sign of comparison and stays. */
function nextTag(text: string, from: number): number {
  for (let at = text.indexOf('<', from); at >= 0; at = text.indexOf('<', at + 1)) {
    if (!/\s/.test(text.charAt(at + 1))) return at;
  }
  return text.length;
}

/** Behind the `>` that ends the tag; a `>` in quotes does not. A tag that never ends takes the rest with it. */
function endOfTag(text: string, from: number): number {
  let quote = '';
  for (let at = from; at < text.length; at++) {
    const c = text.charAt(at);
    if (quote !== '') {
      if (c === quote) quote = '';
    } else if (c === '"' || c === "'") quote = c;
    else if (c === '>') return at + 1;
  }
  return text.length;
}

function after(text: string, mark: string, from: number): number {
  const at = text.indexOf(mark, from);
  return at < 0 ? text.length : at + mark.length;
}
