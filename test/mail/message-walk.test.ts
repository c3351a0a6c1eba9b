import { expect } from 'chai';
import { parseWithMailparser, scanMessage } from '../../src/mail/message.ts';
import type { Content, Parsed, Text } from '../../src/mail/parsed.ts';
import { walkMessage } from '../../src/mail/walk.ts';
import { CORPUS } from '../support/mime-corpus.ts';
import { crlf } from '../support/mime.ts';

function whole(text: Text | undefined): string | undefined {
  return typeof text === 'function' ? [...text()].join('') : text;
}

function bytesOf(content: Content): Buffer {
  return content.kind === 'bytes' ? Buffer.concat(content.chunks) : Buffer.from(Buffer.from(content.lines).toString('latin1'), 'base64');
}

function comparable(parsed: Parsed) {
  const files = parsed.files.map((file) => ({ ...file, content: bytesOf(file.content).toString('latin1') }));
  return { ...parsed, text: whole(parsed.text), html: whole(parsed.html), files };
}

function rootOf(bytes: Buffer) {
  const scanned = scanMessage(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return scanned.root;
}

describe('the walk', () => {
  for (const [name, { bytes, walked }] of Object.entries(CORPUS)) {
    it(walked ? `reads ${name} as mailparser does` : `leaves ${name} to mailparser`, async () => {
      const root = rootOf(bytes);
      const found = walkMessage(bytes, root);
      expect(found !== undefined, 'taken by the walk').to.equal(walked);
      if (found !== undefined) expect(comparable(found)).to.deep.equal(comparable(await parseWithMailparser(bytes, root)));
    });
  }

  for (const [name, header, body] of [
    ['plain', [], 'Grüße 🎉, a line that is repeated.\r\n'],
    ['quoted-printable', ['Content-Transfer-Encoding: quoted-printable'], 'Gr=C3=BC=C3=\r\n=9Fe and \t\r\n=F0=9F=8E=89 more=20\r\n'],
    ['latin1', ['Content-Type: text/html; charset=latin1', 'Content-Transfer-Encoding: quoted-printable'], 'Gr=FC=DFe\r\n'],
  ] as const) {
    it(`decodes a large ${name} text in pieces to what mailparser makes of it`, async () => {
      const bytes = crlf('From: a@example.com', ...header, '', body.repeat(Math.ceil(700_000 / body.length)));
      const root = rootOf(bytes);
      const found = walkMessage(bytes, root);
      if (found === undefined) throw new Error('not walked');
      expect(typeof (found.text ?? found.html), 'is decoded when it is asked for').to.equal('function');
      const expected = comparable(await parseWithMailparser(bytes, root));
      expect(comparable(found).text === expected.text, 'same text').to.equal(true);
      expect(comparable(found).html === expected.html, 'same HTML').to.equal(true);
    });
  }

  it('decodes a large base64 text in pieces, wherever its lines cut characters and line ends', () => {
    const text = 'Grüße 🎉\r\n'.repeat(40_000);
    const lines = Buffer.from(text).toString('base64').replace(/(.{61})/g, '$1\r\n');
    const bytes = crlf('From: a@example.com', 'Content-Transfer-Encoding: base64', '', lines);
    const found = walkMessage(bytes, rootOf(bytes));
    expect(whole(found?.text) === text.replaceAll('\r\n', '\n')).to.equal(true);
  });
});
