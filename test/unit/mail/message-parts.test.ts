import { expect } from 'chai';
import { type Content, parseMessage, type Text } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { crlf } from '../../support/mime.ts';

const whole = (text: Text | undefined) => (typeof text === 'function' ? [...text()].join('') : text)?.trim();
const contentOf = (content: Content) =>
  content.kind === 'bytes' ? content.bytes.toString() : Buffer.from(content.lines.toString(), 'base64').toString();

/** What a message is read as: its text, its HTML, and each file as `name type content`. */
function read(...lines: readonly string[]) {
  const bytes = crlf('From: a@example.com', ...lines);
  const { root, breach } = scanStructure(bytes);
  if (breach !== undefined) throw new Error(breach);
  const { text, html, files } = parseMessage(bytes, root);
  return {
    ...(text !== undefined && { text: whole(text) }),
    ...(html !== undefined && { html: whole(html) }),
    ...(files.length > 0 && {
      files: files.map(({ name, type, content }) => `${name} ${type} ${contentOf(content)}`.trim()),
    }),
  };
}

type Lines = readonly string[];
const multi = (type: string, boundary: string, ...parts: readonly Lines[]): Lines => [
  `Content-Type: multipart/${type}; boundary=${boundary}`,
  '',
  ...parts.flatMap((part) => [`--${boundary}`, ...part]),
  `--${boundary}--`,
];
const mixed = (...parts: readonly Lines[]) => multi('mixed', 'm', ...parts);
const part = (type: string, content: string, ...more: Lines): Lines => [`Content-Type: ${type}`, ...more, '', content];
const TEXT = part('text/plain', 'hello');
const HTML = part('text/html', '<p>hello');
const BOTH = multi('alternative', 'a', TEXT, HTML);
const PDF = part('application/pdf', 'PDF');

