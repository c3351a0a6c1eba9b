import { MailParser, type AddressObject, type EmailAddress, type Headers } from 'mailparser';
import type { HeaderField } from './headers.ts';
import { readWithLibrary } from './library.ts';
import type { Addressing, Mailbox, Parsed } from './parsed.ts';
import { scanStructure, type Part, type Scan } from './structure.ts';
import { walkAddresses, walkBody, walkSubject } from './walk.ts';

export type { Scan as Scanned } from './structure.ts';

/**
 * The first look at the raw bytes of a message: where its parts are, or which cap it breaks (then nothing may parse
 * it).
 */
export function scanMessage(bytes: Buffer): Scan {
  return scanStructure(bytes);
}

/**
 * Parses the raw bytes of a message that was scanned. The walk reads the common forms; a message that it declines
 * mailparser reads as a whole (docs/decisions/0018). Throws when the parser fails.
 */
export async function parseMessage(bytes: Buffer, root: Part): Promise<Parsed> {
  const body = walkBody(bytes, root) ?? await readWithLibrary(bytes);
  const addresses = walkAddresses(root.fields) ?? await readAddresses(root.fields);
  return { ...addresses, subject: walkSubject(root.fields), ...body, fields: root.fields };
}

// The defaults of these convert between HTML and text, which takes seconds for nested elements.
const OPTIONS = { skipHtmlToText: true, skipTextToHtml: true, skipTextLinks: true, skipImageLinks: true };
const ADDRESSES = /^(?:from|to|cc)$/i;

async function readAddresses(fields: readonly HeaderField[]): Promise<Omit<Addressing, 'subject'>> {
  const wanted = fields.filter(({ name }) => ADDRESSES.test(name));
  const { headers } = await readHeader(wanted);
  return {
    from: mailboxes(headers.get('from'))[0],
    to: mailboxes(headers.get('to')),
    cc: wanted.some(({ name }) => name.toLowerCase() === 'cc') ? mailboxes(headers.get('cc')) : undefined,
  };
}

/** Has mailparser read a header without a body. */
function readHeader(fields: readonly HeaderField[]): Promise<{ readonly headers: Headers }> {
  return new Promise((resolve, reject) => {
    const parser = new MailParser(OPTIONS);
    let headers: Headers = new Map();
    parser.on('headers', (found: Headers) => { headers = found; });
    parser.on('data', () => undefined);
    parser.on('error', reject);
    parser.once('end', () => resolve({ headers }));
    parser.end(`${fields.map(({ name, value }) => `${name}: ${value}\r\n`).join('')}\r\n`, 'utf8');
  });
}

function mailboxes(value: unknown): Mailbox[] {
  const objects = Array.isArray(value) ? value : [value];
  return objects.filter(isAddressObject).flatMap((object) => flatten(object.value));
}

function isAddressObject(value: unknown): value is AddressObject {
  return typeof value === 'object' && value !== null && 'value' in value && Array.isArray(value.value);
}

/** The members of groups stand beside the others; what has no address is nobody. */
function flatten(addresses: readonly EmailAddress[]): Mailbox[] {
  const found: Mailbox[] = [];
  for (const { address, name, group } of addresses) {
    if (group !== undefined) found.push(...flatten(group));
    else if (address !== undefined && address !== '') found.push({ address, name: name === '' ? null : name });
  }
  return found;
}
