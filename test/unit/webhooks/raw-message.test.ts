import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import PostalMime, { type Attachment } from 'postal-mime';
import type { Body } from '../../../src/queue/delivery.ts';
import { makeKey, signMessage } from '../../support/dns-keys.ts';
import { EIGHT_BIT } from '../../support/eight-bit.ts';
import { crlf, eventOf, type FileRecord, type InboundEvent, renderJob, spooled, TRACE } from '../../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { tempDir } from '../../support/temp.ts';
import { startZone } from '../../support/zone.ts';

type Msg = InboundEvent['msg'];

const lines = (text: string | undefined) => text?.replaceAll('\r\n', '\n').trimEnd();
const bytesOf = ({ content, base64 }: FileRecord) => Buffer.from(content, base64 === true ? 'base64' : 'utf8');

function contentOf({ content }: Attachment): Buffer {
  return typeof content === 'string' ? Buffer.from(content) : Buffer.from(new Uint8Array(content));
}

describe('raw_msg for a message that is not UTF-8', () => {
  let renderer: OpenRenderer;
  let dir: string;
  before(async () => {
    ({ renderer } = await openRenderer());
    dir = await tempDir();
  });
  after(() => renderer.stop());

  async function msgOf(raw: Buffer, file = false): Promise<Msg> {
    const path = join(dir, 'message');
    if (file) await writeFile(path, raw);
    const body: Body = file
      ? { kind: 'file', path, size: raw.length, sha256: createHash('sha256').update(raw).digest('hex') }
      : { kind: 'memory', bytes: raw };
    const rendered = await renderer.render(renderJob(Buffer.alloc(0), { body }));
    const { msg } = await eventOf(rendered.body);
    await renderer.discard(rendered.body);
    return msg;
  }
  const read = (msg: Msg) => PostalMime.parse(Buffer.from(msg.raw_msg), { forceRfc822Attachments: true });

  for (const [name, raw] of Object.entries(EIGHT_BIT)) {
    it(`has the content that another MIME reader finds in the original, and the exact bytes: ${name}`, async () => {
      const msg = await msgOf(raw, raw.length > 256 * 1024);
      expect(msg.raw_msg).not.to.include('\ufffd');
      const lead = name.startsWith('no header') ? '\r\n' : '';
      expect(
        Buffer.from(msg.raw_msg_base64 ?? '', 'base64').equals(Buffer.concat([Buffer.from(TRACE + lead), raw])),
        'raw_msg_base64',
      ).to.equal(true);
      const mail = await read(msg);
      expect([lines(mail.text), lines(mail.html)]).to.deep.equal([lines(msg.text), lines(msg.html)]);
      expect([mail.subject ?? '', mail.from?.name || null]).to.deep.equal([msg.subject, msg.from_name]);
      const files = Object.values(msg.attachments ?? {}).filter(({ type }) => !type.startsWith('message/'));
      const found = mail.attachments.filter(({ mimeType }) => !mimeType.startsWith('message/'));
      const shown = (type: string, bytes: Buffer) =>
        type.startsWith('text/') || type.includes('signature') ? lines(bytes.toString()) : bytes.toString('latin1');
      expect(found.map((file) => shown(file.mimeType, contentOf(file)))).to.deep.equal(
        files.map((file) => shown(file.type, bytesOf(file))),
      );
    });
  }

  it('keeps every byte of the parts in UTF-8', async () => {
    const { raw_msg } = await msgOf(EIGHT_BIT['one part of several'] ?? Buffer.alloc(0));
    expect(raw_msg).to.include(
      'preämble\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\ncafé\n--b\n',
    );
    expect(raw_msg).to.include(
      '\n--b\nContent-Type: application/pdf; name=a.pdf\nContent-Transfer-Encoding: base64\n\nJVBERi0=\n--b--\nepilögue\n',
    );
  });

  it('declares the charset of an undeclared text, and keeps the other parameters', async () => {
    expect((await msgOf(EIGHT_BIT['a body without a charset'] ?? Buffer.alloc(0))).raw_msg)
      .to.include('Content-Type: text/plain; charset=windows-1252\n')
      .and.to.include('MIME-Version: 1.0\n');
    const { raw_msg } = await msgOf(EIGHT_BIT['a body of US-ASCII, with other parameters'] ?? Buffer.alloc(0));
    expect(raw_msg).to.include('Content-Type: text/plain; charset=windows-1252;\n\tformat="flowed";\n\tx="a\\"b"\n');
  });

  it('encodes the parts of an embedded message, and not the message', async () => {
    for (const name of ['an attached message', 'a part of a digest']) {
      const { raw_msg } = await msgOf(EIGHT_BIT[name] ?? Buffer.alloc(0));
      expect(raw_msg).to.match(
        /Subject: inner ä\n[^]*\nContent-Transfer-Encoding: quoted-printable\n[^]*\n\ninner Gr=FC=DFe, and more\n--in/,
      );
      expect(raw_msg.slice(0, raw_msg.indexOf('--in'))).not.to.match(/quoted-printable|base64/);
    }
  });

  it('is the original, byte for byte except line ends, if that is UTF-8', async () => {
    const raw = crlf('Subject: Grüße', 'Content-Type: text/plain; charset=iso-8859-1', '', 'GrÃ¼ÃŸe');
    const msg = await msgOf(raw);
    expect([msg.raw_msg, msg.raw_msg_base64]).to.deep.equal([
      (TRACE + raw.toString()).replaceAll('\r\n', '\n'),
      undefined,
    ]);
  });

  it('decodes its header in the charset of the body, and HTML as declared in it', async () => {
    const koi8 = (text: string) => Buffer.from(text, 'latin1');
    const { raw_msg } = await msgOf(
      koi8(
        'Subject: \xef\xd4\xde\xa3\xd4\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain; charset=koi8-r\r\n\r\n\xef\xd4\r\n' +
          '--b\r\nContent-Type: text/html\r\n\r\n<meta charset=windows-1251>\xcf\xf0\xe8\r\n--b--\r\n',
      ),
    );
    expect(raw_msg)
      .to.include('Subject: Отчёт\n')
      .and.to.match(/Content-Type: text\/html; charset="?windows-1251"?\n/);
  });

  it('has no U+FFFD even if the message exceeds the parser limits', async () => {
    const msg = await msgOf(
      Buffer.from(`Subject: Gr\xfc\xdfe\r\n${'X: y\r\n'.repeat(2000)}\r\n\xe4${'\xf6'.repeat(100_000)}`, 'latin1'),
    );
    expect(msg.parse_error).to.be.a('string');
    expect(
      msg.raw_msg.startsWith(`${TRACE.replaceAll('\r\n', '\n')}Subject: Grüße\nX: y\n`) &&
        msg.raw_msg.endsWith(`\n\nä${'ö'.repeat(100_000)}`),
    ).to.equal(true);
  });

  it('is not used for verdicts: those are of the received bytes', async () => {
    const key = makeKey('example.net', 'rsa', 1024);
    const raw = Buffer.from(
      signMessage(
        'From: Ann <ann@example.net>\r\nContent-Type: text/plain; charset=latin1\r\n\r\nGr\xfc\xdfe\r\n',
        key,
      ),
      'latin1',
    );
    const zone = await startZone(key.records);
    const dns = { servers: [zone.server], timeoutMs: 2000, questionsPerMessage: 10, budgetMs: 5000 };
    const asking = await openRenderer({ dns });
    try {
      const job = renderJob(raw, { message: spooled({ verdicts: null }) });
      const { msg } = await eventOf((await asking.renderer.render(job)).body);
      expect(msg.dkim).to.deep.equal({ signed: true, valid: true });
      expect(msg.raw_msg).to.include('Content-Transfer-Encoding: base64');
    } finally {
      await asking.renderer.stop();
      await zone.stop();
    }
  });
});
