import { expect } from 'chai';
import { type FormatName, MANDRILL } from '../../../src/inbound/formats.ts';
import { withHeader } from '../../../src/mail/mime/header-section.ts';
import { listParts, partBytes } from '../../../src/mail/mime/parts.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { bytesOf, eventOf, type FileRecord, renderJob } from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';
import { randomMessage } from '../../support/mime-random.ts';
import { randomFrom } from '../../support/random-text.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';

/** A field of a post that has content of a message. */
interface Field {
  readonly name: string;
  readonly bytes: Buffer;
}

const field = (name: string, content: string | null | undefined, encoding: BufferEncoding = 'utf8'): Field[] =>
  content === undefined || content === null || content === '' ? [] : [{ name, bytes: Buffer.from(content, encoding) }];

const filesOf = (name: string, files: readonly string[]): Field[] =>
  files.flatMap((content, i) => field(`${name} ${i + 1}`, content, 'base64'));

const recordsOf = (name: string, records: Readonly<Record<string, FileRecord>> = {}): Field[] =>
  Object.values(records).flatMap(({ content, base64 }, i) =>
    field(`${name} ${i + 1}`, content, base64 === false ? 'utf8' : 'base64'),
  );

const JSON_FIELDS: Partial<Record<FormatName, (post: any) => Field[]>> = {
  json: ({ text, html, attachments }) => [
    ...field('text', text),
    ...field('html', html),
    ...filesOf(
      'file',
      attachments.map(({ content }: any) => content),
    ),
  ],
  postmark: ({ TextBody, HtmlBody, Attachments }) => [
    ...field('text', TextBody),
    ...field('html', HtmlBody),
    ...filesOf(
      'file',
      Attachments.map(({ Content }: any) => Content),
    ),
  ],
  cloudmailin: ({ plain, html, attachments }) => [
    ...field('text', plain),
    ...field('html', html),
    ...filesOf(
      'file',
      attachments.map(({ content }: any) => content),
    ),
  ],
};
const FORM_TEXTS: Partial<Record<FormatName, readonly string[]>> = {
  mailgun: ['body-plain', 'body-html'],
  sendgrid: ['text', 'html'],
};
const FORMATS: readonly FormatName[] = ['mandrill', 'json', 'postmark', 'cloudmailin', 'mailgun', 'sendgrid'];

describe('every part of a message', function () {
  this.timeout(60_000);
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer());
  });
  after(() => renderer.stop());

  async function fieldsIn(format: FormatName, raw: Buffer): Promise<Field[]> {
    const style = { ...MANDRILL, format, raw: false };
    const { body, headers, parseError } = await renderer.render(renderJob(raw, { style }));
    if (parseError !== null) throw new Error(parseError);
    if (format === 'mandrill') {
      const { msg } = await eventOf(body);
      const files = [...recordsOf('attachment', msg.attachments), ...recordsOf('image', msg.images)];
      return [...field('text', msg.text), ...field('html', msg.html), ...files];
    }
    const bytes = await bytesOf(body);
    const fromJson = JSON_FIELDS[format];
    if (fromJson) return fromJson(JSON.parse(bytes.toString()));
    const type = headers['Content-Type'] ?? '';
    const form = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
    const files: Field[] = [];
    for (const [name, value] of form)
      if (typeof value !== 'string') files.push({ name, bytes: Buffer.from(await value.arrayBuffer()) });
    return [...(FORM_TEXTS[format] ?? []).flatMap((name) => field(name, String(form.get(name) ?? ''))), ...files];
  }

  /** Where the marker of a leaf is, in words; a file has to have all of its bytes. */
  function foundIn(fields: readonly Field[], { marker, content }: { marker: string; content: Buffer }): string[] {
    return fields.flatMap(({ name, bytes }) => {
      const times = bytes.toString('latin1').split(marker).length - 1;
      const isText = /^(?:text|html|body-plain|body-html)$/.test(name);
      const kind = isText || bytes.equals(content) ? name.replace(/[ \d]+$/, '') : `${name}, of other bytes`;
      return Array.from({ length: times }, () => kind);
    });
  }

  for (const isSound of [true, false])
    it(`of ${isSound ? 'sound' : 'odd'} messages is in one field of every format, and in the list of parts`, async () => {
      const seen: Record<string, number> = {};
      for (let seed = 1; seed <= 250; seed++) {
        const { bytes, leaves } = randomMessage(randomFrom(seed), { isSound });
        for (const format of FORMATS) {
          const fields = await fieldsIn(format, bytes);
          for (const leaf of leaves) {
            const found = foundIn(fields, leaf);
            if (found.length !== 1 || found[0]?.endsWith('bytes'))
              throw new Error(`${format}, seed ${seed}: ${leaf.marker} is in: ${found}\n${bytes}`);
            seen[found[0] ?? ''] = (seen[found[0] ?? ''] ?? 0) + 1;
          }
        }
        const { root } = scanStructure(withHeader(bytes));
        if (!root) throw new Error(`seed ${seed} is not parsed`);
        const listed = listParts(bytes, root).map((_, i) => partBytes(bytes, root, i + 1) ?? Buffer.alloc(0));
        for (const { content } of leaves)
          expect(listed.filter((part) => part.equals(content)).length, `seed ${seed}: ${content}`).to.equal(1);
      }
      for (const kind of ['text', 'html', 'attachment', 'image']) expect(seen[kind], kind).to.be.above(40);
    });

  it('is kept for messages of common software', async () => {
    for (const [name, { bytes }] of Object.entries(CORPUS)) {
      const { root } = scanStructure(withHeader(bytes));
      if (!root) throw new Error(`${name} is not parsed`);
      const fields = await fieldsIn('mandrill', bytes);
      for (const [i, { type }] of listParts(bytes, root).entries()) {
        const content =
          partBytes(bytes, root, i + 1)
            ?.toString('latin1')
            .trim() ?? '';
        const words = /^[\x20-\x7e]+$/m.exec(content)?.[0].trim() ?? '';
        if (words === '') continue;
        expect(
          fields.some(({ bytes }) => bytes.toString('latin1').includes(words)),
          `${name}: ${type}`,
        ).to.equal(true);
      }
    }
  });
});
