import { Transform } from 'node:stream';
import { type AttachmentStream, MailParser, type MessageText } from 'mailparser';
import { decoderOfText } from './charset.ts';
import { decodeWords } from './headers.ts';
import { type Body, bodyOf, type FilePart } from './message.ts';
import { isMediaType } from './structure.ts';
import { decodeTransfer, type TransferEncoding, toTransferEncoding } from './transfer.ts';

/** A part in mailparser 3.9.31 (pinned); its type declarations lack these fields. */
interface MimeNode {
  readonly parentNode: { readonly contentType: string | false } | false;
  readonly headers: { getFirst(name: string): string };
  readonly encoding: string | false;
  contentType: string | false;
  charset: string | false;
  filename: string | false;
  flowed: boolean;
  readonly libmime: { parseHeaderValue(value: string): { readonly params: Readonly<Record<string, string>> } };
  getDecoder(): Transform;
}

interface TreeNode {
  readonly contentType: string | false;
  readonly isAttachment?: boolean;
  readonly textContent?: string;
  readonly parent?: TreeNode;
}

declare module 'mailparser' {
  interface MailParser {
    /** Called for each part before its body is read. */
    createNode(mime: MimeNode): TreeNode;
    getDecoder(): { decodeStream(charset: string): Transform };
  }
}

interface PartState {
  readonly node: TreeNode;
  readonly flowed: boolean;
  readonly encoding: TransferEncoding;
}

// The conversions between HTML and text, enabled by default, take seconds for nested elements. An embedded message
// stays a file: it was not sent to our recipient, and its text is not the text of this message.
const OPTIONS = {
  skipHtmlToText: true,
  skipTextToHtml: true,
  skipTextLinks: true,
  skipImageLinks: true,
  keepDeliveryStatus: true,
  ignoreEmbedded: true,
};
const SLICE = 64 * 1024;
/** The charset name for texts without a declared one. */
const UNLABELLED = 'x-unlabelled';
/** Encodings that mailparser does not support, or decodes in quadratic time. */
const DECODED_BY_US: ReadonlySet<TransferEncoding> = new Set<TransferEncoding>(['uuencode', 'quoted-printable']);

/**
 * mailparser with our own decoders, which are safe with untrusted input: its own take 19 s for 100 KB of blanks and
 * support fewer charsets.
 */
class Parser extends MailParser {
  /** All parts found, in order. */
  readonly seen: PartState[] = [];

  /** Called by the constructor of mailparser, before the fields exist. */
  override getDecoder() {
    return { decodeStream: (charset: string) => decodeAtEnd((bytes) => decodeText(charset, bytes)) };
  }

  /** Makes mailparser read a part in the same way as `walkBody`. */
  override createNode(mime: MimeNode): TreeNode {
    const { flowed } = mime;
    const encoding = toTransferEncoding(mime.encoding || '');
    // Flowed text is left as written; mailparser unwraps it without regard to quoting.
    mime.flowed = false;
    if (mime.charset === false || /^(?:us-?)?ascii$/i.test(mime.charset)) mime.charset = UNLABELLED;
    // RFC 2046 section 5.1.5.
    const inDigest = mime.parentNode && mime.parentNode.contentType === 'multipart/digest';
    if (inDigest && mime.headers.getFirst('content-type') === '') mime.contentType = 'message/rfc822';
    mime.filename = fileNameOf(mime);
    if (DECODED_BY_US.has(encoding)) mime.getDecoder = () => decodeAtEnd((body) => decodeTransfer(body, encoding));
    const node = super.createNode(mime);
    this.seen.push({ node, flowed, encoding });
    return node;
  }
}

/**
 * Parses the body of a message with mailparser. The message must be within the caps (mail/structure.ts). Throws if
 * parsing fails.
 */
export async function readWithLibrary(bytes: Buffer): Promise<Body> {
  const parser = new Parser(OPTIONS);
  const { seen } = parser;
  const files: FilePart[] = [];
  parser.on('data', (data: AttachmentStream | MessageText) => {
    if (data.type === 'attachment') collectFile(data, files);
  });
  await run(parser, bytes);
  const types = seen.filter(({ node }) => node.isAttachment === true).map(({ node }) => node.contentType);
  const texts = seen.filter(({ node }) => node.contentType === 'text/plain' && isText(node));
  const html = seen.filter(({ node }) => node.contentType === 'text/html' && isText(node));
  return bodyOf({
    texts: texts.map(textOf),
    html: html.map(textOf),
    flowed: texts[0]?.flowed ?? false,
    // mailparser guesses the type of application/octet-stream from the name; the payload has the declared type.
    files: files.map((file, i) => ({ ...file, type: knownType(types[i] || file.type) })),
  });
}

/** mailparser has `false` for a type that it cannot read, or whatever stands there. */
function knownType(type: string | false): string {
  return type !== false && isMediaType(type) ? type : 'application/octet-stream';
}

/** libmime joins the pieces of RFC 2231; encoded words are decoded with our own decoder. */
function fileNameOf({ headers, libmime }: MimeNode): string | false {
  const disposition = libmime.parseHeaderValue(headers.getFirst('content-disposition'));
  const type = libmime.parseHeaderValue(headers.getFirst('content-type'));
  return decodeWords(disposition.params['filename'] || type.params['name'] || '') || false;
}

/** A stream that decodes all its input at the end. */
function decodeAtEnd(decode: (bytes: Buffer) => Buffer): Transform {
  const chunks: Buffer[] = [];
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      done();
    },
    flush(done) {
      done(null, decode(Buffer.concat(chunks)));
    },
  });
}

function decodeText(charset: string, bytes: Buffer): Buffer {
  return Buffer.from(decoderOfText(charset === UNLABELLED ? undefined : charset, () => [bytes])(bytes, true));
}

function run(parser: MailParser, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    let at = 0;
    const feed = (): void => {
      while (at < bytes.length) {
        const slice = bytes.subarray(at, at + SLICE);
        at += slice.length;
        if (!parser.write(slice)) {
          parser.once('drain', feed);
          return;
        }
      }
      parser.end();
    };
    parser.once('end', resolve);
    parser.on('error', reject);
    feed();
  });
}

function collectFile(data: AttachmentStream, files: FilePart[]): void {
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

function isText(node: TreeNode): boolean {
  return node.isAttachment !== true && node.textContent !== undefined;
}

/** The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always included it. */
function textOf({ node, encoding }: PartState): string {
  const text = node.textContent ?? '';
  return node.parent === undefined || encoding === 'base64' || encoding === 'uuencode' || text === ''
    ? text
    : `${text}\n`;
}
