import { MailParser, type AddressObject, type AttachmentStream, type EmailAddress, type Headers, type MessageText } from 'mailparser';
import type { FilePart, Mailbox, Parsed } from '../../src/mail/parsed.ts';
import type { Part } from '../../src/mail/structure.ts';

// The defaults of these convert between HTML and text, which takes seconds for nested elements.
// An embedded message stays a file: what is in it was not sent to our recipient, and its text is not this message's text.
const OPTIONS = {
  skipHtmlToText: true, skipTextToHtml: true, skipTextLinks: true, skipImageLinks: true,
  keepDeliveryStatus: true, ignoreEmbedded: true,
};
const SLICE = 64 * 1024;

/** What mailparser 3.9.31 (pinned) holds and does not declare: its nodes know the parts that its events leave out. */
interface Inside { createNode(mime: MimeNode): TreeNode }
interface MimeNode { flowed: boolean; encoding: string | false }
interface TreeNode {
  readonly contentType?: string | false;
  readonly isAttachment?: boolean;
  readonly disposition?: string;
  readonly textContent?: string;
  readonly parent?: TreeNode;
}
interface Seen { readonly node: TreeNode; readonly flowed: boolean; readonly base64: boolean }

/** A whole message as mailparser reads it: what our own reading is held against. */
export async function parseWithMailparser(bytes: Buffer, root: Part): Promise<Parsed> {
  const parser = new MailParser(OPTIONS);
  const seen = watchNodes(parser);
  let headers: Headers = new Map();
  const files: FilePart[] = [];
  parser.on('headers', (found: Headers) => { headers = found; });
  parser.on('data', (data: AttachmentStream | MessageText) => {
    if (data.type === 'attachment') collect(data, files);
  });
  await run(parser, bytes);
  return toParsed(root, headers, seen, withDeclaredTypes(files, seen));
}

/** Notes every node that the parser makes, and keeps it from unwrapping flowed text, which it does without regard to quoting. */
function watchNodes(parser: MailParser): Seen[] {
  const seen: Seen[] = [];
  // The types of the package leave `createNode` out; there is no other way to learn which part a text came from.
  const inside = parser as unknown as Inside;
  const create = inside.createNode;
  inside.createNode = (mime) => {
    const node = create.call(parser, mime);
    seen.push({ node, flowed: mime.flowed, base64: mime.encoding === 'base64' });
    mime.flowed = false;
    return node;
  };
  return seen;
}

function run(parser: MailParser, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    let at = 0;
    const feed = (): void => {
      while (at < bytes.length) {
        const slice = bytes.subarray(at, at + SLICE);
        at += slice.length;
        if (!parser.write(slice)) { parser.once('drain', feed); return; }
      }
      parser.end();
    };
    parser.once('end', resolve);
    parser.on('error', reject);
    feed();
  });
}

function collect(data: AttachmentStream, files: FilePart[]): void {
  const chunks: Uint8Array[] = [];
  data.content.on('data', (chunk: Uint8Array) => chunks.push(chunk));
  data.content.on('end', () => data.release());
  files.push({
    name: data.filename ?? '',
    type: data.contentType,
    contentId: data.cid ? data.cid : null,
    disposition: data.contentDisposition ?? null,
    content: { kind: 'bytes', chunks },
  });
}

/** mailparser guesses the type of application/octet-stream by the name; the payload says what the sender said. */
function withDeclaredTypes(files: readonly FilePart[], seen: readonly Seen[]): FilePart[] {
  const nodes = seen.filter(({ node }) => node.isAttachment === true);
  return files.map((file, i) => ({ ...file, type: nodes[i]?.node.contentType || file.type }));
}

function toParsed(root: Part, headers: Headers, seen: readonly Seen[], files: readonly FilePart[]): Parsed {
  const texts = seen.filter(({ node }) => node.contentType === 'text/plain' && isText(node));
  const html = seen.find(({ node }) => node.contentType === 'text/html' && isText(node));
  const subject = headers.get('subject');
  return {
    fields: root.fields,
    subject: typeof subject === 'string' ? subject : '',
    from: mailboxes(headers.get('from'))[0],
    to: mailboxes(headers.get('to')),
    cc: !root.fields.some(({ name }) => name.toLowerCase() === 'cc') ? undefined : mailboxes(headers.get('cc')),
    text: texts.length === 0 ? undefined : texts.map(textOf).join('\n'),
    textFlowed: texts[0]?.flowed ?? false,
    html: html === undefined ? undefined : textOf(html),
    files,
  };
}

function isText(node: TreeNode): boolean {
  return node.isAttachment !== true && node.textContent !== undefined;
}

/** The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always shown it. */
function textOf({ node, base64 }: Seen): string {
  const text = node.textContent ?? '';
  return node.parent === undefined || base64 || text === '' ? text : `${text}\n`;
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
