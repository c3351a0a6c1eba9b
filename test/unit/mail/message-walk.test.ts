import { expect } from 'chai';
import { readWithLibrary } from '../../../src/mail/library.ts';
import { type Body, type Content, parseMessage, scanMessage, type Text, walkBody } from '../../../src/mail/message.ts';

import { CHARSETS } from '../../support/charsets.ts';
import { crlf, multipart } from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';

function whole(text: Text | undefined): string | undefined {
  return typeof text === 'function' ? [...text()].join('') : text;
}

function bytesOf(content: Content): Buffer {
  return content.kind === 'bytes'
    ? Buffer.concat(content.chunks)
    : Buffer.from(Buffer.from(content.lines).toString('latin1'), 'base64');
}

function comparable(body: Body | undefined) {
  if (body === undefined) return undefined;
  const { text, textFlowed, html, files } = body;
  return {
    text: whole(text),
    textFlowed,
    html: whole(html),
    files: files.map((file) => ({ ...file, content: bytesOf(file.content).toString('latin1') })),
  };
}

function rootOf(bytes: Buffer) {
  const scanned = scanMessage(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return scanned.root;
}

describe('the walk and the library', () => {
  for (const [name, { bytes, declined, differs }] of Object.entries(CORPUS)) {
    if (declined === true) {
      it(`share their work: ${name} is for the library`, async () => {
        const root = rootOf(bytes);
        expect(walkBody(bytes, root)).to.equal(undefined);
        expect(comparable(await parseMessage(bytes, root))).to.deep.equal(comparable(await readWithLibrary(bytes)));
      });
    } else if (differs === undefined) {
      it(`read the same: ${name}`, async () => {
        expect(comparable(walkBody(bytes, rootOf(bytes)))).to.deep.equal(comparable(await readWithLibrary(bytes)));
      });
    } else {
      it(`read otherwise, as ${differs.why}: ${name}`, async () => {
        expect(comparable(walkBody(bytes, rootOf(bytes)))).to.deep.include(differs.to);
        expect(comparable(await readWithLibrary(bytes))).not.to.deep.include(differs.to);
      });
    }
  }

  for (const { label, text, bytes } of CHARSETS) {
    it(`read the same in ${label}, in a body and in the name of a file`, async () => {
      const name = `=?${label}?B?${Buffer.from(bytes, 'hex').toString('base64')}?=`;
      const body = Buffer.from(bytes, 'hex').toString('base64');
      const message = multipart(
        'mixed',
        ['From: a@example.com'],
        [`Content-Type: text/plain; charset="${label}"`, 'Content-Transfer-Encoding: base64', '', body],
        [`Content-Type: application/pdf; name="${name}"`, '', 'x'],
      );
      const walked = comparable(walkBody(message, rootOf(message)));
      expect([walked?.text, walked?.files[0]?.name]).to.deep.equal([text, text]);
      expect(comparable(await readWithLibrary(message))).to.deep.equal(walked);
    });
  }

  for (const [name, header, body] of [
    ['plain', [], 'Grüße 🎉, a line that is repeated.\r\n'],
    [
      'quoted-printable',
      ['Content-Transfer-Encoding: quoted-printable'],
      'Gr=C3=BC=C3=\r\n=9Fe and \t\r\n=F0=9F=8E=89 more=20\r\n',
    ],
    ['endless quoted-printable', ['Content-Transfer-Encoding: quoted-printable'], 'Gr=C3=BC=C3=9Fe=F0=9F=8E=89'],
    ['endless quoted-printable with blanks', ['Content-Transfer-Encoding: quoted-printable'], 'a \t=41=20\t '],
    [
      'latin1',
      ['Content-Type: text/html; charset=latin1', 'Content-Transfer-Encoding: quoted-printable'],
      'Gr=FC=DFe\r\n',
    ],
    [
      'shift_jis',
      ['Content-Type: text/plain; charset=shift_jis', 'Content-Transfer-Encoding: quoted-printable'],
      '=82=B1=82=F1=82=C9=82=BF=82=CD',
    ],
    ['iso-2022-jp', ['Content-Type: text/plain; charset=iso-2022-jp'], '\x1b$B$3$s$K$A$O\x1b(B\r\n'],
  ] as const) {
    it(`decodes a large ${name} text in pieces to what mailparser makes of it`, async () => {
      const bytes = crlf('From: a@example.com', ...header, '', body.repeat(Math.ceil(700_000 / body.length)));
      const root = rootOf(bytes);
      const found = await parseMessage(bytes, root);
      expect(typeof (found.text ?? found.html), 'is decoded when it is asked for').to.equal('function');
      const expected = comparable(await readWithLibrary(bytes));
      expect(whole(found.text) === expected?.text, 'same text').to.equal(true);
      expect(whole(found.html) === expected?.html, 'same HTML').to.equal(true);
    });
  }

  it('decodes a large base64 text in pieces, wherever its lines cut characters and line ends', async () => {
    const text = 'Grüße 🎉\r\n'.repeat(40_000);
    const lines = Buffer.from(text)
      .toString('base64')
      .replace(/(.{61})/g, '$1\r\n');
    const bytes = crlf('From: a@example.com', 'Content-Transfer-Encoding: base64', '', lines);
    const { text: found } = await parseMessage(bytes, rootOf(bytes));
    expect(whole(found) === text.replaceAll('\r\n', '\n')).to.equal(true);
  });

  it('joins several large texts as it joins small ones', async () => {
    const line = 'a line of text\r\n';
    const bytes = multipart('mixed', [], ['', line.repeat(30_000)], ['', 'small'], ['', line.repeat(30_000)]);
    const root = rootOf(bytes);
    expect(whole((await parseMessage(bytes, root)).text) === (await readWithLibrary(bytes)).text).to.equal(true);
  });
});
