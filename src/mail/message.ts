import { MailParser, type AttachmentStream, type Headers, type MessageText } from 'mailparser';
import { correspondentsOf } from './author.ts';
import type { HeaderField } from './headers.ts';
import type { FilePart, Parsed } from './parsed.ts';
import { scanStructure, type Part, type Scan } from './structure.ts';
import { walkBody, walkSubject, type WalkedFile } from './walk.ts';

export type { Scan as Scanned } from './structure.ts';

/** The first look at the raw bytes of a message: where its parts are, or which cap it breaks (then nothing may parse it). */
export function scanMessage(bytes: Buffer): Scan {
  return scanStructure(bytes);
}

/**
 * Parses the raw bytes of a message that was scanned. Bodies are read by the walk, addresses by the one reader of addresses, other
 * fields by the walk in the common forms; what is uncommon in these mailparser reads. Bodies never go through mailparser: a hostile one of 25 MB would cost it gigabytes,
 * and a thread that is out of memory at the wrong moment takes the process with it. Throws when the parser fails.
 */
export async function parseMessage(bytes: Buffer, root: Part): Promise<Parsed> {
  const walked = walkBody(bytes, root);
  const subject = walkSubject(root.fields) ?? await readSubject(root.fields);
  const files: FilePart[] = [];
  for (const file of walked.files) files.push(await toFilePart(file));
  return { ...correspondentsOf(root.fields), subject, ...walked, fields: root.fields, files };
}

async function toFilePart({ part, name, ...file }: WalkedFile): Promise<FilePart> {
  return { ...file, name: name ?? await readFileName(part.fields) };
}

// The defaults of these convert between HTML and text, which takes seconds for nested elements.
const OPTIONS = { skipHtmlToText: true, skipTextToHtml: true, skipTextLinks: true, skipImageLinks: true };

async function readSubject(fields: readonly HeaderField[]): Promise<string> {
  const { headers } = await readHeader(fields.filter(({ name }) => name.toLowerCase() === 'subject'));
  const subject = headers.get('subject');
  return typeof subject === 'string' ? subject : '';
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
