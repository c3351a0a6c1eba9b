import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { createNames, toFileName } from '../../mail/filename.ts';
import { type HeaderField, toTitleCase } from '../../mail/headers.ts';
import type { Content, FilePart, Parsed, Text } from '../../mail/parsed.ts';

// A message in its pieces, as records show it.

const file = { name: z.string(), type: z.string(), content: z.string() };

export const attachmentRecord = z
  .object({ ...file, binary: z.boolean() })
  .meta({ description: 'name, type and content; `binary`: the content is base64, else it is text' });
export const imageRecord = z
  .object(file)
  .meta({ description: 'an image of the HTML: name (its Content-ID), type, content in base64' });
export const headersRecord = z
  .record(z.string(), z.union([z.string(), z.array(z.string())]))
  .meta({ description: 'the header; a field that comes several times is an array' });

export const parsedRecord = z
  .object({
    subject: z.string(),
    from_email: z.string().nullable(),
    from_name: z.string().nullable(),
    to: z.array(z.object({ email: z.string(), name: z.string().nullable() })),
    headers: headersRecord,
    text: z.string().nullable(),
    html: z.string().nullable(),
    attachments: z.array(attachmentRecord),
    images: z.array(imageRecord),
  })
  .meta({ title: 'parsed message' });

/** What parsing found, as a record. */
export function toParsedRecord(parsed: Parsed): z.input<typeof parsedRecord> {
  const names = createNames();
  const images = parsed.files.filter(isImage);
  return {
    subject: parsed.subject,
    from_email: parsed.from?.address ?? null,
    from_name: parsed.from?.name ?? null,
    to: parsed.to.map(({ address, name }) => ({ email: address, name })),
    headers: toHeaders(parsed.fields),
    text: parsed.text === undefined ? null : whole(parsed.text),
    html: parsed.html === undefined ? null : whole(parsed.html),
    attachments: parsed.files
      .filter((one) => !images.includes(one))
      .map((one) => ({ name: names.take(toFileName(one.name), one.type), type: one.type, ...contentOf(one) })),
    images: images.map((one) => ({
      name: one.contentId ?? toFileName(one.name),
      type: one.type,
      content: base64Of(one.content),
    })),
  };
}

function whole(text: Text): string {
  return typeof text === 'string' ? text : [...text()].join('');
}

/** By name as written titles; without a prototype, so that a field can have any name. */
function toHeaders(fields: readonly HeaderField[]): Record<string, string | string[]> {
  const found: Record<string, string | string[]> = Object.create(null);
  for (const { name, value } of fields) {
    const title = toTitleCase(name);
    const known = found[title];
    if (known === undefined) found[title] = value;
    else if (typeof known === 'string') found[title] = [known, value];
    else known.push(value);
  }
  return found;
}

/** An image that belongs into the text, not beside it. */
function isImage({ type, disposition, contentId }: FilePart): boolean {
  return type.startsWith('image/') && disposition !== 'attachment' && (contentId !== null || disposition === 'inline');
}

function contentOf({ content, type }: FilePart): { binary: boolean; content: string } {
  const bytes = bytesOf(content);
  if (type.startsWith('text/') && isUtf8(bytes)) return { binary: false, content: bytes.toString('utf8') };
  return { binary: true, content: bytes.toString('base64') };
}

function base64Of(content: Content): string {
  return bytesOf(content).toString('base64');
}

function bytesOf(content: Content): Buffer {
  return content.kind === 'bytes'
    ? Buffer.concat(content.chunks)
    : Buffer.from(Buffer.from(content.lines).toString('latin1'), 'base64');
}
