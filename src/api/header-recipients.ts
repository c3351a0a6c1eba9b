/**
 * The recipients that a document names itself: the addresses of To, Cc and Bcc (RFC 5322 section 3.6.3).
 * Reads the header block once and each list once: no input takes longer than its length.
 */

/** As much header as mail is allowed anywhere here; what lies beyond is not looked at. */
const MAX_HEADER_CHARS = 262_144;

/** A field of the header block: its lower-case name, its lines as they stand, and its value unfolded. */
interface Field { readonly name: string; readonly lines: string; readonly value: string }

/** The addresses of To, Cc and Bcc in their order, as written between the angle brackets; at most `max` of them. */
export function headerRecipients(document: string, max: number): string[] {
  const found: string[] = [];
  for (const field of fieldsOf(headerOf(document))) {
    if (!['to', 'cc', 'bcc'].includes(field.name)) continue;
    for (const address of addressesOf(field.value)) {
      if (found.length >= max) return found;
      found.push(address);
    }
  }
  return found;
}

/** The document without its Bcc fields. */
export function withoutBcc(document: string): string {
  const header = headerOf(document);
  if (!/^bcc[ \t]*:/im.test(header)) return document;
  const kept = fieldsOf(header).filter((field) => field.name !== 'bcc').map((field) => field.lines).join('');
  return kept + document.slice(header.length);
}

/** Up to the empty line, line ends included. Line ends are CRLF. */
function headerOf(document: string): string {
  if (document.startsWith('\r\n')) return '';
  const end = document.slice(0, MAX_HEADER_CHARS).indexOf('\r\n\r\n');
  return end >= 0 ? document.slice(0, end + 2) : document.slice(0, document.length <= MAX_HEADER_CHARS ? undefined : document.lastIndexOf('\r\n', MAX_HEADER_CHARS) + 2);
}

function fieldsOf(header: string): Field[] {
  const fields: { name: string; lines: string[] }[] = [];
  for (const line of header.split(/(?<=\r\n)/)) {
    const last = fields.at(-1);
    if (last && /^[ \t]/.test(line)) last.lines.push(line);
    else fields.push({ name: line.slice(0, Math.max(0, line.indexOf(':'))).trimEnd().toLowerCase(), lines: [line] });
  }
  return fields.map(({ name, lines }) => {
    const text = lines.join('');
    return { name, lines: text, value: text.slice(text.indexOf(':') + 1).replaceAll('\r\n', '') };
  });
}

/** The addresses of a list: display names, comments and group names are left out (RFC 5322 section 3.4). */
function addressesOf(list: string): string[] {
  const found: string[] = [];
  let bare = ''; // what stands outside angle brackets and comments
  let angle: string | undefined; // what stands inside angle brackets
  const settle = () => {
    // A route in front of the address (`<@a,@b:c@d>`) is obsolete and says nothing (RFC 5322 section 4.4).
    const address = (angle?.replace(/^@[^:]*:/, '') ?? bare).trim();
    if (address !== '') found.push(address);
    bare = '';
    angle = undefined;
  };
  for (let at = 0; at < list.length; at++) {
    const c = list.charAt(at);
    if (c === '(') at = endOfComment(list, at);
    else if (c === '<') {
      const end = endOfAngle(list, at + 1);
      angle = list.slice(at + 1, end);
      at = end;
    } else if (c === '"') {
      const end = endOfQuote(list, at + 1);
      bare += list.slice(at, end + 1);
      at = end;
    } else if (c === ',' || c === ';') settle();
    else if (c === ':') bare = ''; // the name of a group
    else if (angle === undefined) bare += c;
  }
  settle();
  return found;
}

/** The closing quote, or the last character. */
function endOfQuote(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    if (text.charAt(at) === '\\') at++;
    else if (text.charAt(at) === '"') return at;
  }
  return text.length;
}

function endOfAngle(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    if (text.charAt(at) === '"') at = endOfQuote(text, at + 1);
    else if (text.charAt(at) === '>') return at;
  }
  return text.length;
}

/** Comments nest; they are counted, not called. */
function endOfComment(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    const c = text.charAt(at);
    if (c === '\\') at++;
    else if (c === '(') depth++;
    else if (c === ')' && --depth === 0) return at;
  }
  return text.length;
}
