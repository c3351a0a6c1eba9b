import type { Mailbox } from './parsed.ts';
import { decodeWords } from './words.ts';

// `Some One <a@b.example>`, `"One, Some" <a@b.example>`, `<a@b.example>`: what nearly every header holds.
const NAMED = /^(?:"([^"@]*)" ?|([^"<>@]*))<([^\s"<>@]+@[^\s"<>@]+)>$/;
const BARE = /^[^\s"<>@]+@[^\s"<>@]+$/;
// Groups, comments, escapes, encoded or internationalised addresses and runs of white space are for the library.
const UNCOMMON = /[()\\:;\t]| {2}|xn--/i;

/** Reads an address list of the common forms; undefined when there is something that the library knows better. */
export function parseMailboxes(value: string): Mailbox[] | undefined {
  if (UNCOMMON.test(value)) return undefined;
  const found: Mailbox[] = [];
  for (const piece of splitList(value)) {
    const mailbox = parseMailbox(piece.trim());
    if (mailbox === undefined) return undefined;
    found.push(mailbox);
  }
  return found;
}

function parseMailbox(text: string): Mailbox | undefined {
  if (BARE.test(text)) return text.includes('=?') ? undefined : { address: text, name: null };
  const match = NAMED.exec(text);
  if (match === null) return undefined;
  const [, quotedName, phrase = '', address = ''] = match;
  const name = decodeWords((quotedName ?? phrase).trim());
  if (name === undefined || address.includes('=?')) return undefined;
  return { address, name: name === '' ? null : name };
}

function* splitList(value: string): Iterable<string> {
  if (!value.includes(',')) { yield value; return; }
  let from = 0;
  let quoted = false;
  for (let at = 0; at < value.length; at++) {
    const char = value.charCodeAt(at);
    if (char === 0x22) quoted = !quoted;
    else if (char === 0x2c && !quoted) {
      yield value.slice(from, at);
      from = at + 1;
    }
  }
  yield value.slice(from);
}
