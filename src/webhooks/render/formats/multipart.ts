import { randomBytes } from 'node:crypto';
import type { FilePart, Text } from '../../../mail/message.ts';
import { createNames, toFileName } from '../../../mail/mime/filename.ts';
import { percentDecodedBytes } from '../../../mail/mime/headers.ts';
import { additionsOf, type InboundEvent } from '../payload.ts';
import { decodedPieces, type Piece, type Plain, sizeOfContent } from '../pieces.ts';
import type { Written } from './mail.ts';

/** A field of a form. The value is text, or pieces of UTF-8. */
export interface FormField {
  readonly name: string;
  readonly value: Text | Iterable<Plain>;
}

interface FormFile {
  readonly name: string;
  readonly fileName: string;
  readonly file: FilePart;
}

/** Gives every file a unique name, because consumers keep them in one folder. */
export function toFormFiles(files: readonly FilePart[], nameOf: (number: number) => string): FormFile[] {
  const names = createNames();
  const inPost = files.filter(({ link }) => link === undefined);
  return inPost.map((file, i) => ({
    name: nameOf(i + 1),
    fileName: names.take(toPlainName(file.name), file.type),
    file,
  }));
}

/**
 * The field for the files whose content is not in the post, as Mailgun lists those of stored messages; empty if there
 * are none.
 */
export function linkField(name: string, files: readonly FilePart[]): FormField[] {
  const away = files.filter(({ link }) => link !== undefined);
  const list = away.map(({ name: fileName, type, content, contentId, link }) => ({
    name: toFileName(fileName),
    'content-type': type,
    size: sizeOfContent(content),
    ...(contentId !== null && { 'content-id': contentId }),
    ...(typeof link === 'string' && { url: link }),
  }));
  return away.length === 0 ? [] : [{ name, value: JSON.stringify(list) }];
}

/**
 * Our additions to the forms of others: texts unchanged, everything else as JSON. A message without a thread has no
 * field.
 */
export const additionFields = (inbound: InboundEvent): FormField[] =>
  additionsOf(inbound)
    .filter(([name, value]) => name !== 'thread' || value !== null)
    .map(([name, value]) => ({ name, value: typeof value === 'string' ? value : JSON.stringify(value) }));

/** A form as multipart/form-data (RFC 7578). The boundary is unpredictable. */
export function multipart(fields: readonly FormField[], files: readonly FormFile[] = []): Written {
  const boundary = `postern-${randomBytes(20).toString('hex')}`;
  return { type: `multipart/form-data; boundary=${boundary}`, pieces: pieces(boundary, fields, files) };
}

function* pieces(boundary: string, fields: readonly FormField[], files: readonly FormFile[]): Iterable<Piece | Plain> {
  for (const { name, value } of fields) {
    yield `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(name)}"\r\n\r\n`;
    if (typeof value === 'string') yield value.toWellFormed();
    else if (typeof value === 'function') for (const text of value()) yield text.toWellFormed();
    else yield* value;
    yield '\r\n';
  }
  for (const { name, fileName, file } of files) {
    const disposition = `form-data; name="${quoted(name)}"; filename="${quoted(fileName)}"`;
    yield `--${boundary}\r\nContent-Disposition: ${disposition}\r\nContent-Type: ${typeOf(file)}\r\n\r\n`;
    yield* decodedPieces(file.content);
    yield '\r\n';
  }
  yield `--${boundary}--\r\n`;
}

/**
 * A file name that every parser reads alike. Rack, and with it Rails, decodes `%XX`, which must not yield a path or a
 * line end, and reads `; name=` in it as a parameter, which would let a file replace a field.
 */
function toPlainName(name: string): string {
  const plain = toFileName(name);
  const decoded = percentDecodedBytes(plain).toString();
  const isSame = toFileName(decoded) === decoded && !decoded.includes('"');
  return (isSame ? plain : plain.replace(/%(?=[0-9a-f]{2})/gi, '_')).replace(/;(?=.*=)/g, ',');
}

/** Escapes quotes as browsers do (HTML, section 4.10.21.8); other characters that could end the value are replaced. */
const quoted = (name: string): string =>
  name
    .toWellFormed()
    .replaceAll('"', '%22')
    .replace(/[\p{Cc}\u2028\u2029\\]/gu, '_');

/** An invalid declared type could end the header. */
const typeOf = ({ type }: FilePart): string =>
  /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/.test(type) ? type : 'application/octet-stream';
