import { expect } from 'chai';
import { type Content, parseMessage, type Text } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';

import { CHARSETS } from '../../support/charsets.ts';
import { crlf, multipart } from '../../support/mime.ts';

function whole(text: Text | undefined): string | undefined {
  return typeof text === 'function' ? [...text()].join('') : text;
}

function bytesOf(content: Content | undefined): Buffer {
  if (!content) return Buffer.alloc(0);
  return content.kind === 'bytes' ? content.bytes : Buffer.from(content.lines.toString('latin1'), 'base64');
}

function parse(bytes: Buffer) {
  const scanned = scanStructure(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return parseMessage(bytes, scanned.root);
}

describe('parts, read in place', () => {
  for (const { label, text, bytes } of CHARSETS) {
    it(`in ${label}: a body, and a file name in encoded words and in the form of RFC 2231`, () => {
      const body = Buffer.from(bytes, 'hex');
      const percent = body.toString('hex').replace(/../g, '%$&');
      const { text: found, files } = parse(
        multipart(
          'mixed',
          ['From: a@example.com'],
          [
            `Content-Type: text/plain; charset="${label}"`,
            'Content-Transfer-Encoding: base64',
            '',
            body.toString('base64'),
          ],
          [`Content-Type: application/pdf; name="=?${label}?B?${body.toString('base64')}?="`, '', 'x'],
          [
            'Content-Type: application/pdf',
            `Content-Disposition: attachment; filename*=${label}'en'${percent}`,
            '',
            'x',
          ],
        ),
      );
      expect([whole(found), ...files.map(({ name }) => name)]).to.deep.equal([text, text, text]);
    });
  }

  for (const [name, header, piece, shown] of [
    ['plain', [], 'Grüße 🎉, a line that is repeated.\r\n', 'Grüße 🎉, a line that is repeated.\n'],
    [
      'quoted-printable',
      ['Content-Transfer-Encoding: quoted-printable'],
      'Gr=C3=BC=C3=\r\n=9Fe and \t\r\n=F0=9F=8E=89 more=20\r\n',
      'Grüße and\n🎉 more \n',
    ],
    [
      'endless quoted-printable',
      ['Content-Transfer-Encoding: quoted-printable'],
      'Gr=C3=BC=C3=9Fe=F0=9F=8E=89',
      'Grüße🎉',
    ],
    [
      'latin1',
      ['Content-Type: text/html; charset=latin1', 'Content-Transfer-Encoding: quoted-printable'],
      'Gr=FC=DFe\r\n',
      'Grüße\n',
    ],
    [
      'shift_jis',
      ['Content-Type: text/plain; charset=shift_jis', 'Content-Transfer-Encoding: quoted-printable'],
      '=82=B1=82=F1=82=C9=82=BF=82=CD',
      'こんにちは',
    ],
    ['iso-2022-jp', ['Content-Type: text/plain; charset=iso-2022-jp'], '\x1b$B$3$s$K$A$O\x1b(B\r\n', 'こんにちは\n'],
    [
      'UTF-8 that says it is windows-1252',
      ['Content-Type: text/plain; charset=windows-1252'],
      'Grüße 🎉\r\n',
      'Grüße 🎉\n',
    ],
    [
      'HTML that says its charset itself',
      ['Content-Type: text/html', 'Content-Transfer-Encoding: quoted-printable'],
      '<meta charset=3Dwindows-1251>=CF=F0=E8=E2=E5=F2\r\n',
      '<meta charset=windows-1251>Привет\n',
    ],
  ] as const) {
    it(`decodes a large ${name} text in pieces like a small one`, () => {
      const count = Math.ceil(700_000 / piece.length);
      const { text, html } = parse(crlf('From: a@example.com', ...header, '', piece.repeat(count)));
      const found = text ?? html;
      expect(typeof found, 'is decoded when it is asked for').to.equal('function');
      expect(whole(found)?.trimEnd() === shown.repeat(count).trimEnd(), 'the same text').to.equal(true);
    });
  }

  it('keeps trailing blanks of endless quoted-printable only where they are escaped', () => {
    const piece = 'a \t=41=20\t ';
    const { text } = parse(
      crlf('From: a@example.com', 'Content-Transfer-Encoding: quoted-printable', '', piece.repeat(70_000)),
    );
    expect(whole(text) === `${'a \tA \t '.repeat(70_000).slice(0, -2)}\n`).to.equal(true);
  });

  it('decodes a large base64 text in pieces, wherever its lines split characters and line ends', () => {
    const text = 'Grüße 🎉\r\n'.repeat(40_000);
    const lines = Buffer.from(text)
      .toString('base64')
      .replace(/(.{61})/g, '$1\r\n');
    const { text: found } = parse(crlf('From: a@example.com', 'Content-Transfer-Encoding: base64', '', lines));
    expect(whole(found) === text.replaceAll('\r\n', '\n')).to.equal(true);
  });

  it('joins large texts like small ones', () => {
    const line = 'a line of text\r\n';
    const { text } = parse(multipart('mixed', [], ['', line.repeat(30_000)], ['', 'small'], ['', line.repeat(30_000)]));
    const large = `${'a line of text\n'.repeat(30_000)}\n`;
    expect(whole(text) === `${large}\nsmall\n\n${large}`).to.equal(true);
  });

  it('keeps the bytes of a file', () => {
    const { files } = parse(
      multipart('mixed', [], ['', 'x'], ['Content-Type: x/y', 'Content-Transfer-Encoding: base64', '', 'AAEC', '/w==']),
    );
    expect(bytesOf(files[0]?.content)).to.deep.equal(Buffer.from([0, 1, 2, 0xff]));
  });
});
