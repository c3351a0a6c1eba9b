import { MailParser, type AddressObject, type AttachmentStream, type EmailAddress, type Headers, type MessageText } from 'mailparser';
import type { HeaderField } from './headers.ts';
import type { Addressing, FilePart, Mailbox, Parsed } from './parsed.ts';
import { scanStructure, type Part, type Scan } from './structure.ts';
import { walkBody, walkHeader, type WalkedFile } from './walk.ts';

export type { Scan as Scanned } from './structure.ts';

/** The first look at the raw bytes of a message: where its parts are, or which cap it breaks (then nothing may parse it). */
export function scanMessage(bytes: Buffer): Scan {
  return scanStructure(bytes);
}

/**
 * Parses the raw bytes of a message that was scanned. Bodies are read by the walk, and so are headers in the common forms; what is
 * uncommon in a header mailparser reads. Bodies never go through mailparser: a hostile one of 25 MB would cost it gigabytes,
 * and a thread that is out of memory at the wrong moment takes the process with it. Throws when the parser fails.
 */
export async function parseMessage(bytes: Buffer, root: Part): Promise<Parsed> {
  const walked = walkBody(bytes, root);
  const addressing = walkHeader(root.fields) ?? await readAddressing(root.fields);
  const files: FilePart[] = [];
  for (const file of walked.files) files.push(await toFilePart(file));
  return { ...addressing, ...walked, fields: root.fields, files };
}

async function toFilePart({ part, name, ...file }: WalkedFile): Promise<FilePart> {
  return { ...file, name: name ?? await readFileName(part.fields) };
}

// The defaults of these convert between HTML and text, which takes seconds for nested elements.
const OPTIONS = { skipHtmlToText: true, skipTextToHtml: true, skipTextLinks: true, skipImageLinks: true };
const ADDRESSING = /^(?:subject|from|to|cc)$/i;

async function readAddressing(fields: readonly HeaderField[]): Promise<Addressing> {
  const wanted = fields.filter(({ name }) => ADDRESSING.test(name));
  const { headers } = await readHeader(wanted);
  const subject = headers.get('subject');
  return {
    subject: typeof subject === 'string' ? subject : '',
    from: mailboxes(headers.get('from'))[0],
    to: mailboxes(headers.get('to')),
    cc: wanted.some(({ name }) => name.toLowerCase() === 'cc') ? mailboxes(headers.get('cc')) : undefined,
  };
}

/** The name alone is of interest, so whatever the part is, it is shown to the parser as an attachment. */
async function readFileName(fields: readonly HeaderField[]): Promise<string> {
  const type = fields.find(({ name }) => name.toLowerCase() === 'content-type')?.value ?? '';
  const disposition = fields.find(({ name }) => name.toLowerCase() === 'content-disposition')?.value ?? '';
  const { fileName } = await readHeader([
    { name: 'Content-Type', value: type.replace(/^[^;]*/, 'application/octet-stream') },
    { name: 'Content-Disposition', value: disposition.replace(/^[^;]*/, 'attachment') },
  ]);
  return fileName;
}

/** Has mailparser read a header without a body. */
function readHeader(fields: readonly HeaderField[]): Promise<{ readonly headers: Headers; readonly fileName: string }> {
  return new Promise((resolve, reject) => {
    const parser = new MailParser(OPTIONS);
    let headers: Headers = new Map();
    let fileName = '';
    parser.on('headers', (found: Headers) => { headers = found; });
    parser.on('data', (data: AttachmentStream | MessageText) => {
      if (data.type !== 'attachment') return;
      fileName = data.filename ?? '';
      data.content.on('data', () => undefined);
      data.content.on('end', () => data.release());
    });
    parser.on('error', reject);
    parser.once('end', () => resolve({ headers, fileName }));
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
