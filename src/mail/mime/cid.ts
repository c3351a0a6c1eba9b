import { percentDecoded } from '../../base/form-pairs.ts';
import { decodeEntities } from '../../base/html.ts';
import type { Text } from '../message.ts';

// How HTML refers to other parts of its message: by Content-ID (RFC 2392), or by Content-Location (RFC 2557).

/** An id as it is compared: some software encodes it, changes its case, or puts blanks around it. */
export function toCidKey(id: string): string {
  return `cid:${decoded(id)
    .replace(/[\s<>]/g, '')
    .toLowerCase()}`;
}

/** A location as it is compared. */
export function toLocationKey(location: string): string {
  return decoded(location).replace(/\s/g, '');
}

/** Characters of an id or a location: those of a line (RFC 5322 section 2.1.1). Longer ones are no reference. */
const REFERENCE = /(?:\bcid:|\b(?:src|background|href)\s{0,20}=\s{0,20}["']?|\burl\(\s{0,20}["']?)([^"'<>]{1,998})/gi;

/** Which of the wanted keys an HTML text refers to; of very many references the first ones count. */
export function referencesIn(html: Text, wanted: ReadonlySet<string>): ReadonlySet<string> {
  const found = new Set<string>();
  let left = MAX_REFERENCES;
  const look = (text: string): void => {
    for (const match of text.matchAll(REFERENCE)) {
      if (left-- <= 0) return;
      for (const key of keysOf(match)) if (wanted.has(key)) found.add(key);
    }
  };
  if (typeof html === 'string') look(html);
  else {
    // A reference cut between two pieces is examined with the second.
    let end = '';
    for (const piece of html()) {
      look(end + piece);
      end = piece.slice(-OVERLAP);
    }
  }
  return found;
}

/** The keys that a reference may mean: without quotes, a blank or a bracket ends it. */
function keysOf([whole, written = '']: readonly string[]): string[] {
  const isCid = /^cid:/i.test(whole ?? '');
  return [written, written.split(/\)/, 1)[0] ?? '', written.trim().split(/[\s)]/, 1)[0] ?? ''].map((address) => {
    const [, id] = /^\s*cid:(.*)$/is.exec(address) ?? [];
    return id !== undefined || isCid ? toCidKey(id ?? address) : toLocationKey(address);
  });
}

const OVERLAP = 1100;
/** References that are examined; ten times as many as a message may have parts. */
const MAX_REFERENCES = 10_000;

/** Decodes the escapes of URLs and of HTML that occur in addresses. */
const decoded = (address: string): string => percentDecoded(decodeEntities(address));
