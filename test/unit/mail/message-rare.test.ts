import { expect } from 'chai';
import { type Content, type ParsedMessage, parseMessage } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';

import { crlf, multipart } from '../../support/mime.ts';

async function parse(bytes: Buffer): Promise<ParsedMessage> {
  const scanned = scanStructure(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return parseMessage(bytes, scanned.root);
}

function bytesOf(content: Content | undefined): Buffer {
  if (content?.kind !== 'bytes') throw new Error('not decoded');
  return content.bytes;
}

const latin1 = (...lines: string[]) => Buffer.from(lines.map((line) => `${line}\r\n`).join(''), 'latin1');
const FROM = 'From: a@example.com';
// As Python's binascii.b2a_uu writes the bytes from 0 to 99.
const UUENCODED = [
  'begin 644 data.bin',
  'M  $" P0%!@<("0H+# T.#Q 1$A,4%187&!D:&QP=\'A\\@(2(C)"4F)R@I*BLL',
  "M+2XO,#$R,S0U-C<X.3H[/#T^/T!!0D-$149'2$E*2TQ-3D]045)35%565UA9",
  '*6EM<75Y?8&%B8P  ',
  ' ',
  'end',
];

describe('rare forms of mail', () => {
  for (const name of ['x-uuencode', 'X-UUEncode', 'uuencode', 'x-uue']) {
    it(`a file in ${name} is decoded`, async () => {
      const { files } = await parse(
        multipart(
          'mixed',
          [FROM],
          ['', 'see file'],
          [
            'Content-Type: application/octet-stream; name=data.bin',
            `Content-Transfer-Encoding: ${name}`,
            '',
            ...UUENCODED,
          ],
        ),
      );
      expect(bytesOf(files[0]?.content)).to.deep.equal(Buffer.from(Uint8Array.from({ length: 100 }, (_, i) => i)));
    });
  }

  it('a part of an invalid type is a file of unknown type, in a message that mailparser reads', async () => {
    const { files } = await parse(
      multipart(
        'mixed',
        [FROM],
        ["Content-Type: text/plain; charset*=us-ascii''utf-8", '', 'a'],
        ['Content-Type: .', 'Content-Disposition: attachment', '', 'b'],
        ['Content-Type:', '.', 'Content-Disposition: attachment', '', 'c'],
        ['Content-Type: /;', '', 'd'],
      ),
    );
    expect(files.map(({ type }) => type)).to.satisfy((types: unknown[]) => types.length > 0);
    for (const { type } of files) expect(type).to.match(/^[\w-]+\/[\w.-]+$/);
  });

  it('a uuencoded file is decoded if its lines lost trailing blanks, or if it was truncated', async () => {
    const file = async (...lines: string[]) =>
      bytesOf(
        (await parse(crlf(FROM, 'Content-Type: x/y', 'Content-Transfer-Encoding: uuencode', '', ...lines))).files[0]
          ?.content,
      );
    expect(await file('text before it', 'begin 644 a b', "'        80  ", ' ', 'end')).to.deep.equal(
      Buffer.from('\0\0\0\0\0\0a'),
    );
    expect(await file('begin 644 a', '&', '', 'end')).to.deep.equal(Buffer.alloc(6));
    expect(await file('begin 644 a', '#86%A', '#86')).to.deep.equal(Buffer.from('aaaa`\0'));
    expect(
      (await file('begin 644 a', ...Array.from({ length: 1000 }, () => '_'))).length,
      'cut when it grows too much',
    ).to.be.below(20_000);
  });

  it('a uuencoded text is decoded in its charset', async () => {
    const { text } = await parse(
      crlf(
        FROM,
        'Content-Type: text/plain; charset=iso-8859-1',
        'Content-Transfer-Encoding: x-uuencode',
        '',
        'begin 644 a.txt',
        '/1W+\\WV4@875S($OV;&X*',
        ' ',
        'end',
      ),
    );
    expect(text).to.equal('Grüße aus Köln\n');
  });

  it('a body falsely declared as uuencoded is shown as it is', async () => {
    expect((await parse(crlf(FROM, 'Content-Transfer-Encoding: x-uuencode', '', 'no such thing'))).text).to.equal(
      'no such thing\n',
    );
  });

  it('the parts of a digest are messages unless declared otherwise', async () => {
    const { text, files } = await parse(
      multipart(
        'digest',
        [FROM],
        ['', 'Subject: one', '', 'first'],
        ['Content-Type: text/plain', '', 'a note'],
        ['', 'Subject: two', '', 'second'],
      ),
    );
    expect(files.map(({ type, content }) => [type, bytesOf(content).toString()])).to.deep.equal([
      ['message/rfc822', 'Subject: one\r\n\r\nfirst'],
      ['message/rfc822', 'Subject: two\r\n\r\nsecond'],
    ]);
    expect(text).to.equal('a note\n');
  });

  for (const [name, word, charset] of [
    ['windows-1252', 'Gr\xfc\xdfe', 'iso-8859-1'],
    ['KOI8-R', '\xf0\xd2\xc9\xd7\xc5\xd4', 'koi8-r'],
    ['EUC-JP', '\xb2\xf1\xb5\xc4', 'euc-jp'],
  ] as const) {
    it(`raw ${name} bytes inside an encoded word have the charset of the word`, async () => {
      const expected = new TextDecoder(charset).decode(Buffer.from(word, 'latin1'));
      const parsed = await parse(
        latin1(
          `From: =?${charset}?Q?${word}_x?= <a@example.com>`,
          `Subject: Re: =?${charset}?Q?${word}=20x?= ok`,
          `Content-Type: application/pdf; name="=?${charset}?q?${word}.pdf?="`,
          '',
          'x',
        ),
      );
      expect([parsed.from?.name, parsed.subject, parsed.files[0]?.name]).to.deep.equal([
        `${expected} x`,
        `Re: ${expected} x ok`,
        `${expected}.pdf`,
      ]);
    });
  }

  it('a subject is decoded regardless of addresses beside it, and the last of two counts', async () => {
    const subject = `Subject: =?iso-2022-kr?B?${Buffer.from('\x1b$)C\x0e>H3g\x0f', 'latin1').toString('base64')}?=`;
    expect((await parse(crlf(FROM, 'To: team: a@example.net;', subject, '', 'x'))).subject).to.equal('안녕');
    expect((await parse(crlf(FROM, 'Subject: one', subject, '', 'x'))).subject).to.equal('안녕');
  });

  it('raw UTF-8 inside an encoded word is UTF-8, whatever the word declares', async () => {
    const { subject } = await parse(
      crlf(FROM, 'Subject: =?iso-8859-1?Q?Grüße_=E4?= =?utf-8?Q?Grüße_=C3=A4?=', '', 'x'),
    );
    expect(subject).to.equal('Grüße äGrüße ä');
  });

  it('all HTML parts are shown if there is no text, otherwise the first', async () => {
    const html = (text: string) => ['Content-Type: text/html', '', text];
    const file = ['Content-Type: application/pdf', '', 'x'];
    expect((await parse(multipart('mixed', [FROM], html('<p>one</p>'), file, html('<p>two</p>')))).html).to.equal(
      '<p>one</p>\n<br/>\n<p>two</p>\n',
    );
    const large = '<i>large</i>'.repeat(30_000);
    const { html: found } = await parse(multipart('mixed', [FROM], html('<p>one</p>'), html(large)));
    expect(typeof found === 'function' ? [...found()].join('') : found).to.equal(`<p>one</p>\n<br/>\n${large}\n`);
    expect(
      (await parse(multipart('mixed', [FROM], html('<p>one</p>'), ['', 'text'], html('<p>two</p>')))).html,
    ).to.equal('<p>one</p>\n');
  });

  for (const [name, header] of [
    ['no charset', []],
    ['US-ASCII', ['Content-Type: text/plain; charset=us-ascii']],
    ['a charset nobody knows', ['Content-Type: text/plain; charset=x-unknown']],
  ] as const) {
    it(`a body of ${name} that is not UTF-8 is read as windows-1252, like its header`, async () => {
      const message = (body: string, ...more: string[]) =>
        latin1('From: J\xfcrgen <a@example.com>', 'Subject: \x84Gr\xfc\xdfe\x93', ...header, ...more, '', body);
      const { subject, text } = await parse(message('\x84Gr\xfc\xdfe\x93, \x80'));
      expect([subject, text]).to.deep.equal(['„Grüße“', '„Grüße“, €\n']);
      expect((await parse(message('Gr=FC=DFe', 'Content-Transfer-Encoding: quoted-printable'))).text).to.equal(
        'Grüße\n',
      );
      expect((await parse(message('R3L83w==', 'Content-Transfer-Encoding: base64'))).text).to.equal('Grüß');
      expect((await parse(crlf(FROM, ...header, '', 'Grüße'))).text).to.equal('Grüße\n');
      const { text: large } = await parse(
        message(`${'a line of text\r\n'.repeat(20_000)}Gr=FC=DFe`, 'Content-Transfer-Encoding: quoted-printable'),
      );
      expect((typeof large === 'function' ? [...large()].join('') : '').endsWith('Grüße\n')).to.equal(true);
    });
  }
});
