import type { Field, HeaderSection } from '../header-section.ts';
import type { Form, Signature } from './signature.ts';

/** What signatures are made over, of the fields of one message. */
export interface SignedHeader {
  /** The octets that the signature in `field` was made over (RFC 6376 section 3.7). */
  octets(field: Field, signature: Pick<Signature, 'headerForm' | 'names'>): Buffer;
}

const UNEVEN = /\t| {2}/;
const BARE_LINE_FEED = /(?<!\r)\n/g;

export function createSignedHeader({ text, fields }: Pick<HeaderSection, 'text' | 'fields'>): SignedHeader {
  const byName = new Map<string, Field[]>();
  for (const field of fields) {
    const before = byName.get(field.name);
    if (before) before.push(field);
    else byName.set(field.name, [field]);
  }
  return Object.freeze({
    octets(field: Field, { headerForm, names }: Pick<Signature, 'headerForm' | 'names'>): Buffer {
      const left = new Map<string, Iterator<Field>>();
      const own = toForm(text, field, headerForm);
      let all = '';
      for (const name of names) {
        // Of fields of one name the last comes first; one that is not there counts as nothing (section 5.4.2). No
        // signature covers itself among the others (section 3.5, h=).
        const others = left.get(name) ?? othersThan(field, byName.get(name) ?? []);
        left.set(name, others);
        const { value: signed, done } = others.next();
        if (done !== true) all += `${toForm(text, signed, headerForm)}\r\n`;
      }
      return Buffer.from(all + withoutSignature(own), 'latin1');
    },
  });
}

function othersThan(field: Field, fields: readonly Field[]): Iterator<Field> {
  return fields
    .toReversed()
    .filter((other) => other !== field)
    .values();
}

/** A field without its line end (section 3.4.1 and 3.4.2). */
function toForm(text: string, { name, start, end }: Field, form: Form): string {
  const written = text.slice(start, end).replace(BARE_LINE_FEED, '\r\n');
  const line = written.endsWith('\r\n') ? written.slice(0, -2) : written;
  if (form === 'simple') return line;
  const value = line.slice(line.indexOf(':') + 1).replaceAll('\r\n', '');
  const even = UNEVEN.test(value) ? value.replace(/[ \t]+/g, ' ') : value;
  const from = even.startsWith(' ') ? 1 : 0;
  return `${name}:${even.slice(from, Math.max(from, even.length - (even.endsWith(' ') ? 1 : 0)))}`;
}

/** A signature covers its own field with b= empty; the tag list has no faults, so there is one b. */
function withoutSignature(line: string): string {
  const colon = line.indexOf(':') + 1;
  const pieces = line.slice(colon).split(';');
  const emptied = pieces.map((piece) => {
    const equals = piece.indexOf('=');
    return equals > 0 && piece.slice(0, equals).trim() === 'b' ? piece.slice(0, equals + 1) : piece;
  });
  return line.slice(0, colon) + emptied.join(';');
}
