import { expect } from 'chai';
import { authorOfMessage, soleAuthorOf } from '../../../src/mail/addresses/author.ts';
import { parseMessage, type Text } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { mailSummaryOf, summaryFields } from '../../../src/mail/summary.ts';

const latin1 = (...lines: string[]) => Buffer.from(lines.map((line) => `${line}\r\n`).join(''), 'latin1');
/** The bytes of a text in UTF-8, as a string of bytes. */
const utf8 = (text: string) => Buffer.from(text).toString('latin1');
const whole = (text: Text | undefined) => (typeof text === 'function' ? [...text()].join('') : (text ?? '')).trimEnd();

function parse(bytes: Buffer) {
  const { root, breach } = scanStructure(bytes);
  if (breach !== undefined) throw new Error(breach);
  return parseMessage(bytes, root);
}

const KOI8 = '\xf0\xd2\xc9\xd7\xc5\xd4';
const JIS = '\x1b$B$3$s$K$A$O\x1b(B';
const word = (jis: string) => `=?ISO-2022-JP?B?${Buffer.from(jis, 'latin1').toString('base64')}?=`;

describe('a raw header', () => {
  for (const [name, raw, more, expected] of [
    ['the charset of the body', KOI8, ['Content-Type: text/plain; charset=koi8-r'], 'Привет'],
    ['the charset of the HTML', '\xa7A\xa6n', ['Content-Type: text/html; charset="big5"'], '你好'],
    [
      'a charset in which bytes of ASCII are parts of characters',
      '\x93\xfa\x96{\x83\\',
      ['Content-Type: text/plain; charset=Shift_JIS'],
      '日本ソ',
    ],
    ['a charset in the form of RFC 2231', KOI8, ["Content-Type: text/plain; charset*=us-ascii''koi8-r"], 'Привет'],
    [
      'the charset of the first text',
      KOI8,
      [
        'Content-Type: multipart/mixed; boundary=b',
        '',
        '--b',
        'Content-Type: application/pdf; charset=utf-16',
        '',
        'x',
        '--b',
        'Content-Type: text/plain;',
        ' charset=koi8-r',
        '',
        'x',
        '--b--',
      ],
      'Привет',
    ],
    ['UTF-8 before the charset of the body', utf8('Привет'), ['Content-Type: text/plain; charset=koi8-r'], 'Привет'],
    ['windows-1252 if the body says nothing', 'Gr\xfc\xdfe', ['Content-Type: text/plain'], 'Grüße'],
    ['windows-1252 if it is not what the body is', 'Gr\xfc\xdfe', ['Content-Type: text/plain; charset=utf-8'], 'Grüße'],
    [
      'windows-1252 if the body is in a charset without ASCII',
      'Gr\xfc\xdfe',
      ['Content-Type: text/plain; charset=utf-16'],
      'Grüße',
    ],
    [
      'windows-1252 if the body is in a charset nobody knows',
      'Gr\xfc\xdfe',
      ['Content-Type: text/plain; charset=x-nobody'],
      'Grüße',
    ],
    ['ISO-2022-JP by its escapes', JIS, ['Content-Type: text/plain; charset=iso-2022-jp'], 'こんにちは'],
    [
      'ISO-2022-JP by its escapes, whatever the body is',
      JIS,
      ['Content-Type: text/plain; charset=utf-8'],
      'こんにちは',
    ],
    ['ISO-2022-KR by its escapes', '\x1b$)C\x0e>H3g\x0f', [], '안녕'],
    ['ISO-2022-JP in words that cut a character', `${word('\x1b$B$3$')} ${word('s$K$A$O\x1b(B')}`, [], 'こんにちは'],
    [
      'ISO-2022-JP in words that cut a character and shift',
      `${word('\x1b$B$3$\x1b(B')} ${word('\x1b$Bs$K$A$O\x1b(B')}`,
      [],
      'こんにちは',
    ],
    ['UTF-8 in words that say something else', '=?iso-8859-1?Q?Gr=C3=BC=C3=9Fe?=', [], 'Grüße'],
  ] as const) {
    it(`is read in ${name}, by every parser of it`, () => {
      const bytes = latin1(
        `From: ${raw} <a@example.com>`,
        `Subject: ${raw}`,
        ...more,
        ...(more.some((line) => line === '') ? [] : ['', 'x']),
      );
      const { subject, from } = parse(bytes);
      const summary = mailSummaryOf(summaryFields(bytes));
      expect([
        subject,
        from?.name,
        authorOfMessage(bytes, '').mailbox?.name,
        summary.subject,
        summary.from,
      ]).to.deep.equal([expected, expected, expected, expected, `${expected} <a@example.com>`]);
      expect(from?.address).to.equal('a@example.com');
    });
  }

  it('of sent mail is read differently: an address hidden in escapes counts', () => {
    const hidden = latin1('From: \x1b$B <b@other.example>\x1b(B <a@example.com>');
    expect(soleAuthorOf(hidden)).to.have.property('unclear');
    expect(authorOfMessage(hidden, '').mailbox?.address).to.equal('a@example.com');
  });

  it('of a file has the charset of its part, else that of the message', () => {
    const { files } = parse(
      latin1(
        ...[
          'Content-Type: multipart/mixed; boundary=b',
          '',
          '--b',
          'Content-Type: text/plain; charset=koi8-r',
          '',
          'x',
        ],
        ...['--b', `Content-Disposition: attachment; filename="${KOI8}.pdf"`, '', 'x'],
        ...['--b', 'Content-Type: text/csv; charset=windows-1251; name="\xcf\xf0\xe8.csv"', '', 'x', '--b--'],
      ),
    );
    expect(files.map(({ name }) => name)).to.deep.equal(['Привет.pdf', 'При.csv']);
  });

  it('keeps a blank that is not one in another charset', () => {
    expect(parse(latin1(`Subject: ${utf8('voilà')}`, 'X-Raw: \xfc', '', 'x')).subject).to.equal('voilà');
  });
});