describe('the parts of a message', () => {
  for (const [name, lines, expected] of [
    [
      'a named HTML file beside text and HTML, without or with `inline`, is a file',
      mixed(
        BOTH,
        part('text/html; name=r.html', '<h1>'),
        part('text/html', '<h2>', 'Content-Disposition: inline; filename=s.html'),
      ),
      { text: 'hello', html: '<p>hello', files: ['r.html text/html <h1>', 's.html text/html <h2>'] },
    ],
    [
      'a named text behind the text is a file',
      mixed(TEXT, part('text/plain; name="log.txt"', 'log', 'Content-Disposition: inline; filename="log.txt"')),
      { text: 'hello', files: ['log.txt text/plain log'] },
    ],
    [
      'a named text is the text where the body stands: alone, or as the first part',
      mixed(multi('related', 'r', part('text/plain; name=body.txt', 'hello'), PDF), PDF),
      { text: 'hello', files: ['application/pdf PDF', 'application/pdf PDF'] },
    ],
    [
      'a named text is the text of a message without parts',
      part('text/plain; name=body.txt', 'hello'),
      { text: 'hello' },
    ],
    [
      'named alternatives are the text and the HTML',
      multi('alternative', 'a', part('text/plain; name=a.txt', 'hello'), part('text/html; name=a.html', '<p>hello')),
      { text: 'hello', html: '<p>hello' },
    ],
    [
      'a named first part of a later multipart is a file',
      mixed(TEXT, multi('mixed', 'n', part('text/plain; name=log.txt', 'log'))),
      { text: 'hello', files: ['log.txt text/plain log'] },
    ],
    [
      'a disposition nobody knows says nothing',
      part('text/plain', 'hello', 'Content-Disposition: quoted-printable'),
      { text: 'hello' },
    ],
    [
      'nor does one in quotes hide `attachment`, nor a missing semicolon, nor a comment',
      mixed(
        TEXT,
        part('text/plain', 'one', 'Content-Disposition: "attachment"'),
        part('text/plain', 'two', 'Content-Disposition: attachment filename=two.txt'),
        part('text/plain', 'three', 'Content-Disposition: attachment (really)'),
        part('text/plain', 'four', 'Content-Disposition: filename="four.txt"'),
      ),
      {
        text: 'hello',
        files: ['text/plain one', 'two.txt text/plain two', 'text/plain three', 'four.txt text/plain four'],
      },
    ],
    [
      'a type without a subtype is text or a file of unknown type',
      mixed(
        part('text', 'hello'),
        part('pdf; name=a.pdf', 'PDF'),
        part('image', 'PNG'),
        part('text; name=b.txt', 'log'),
        part('application/', 'x', 'Content-Disposition: inline'),
      ),
      {
        text: 'hello',
        files: [
          'a.pdf application/octet-stream PDF',
          'application/octet-stream PNG',
          'b.txt text/plain log',
          'application/octet-stream x',
        ],
      },
    ],
    [
      'a multipart without a subtype has its parts, and so has one without a semicolon',
      [
        'Content-Type: multipart; boundary=m',
        '',
        '--m',
        'Content-Type: multipart/mixed boundary=n',
        '',
        '--n',
        ...TEXT,
        '--n--',
        '--m',
        ...PDF,
        '--m--',
      ],
      { text: 'hello', files: ['application/pdf PDF'] },
    ],
    [
      'a name in pieces beside an inner multipart without its end is a name',
      [
        ...[
          'Content-Type: multipart/mixed; boundary=m',
          '',
          '--m',
          'Content-Type: multipart/alternative; boundary=a',
          '',
        ],
        ...['--a', ...TEXT, '--a', ...HTML, '--m', 'Content-Type: application/pdf'],
        ...[
          "Content-Disposition: attachment; filename*0*=UTF-8''B%C3%BCro%20; filename*1*=plan.pdf",
          '',
          'PDF',
          '--m--',
        ],
      ],
      { text: 'hello', html: '<p>hello', files: ['Büro plan.pdf application/pdf PDF'] },
    ],
    [
      'HTML that goes on behind a file is one HTML',
      multi('alternative', 'a', TEXT, multi('mixed', 'm', HTML, PDF, part('text/html', '<p>more'))),
      { text: 'hello', html: '<p>hello\n<br/>\n<p>more', files: ['application/pdf PDF'] },
    ],
    [
      'HTML of another alternative, and HTML behind text and HTML, is a file',
      mixed(multi('alternative', 'a', TEXT, HTML, part('text/html', '<p>other')), part('text/html', '<p>footer')),
      { text: 'hello', html: '<p>hello', files: ['text/html <p>other', 'text/html <p>footer'] },
    ],
    [
      'texts with files between them are one text',
      mixed(
        TEXT,
        part('image/jpeg; name=p.jpg', 'JPG', 'Content-Disposition: inline; filename=p.jpg'),
        part('text/plain', 'more'),
      ),
      { text: 'hello\n\nmore', files: ['p.jpg image/jpeg JPG'] },
    ],
    [
      'three alternatives are all there: two texts, and what nobody shows',
      multi(
        'alternative',
        'a',
        TEXT,
        part('text/plain', 'hi'),
        part('text/x-amp-html', '<amp>'),
        part('text/calendar', 'CAL'),
        HTML,
      ),
      { text: 'hello\n\nhi', html: '<p>hello', files: ['text/x-amp-html <amp>', 'text/calendar CAL'] },
    ],
    [
      'the root of a multipart/related need not be the first part',
      multi(
        'related; start="<root>"',
        'r',
        part('image/png', 'PNG', 'Content-ID: <i>'),
        part('text/html; name=r.html', '<img src="cid:i">', 'Content-ID: <root>'),
      ),
      { html: '<img src="cid:i">', files: ['image/png PNG'] },
    ],
    [
      'HTML in a multipart/related that the root refers to is a file',
      multi('related', 'r', part('text/html', '<iframe src="cid:f">'), part('text/html', 'frame', 'Content-ID: <f>')),
      { html: '<iframe src="cid:f">', files: ['text/html frame'] },
    ],
    [
      'a multipart without parts is what stands in it, and nothing if that is nothing',
      mixed(
        TEXT,
        ['Content-Type: multipart/mixed; boundary=z', '', 'said', '--z--'],
        ['Content-Type: multipart/mixed; boundary=y', '', '--y--'],
      ),
      { text: 'hello\n\nsaid' },
    ],
    [
      'parts behind the closing delimiter are parts, of the message or of a multipart in it',
      [...mixed(multi('alternative', 'a', TEXT), ['', 'more']), 'epilogue', '--m', ...PDF, '--m--'],
      { text: 'hello\n\nmore', files: ['application/pdf PDF'] },
    ],
    [
      'parts behind the closing delimiter of an inner multipart are parts',
      mixed([...multi('alternative', 'a', TEXT), '--a', ...HTML, '--a--'], PDF),
      { text: 'hello', html: '<p>hello', files: ['application/pdf PDF'] },
    ],
    [
      'an inner multipart may have the boundary of the outer one',
      [
        ...[
          'Content-Type: multipart/mixed; boundary=m',
          '',
          '--m',
          'Content-Type: multipart/alternative; boundary=m',
          '',
        ],
        ...['--m', ...TEXT, '--m', ...HTML, '--m--', '--m', ...PDF, '--m--'],
      ],
      { text: 'hello', html: '<p>hello', files: ['application/pdf PDF'] },
    ],
    [
      'a part without an empty line behind its header has a body',
      mixed(['Content-Type: text/plain', 'hello there', 'again: more'], PDF),
      { text: 'hello there\nagain: more', files: ['application/pdf PDF'] },
    ],
    [
      'nor does an empty line in its body hide what stands before it',
      mixed(
        ['Content-Type: application/zip', 'Content-Transfer-Encoding: base64', 'UEsD', ''],
        ['Content-Type: text/plain', 'hello there', 'see: this', '', 'again'],
      ),
      { text: 'hello there\nsee: this\n\nagain', files: ['application/zip PK\u0003'] },
    ],
    [
      'a folded line that is not indented, and a line between fields, are no body',
      mixed(
        ['Content-Type: application/pdf;', 'name=a.pdf', '', 'PDF'],
        ['Content-Type: text/plain', 'no field', 'Content-Transfer-Encoding: base64', '', 'aGVsbG8='],
      ),
      { text: 'hello', files: ['application/pdf PDF'] },
    ],
    [
      'a boundary has no blanks at its end',
      ['Content-Type: multipart/mixed; boundary="m "', '', '--m', ...TEXT, '--m--'],
      { text: 'hello' },
    ],
    [
      'a multipart that nobody closed, with a delimiter of the outer one in it, ends there',
      [
        'Content-Type: multipart/mixed; boundary=out',
        '',
        '--out',
        'Content-Type: multipart/alternative; boundary=in',
        '',
        '--in',
        '',
        'one',
        '--out',
        ...HTML,
        '--out--',
      ],
      { text: 'one', html: '<p>hello' },
    ],
    [
      'white space behind a delimiter is padding',
      ['Content-Type: multipart/mixed; boundary=b', '', '--b ', '', 'one', '--b\t', ...HTML, '--b--'],
      { text: 'one', html: '<p>hello' },
    ],
    [
      'a multipart without a boundary is shown as text',
      ['Content-Type: multipart/mixed', '', '--b', '', 'one', '--b--'],
      { text: '--b\n\none\n--b--' },
    ],
    [
      'the halves of an AppleDouble, a signature, a status and a message are files',
      mixed(
        TEXT,
        multi('appledouble', 'd', part('application/applefile', 'FORK'), part('image/jpeg; name=p.jpg', 'JPG')),
        part('application/pgp-signature', 'SIG'),
        part('message/delivery-status', 'Action: failed'),
        part('message/rfc822', 'Subject: inner', 'Content-Disposition: inline'),
      ),
      {
        text: 'hello',
        files: [
          'application/applefile FORK',
          'p.jpg image/jpeg JPG',
          'application/pgp-signature SIG',
          'message/delivery-status Action: failed',
          'message/rfc822 Subject: inner',
        ],
      },
    ],
  ] as const) {
    it(name, () => {
      expect(read(...lines)).to.deep.equal(expected);
    });
  }

  for (const [name, lines, expected] of [
    ['padding and an empty line', ['R3LDvMOfZSBhdXMgS8O2bG4=', '', '_____', 'team mailing list'], 'Grüße aus Köln'],
    ['padding', ['SGVsbG8gd28=', 'Sent by list'], 'Hello wo'],
    ['an empty line', ['SGVsbG8g', 'd29y', '', '-- ', 'https://x.example/unsubscribe'], 'Hello wor'],
    [
      'whole lines',
      [
        ...(Buffer.from('0123456789'.repeat(30))
          .toString('base64')
          .match(/.{1,76}/g) ?? []),
        'Sent by list',
      ],
      '0123456789'.repeat(30),
    ],
    ['padding, an empty line, and of one word', ['SGVsbG8gd28=', '', 'Unsubscribe'], 'Hello wo'],
  ] as const) {
    it(`a footer in plain text behind a base64 body, after ${name}, is not decoded`, () => {
      expect(read('Content-Transfer-Encoding: base64', '', ...lines).text).to.equal(expected);
      expect(read(...part('x/y', '', 'Content-Transfer-Encoding: base64').slice(0, -1), ...lines).files).to.deep.equal([
        `x/y ${expected}`,
      ]);
    });
  }

  it('base64 continues after padding, empty lines and invalid characters if more base64 follows', () => {
    const long = '0123456789'.repeat(40);
    const lines =
      Buffer.from(long)
        .toString('base64')
        .match(/.{1,76}/g) ?? [];
    for (const [body, expected] of [
      [['SGVsbG8=', 'IHRoZXJl', 'IQ=='], 'Hello there!'],
      [['SGVsbG8=IHRoZXJl'], 'Hello there'],
      [['SGVs bG8=!'], 'Hello'],
      [lines.flatMap((line) => [line, '']), long],
      [[...lines.slice(0, 2), '', 'not base64, but', ...lines.slice(2)], undefined],
    ] as const) {
      const { text } = read('Content-Transfer-Encoding: base64', '', ...body);
      if (expected !== undefined) expect(text).to.equal(expected);
      else expect(text?.length).to.be.above(300);
    }
  });

  it('uuencode ends without its last lines, and before a footer', () => {
    for (const end of [['`', 'end'], ['end'], ['`'], [], ['', '-- ', 'the team'], ['the team of ours']])
      expect(
        read('Content-Transfer-Encoding: x-uuencode', '', 'begin 644 a.txt', '#86%A', ...end).text,
        JSON.stringify(end),
      ).to.equal('aaa');
  });
});