describe('a text', () => {
  for (const [label, bytes, expected] of [
    ['iso-8859-1', utf8('Grüße aus Köln'), 'Grüße aus Köln'],
    ['windows-1252', utf8('für'), 'für'],
    ['ISO-8859-15', utf8('it’s 5 €'), 'it’s 5 €'],
    ['latin1', utf8('Да'), 'Да'],
    ['us-ascii', utf8('für'), 'für'],
    ['iso-8859-1', utf8('日本語 🎉'), '日本語 🎉'],
    ['iso-8859-1', utf8('20\u00a0°C, 5\u00a0£'), '20\u00a0°C, 5\u00a0£'],
  ] as const) {
    it(`labelled ${label} that is clearly UTF-8 is UTF-8: ${expected}`, () => {
      expect(whole(parse(latin1(`Content-Type: text/plain; charset=${label}`, '', bytes)).text)).to.equal(expected);
    });
  }

  for (const [label, bytes, expected] of [
    ['iso-8859-1', 'Gr\xfc\xdfe', 'Grüße'],
    ['iso-8859-1', 'NESTL\xc9\xae, CAF\xc9\xbb', 'NESTLÉ®, CAFÉ»'],
    ['windows-1252', 'it reads f\xc3\xbcr, not f\xfcr', 'it reads fÃ¼r, not für'],
    ['windows-1252', 'the signs \xc3 \xbc', 'the signs Ã ¼'],
    ['iso-8859-1', 'IRM\xc3 \xc2\xb0', 'IRMÃ Â°'],
    ['koi8-r', utf8('Привет'), new TextDecoder('koi8-r').decode(Buffer.from('Привет'))],
    ['iso-8859-1', 'plain', 'plain'],
  ] as const) {
    it(`labelled ${label} that may be in it is read in it: ${expected}`, () => {
      expect(whole(parse(latin1(`Content-Type: text/plain; charset=${label}`, '', bytes)).text)).to.equal(expected);
    });
  }

  it('without a charset but with escapes of ISO-2022 is ISO-2022', () => {
    expect(whole(parse(latin1('Subject: x', '', JIS)).text)).to.equal('こんにちは');
    expect(whole(parse(latin1('Subject: x', '', '\x1b[31mred\x1b(B\x1b[m')).text)).to.equal('\x1b[31mred\x1b(B\x1b[m');
  });

  for (const [name, type, body, expected] of [
    [
      '`http-equiv`',
      'text/html',
      '<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=windows-1251">\xcf\xf0\xe8',
      'При',
    ],
    ['`charset`', 'text/html', "<meta charset='koi8-r'>\xf0\xd2\xc9", 'При'],
    ['an XML declaration', 'text/html', '<?xml version="1.0" encoding="koi8-r"?>\xf0\xd2\xc9', 'При'],
    ['`meta`, below a US-ASCII that says nothing', 'text/html; charset=us-ascii', '<meta charset=iso-8859-2>\xb1', 'ą'],
    ['`meta` of ISO-2022-JP', 'text/html', `<meta charset=iso-2022-jp>${JIS}`, 'こんにちは'],
    [
      'its part, which counts before `meta`',
      'text/html; charset=koi8-r',
      '<meta charset=windows-1251>\xf0\xd2\xc9',
      'При',
    ],
    ['nothing, if `meta` is plainly wrong', 'text/html', `<meta charset=windows-1251>${utf8('Привет')}`, 'Привет'],
    ['nothing, if `meta` says UTF-8 and it is not', 'text/html', '<meta charset=utf-8>Gr\xfc\xdfe', 'Grüße'],
    ['nothing, if `meta` names a charset without ASCII', 'text/html', '<meta charset=utf-16>Gr\xfc\xdfe', 'Grüße'],
    ['nothing, if `meta` names a charset nobody knows', 'text/html', '<meta charset=x-nobody>Gr\xfc\xdfe', 'Grüße'],
    ['nothing in a text', 'text/plain', '<meta charset=koi8-r>Gr\xfc\xdfe', 'Grüße'],
  ] as const) {
    it(`of HTML has the charset of ${name}`, () => {
      const { html, text } = parse(latin1(`Content-Type: ${type}`, '', body));
      expect(whole(html ?? text).replace(/^<[^>]*>/, '')).to.equal(expected);
    });
  }

  it('of HTML begins with a byte order mark if it is UTF-16', () => {
    const html = Buffer.from('\ufeff<p>Grüße', 'utf16le').toString('base64');
    expect(
      whole(parse(latin1('Content-Type: text/html', 'Content-Transfer-Encoding: base64', '', html)).html),
    ).to.equal('\ufeff<p>Grüße');
  });
});
