import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { composeMail, ID, linksOf, type Seen, sendDocument, toJob, valuesOf } from '../../support/compose.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';
import { tempDir } from '../../support/temp.ts';

const HEAD = [
  'From: Ann <ann@example.com>',
  'To: bob@example.net',
  'Subject: Hello',
  'Date: Tue, 06 Jan 2026 10:00:00 +0100',
  'Message-ID: <own@example.com>',
  'List-Unsubscribe: <https://example.com/u>',
];
const TRACKED = { trackOpens: true, trackClicks: 'all' } as const;
const MERGED = { globalVars: [{ name: 'NAME', content: 'Bøb' }] };
const bytesOf = (lines: readonly string[]) => Buffer.from(lines.map((line) => `${line}\r\n`).join(''));
const bodyOf = ({ raw }: Seen) => raw.subarray(raw.indexOf('\r\n\r\n') + 4).toString('latin1');
const textOf = (text: string | false | undefined) => (text || '').replace(/\r\n/g, '\n').trimEnd();
const QUOTED = ['Content-Transfer-Encoding: quoted-printable'];

describe('a composed document', () => {
  it('stays byte for byte without options and missing fields', async () => {
    const random = randomFrom(2);
    const pieces = [
      '<a href="https://x.example/">',
      '*|NAME|*',
      '\r\n',
      '--b\r\n',
      '--b--\r\n',
      'Content-Type: text/html\r\n',
      '\r\n\r\n',
      'é',
      '=3D',
      'text ',
      '</body>',
    ];
    for (let round = 0; round < 300; round++) {
      const body = randomText(random, pieces, 60)
        .replace(/[\0\r]|(?<!\r)\n/g, '')
        .replaceAll('\n', '\r\n');
      const document = Buffer.concat([
        bytesOf([...HEAD, 'X-Own:  spaces   kept\t', ' folded', 'Content-Type: multipart/mixed; boundary=b', '']),
        Buffer.from(body),
      ]);
      expect((await sendDocument(document)).raw.toString('latin1')).to.equal(document.toString('latin1'));
    }
  });

  it('loses only our own control fields', async () => {
    const secret = [
      'X-MC-Tags: a,',
      '\tb',
      'x-mc-Metadata: {}',
      'Bcc: secret@example.net,',
      ' other@example.net',
      'Return-Path: <x@example.com>',
      'BCC : third@example.net',
    ];
    const seen = await sendDocument([
      ...secret.slice(0, 3),
      ...HEAD,
      ...secret.slice(3),
      'X-MCX: stays',
      '',
      'Bcc: in the body',
      'X-MC-Tags: too',
    ]);
    expect(seen.raw.toString()).to.equal(
      bytesOf([...HEAD, 'X-MCX: stays', '', 'Bcc: in the body', 'X-MC-Tags: too']).toString(),
    );
  });

  it('gets missing fields in front: unsubscribe, date, id, sender', async () => {
    const seen = await sendDocument(['Subject: Hello', '', 'text']);
    expect(seen.fields.map((field) => field.split(':', 1)[0])).to.deep.equal([
      'List-Unsubscribe',
      'List-Unsubscribe-Post',
      'From',
      'Date',
      'Message-ID',
      'Subject',
    ]);
    expect([valuesOf(seen, 'From'), valuesOf(seen, 'Date'), valuesOf(seen, 'Message-ID')]).to.deep.equal([
      ['Ann <ann@example.com>'],
      ['Mon, 05 Jan 2026 12:00:00 +0000'],
      [`<${ID}@mx.postern.test>`],
    ]);
    expect(bodyOf(seen)).to.equal('text\r\n');
  });

  it('has our Received line in front of everything', async () => {
    const seen = await sendDocument([...HEAD, '', 'x'], { settings: { trace: 'Received: from a\r\n\tby b; now\r\n' } });
    expect(seen.raw.toString()).to.equal(
      `Received: from a\r\n\tby b; now\r\n${bytesOf([...HEAD, '', 'x']).toString()}`,
    );
  });

  it('has another sender if the account set one', async () => {
    const seen = await sendDocument([...HEAD, '', 'x'], {
      outgoing: { sender: 'other@example.com', fromName: 'Öther' },
    });
    expect(seen.mail.from?.value).to.deep.equal([{ name: 'Öther', address: 'other@example.com' }]);
    expect(valuesOf(seen, 'From')).to.have.length(1);
    const same = await sendDocument(['From: ANN@Example.COM', ...HEAD.slice(1), '', 'x']);
    expect(valuesOf(same, 'From')).to.deep.equal(['ANN@Example.COM']);
  });

  it('is not composed if its author is ambiguous, as in a queue of an older version', async () => {
    for (const from of [
      'From: ann@example.com, eve@example.com',
      'From: ann@example.com\r\nFrom: eve@example.com',
      'From: eve@example.net <ann@example.com>',
      'From: =?utf-8?q?eve=40example.net?=',
    ]) {
      const error = await sendDocument([from, ...HEAD.slice(1), '', 'x']).catch((fault: unknown) => fault);
      expect(error, from).to.include({ name: 'UnclearAuthor' });
    }
  });

  it('has a simple From, unchanged if it was simple', async () => {
    const fromOf = async (from: string) => valuesOf(await sendDocument([from, ...HEAD.slice(1), '', 'x']), 'From');
    expect(await fromOf('From: "Ann" (of us) <ann(x)@example.com>')).to.deep.equal(['Ann <ann@example.com>']);
    expect(await fromOf('From: jü@example.com <ann@example.com>')).to.deep.equal([
      '=?UTF-8?Q?j=C3=BC=40example=2Ecom?= <ann@example.com>',
    ]);
    expect(await fromOf('From: =?utf-8?q?J=C3=BC_eve=40example.net?= <ann@example.com>')).to.deep.equal([
      '=?UTF-8?Q?J=C3=BC_eve_at_example=2Enet?= <ann@example.com>',
    ]);
    expect(await fromOf('From: =?utf-8?q?Eve_eve=40example.net?= <ann@example.com>')).to.deep.equal([
      '"Eve eve@example.net" <ann@example.com>',
    ]);
    for (const plain of [
      '"Ann,  of us"   <ANN@Example.com>',
      '=?utf-8?q?J=C3=BC?=  Ann <ann@example.com>',
      'ann@example.com',
    ])
      expect(await fromOf(`From: ${plain}`)).to.deep.equal([plain]);
  });

  it('has CRLF line ends', async () => {
    const seen = await sendDocument(Buffer.from([...HEAD, '', 'a', 'b\rc\r', '', 'd'].join('\n')));
    expect(seen.raw.toString()).to.equal([...HEAD, '', 'a', 'b', 'c', '', 'd'].join('\r\n'));
  });

  it('loses the From line of an mbox file, and is all body without a header', async () => {
    expect(
      (await sendDocument(['From ann@example.com Mon Jan  5 12:00:00 2026', ...HEAD, '', 'x'])).raw.toString(),
    ).to.equal(bytesOf([...HEAD, '', 'x']).toString());
    const bare = await sendDocument(['Hello there', 'no header: here']);
    expect([bodyOf(bare), valuesOf(bare, 'From')]).to.deep.equal([
      'Hello there\r\nno header: here\r\n',
      ['Ann <ann@example.com>'],
    ]);
    // Not a field that goes on from ours.
    const blank = await sendDocument([' X-Forged: by us', 'From: eve@example.com', '', 'x']);
    expect([bodyOf(blank), valuesOf(blank, 'From')]).to.deep.equal([
      ' X-Forged: by us\r\nFrom: eve@example.com\r\n\r\nx\r\n',
      ['Ann <ann@example.com>'],
    ]);
    for (const document of ['', '\r\n', 'Subject: x', 'Subject: x\r\n'])
      expect(bodyOf(await sendDocument(Buffer.from(document))), JSON.stringify(document)).to.equal('');
  });

  it('is read from its file when it is large', async () => {
    const path = join(await tempDir(), 'body');
    const document = bytesOf([...HEAD, '', 'x'.repeat(900)]);
    await writeFile(path, document);
    const seen = await sendDocument(Buffer.alloc(0), {
      body: { kind: 'file', path, size: document.length },
    });
    expect(seen.raw.equals(document)).to.equal(true);
  });
});

describe('merge tags in a document', () => {
  const tagged = [
    'From: "*|NAME|* of us" <ann@example.com>',
    ...HEAD.slice(1, 2),
    'Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe_*|NAME|*?=',
    ...HEAD.slice(3),
  ];

  it('are replaced in subject, name and texts', async () => {
    const seen = await sendDocument(
      [
        ...tagged,
        'Content-Type: text/plain; charset=utf-8',
        '',
        'Dear *|NAME|* of *|EMAIL|*, *|UNSUB:http://x.example|*',
      ],
      { outgoing: MERGED },
    );
    expect([seen.mail.subject, seen.mail.from?.value[0]?.name]).to.deep.equal(['Grüße Bøb', 'Bøb of us']);
    expect(textOf(seen.mail.text)).to.match(
      /^Dear Bøb of bob@example\.net, https:\/\/postern\.test\/unsubscribe\/[\w-]+$/,
    );
  });

  it('add no line to the header', async () => {
    const seen = await sendDocument([...tagged, '', 'x'], {
      outgoing: { globalVars: [{ name: 'NAME', content: 'a\r\nBcc: evil@example.com\r\n\r\nbody' }] },
    });
    expect(seen.mail.subject).to.equal('Grüße a Bcc: evil@example.com body');
    expect([valuesOf(seen, 'Bcc'), bodyOf(seen)]).to.deep.equal([[], 'x\r\n']);
  });

  it('stay byte for byte when nothing is merged', async () => {
    const document = bytesOf([
      ...tagged.slice(0, 2),
      'Subject: a\t*|NAME|*  b',
      ...tagged.slice(3),
      '',
      'Dear *|NAME|*',
    ]);
    expect((await sendDocument(document)).raw.equals(document)).to.equal(true);
  });

  it('make a part UTF-8 when its charset cannot encode the value, and declare it', async () => {
    const seen = await sendDocument(
      Buffer.concat([
        bytesOf([
          ...HEAD,
          'Content-Type: text/plain; format=flowed; charset="iso-8859-1"',
          'Content-Transfer-Encoding: 8bit',
          '',
        ]),
        Buffer.from('caf\xe9 *|NAME|*\r\n', 'latin1'),
      ]),
      { outgoing: { globalVars: [{ name: 'NAME', content: '日本' }] } },
    );
    expect(textOf(seen.mail.text)).to.equal('café 日本');
    expect(valuesOf(seen, 'Content-Type')).to.deep.equal(['text/plain; charset=utf-8; format="flowed"']);
    const ascii = await sendDocument([...HEAD, '', 'Dear *|NAME|*'], { outgoing: MERGED });
    expect(textOf(ascii.mail.text)).to.equal('Dear Bøb');
    expect([valuesOf(ascii, 'MIME-Version')[0], valuesOf(ascii, 'Content-Transfer-Encoding')[0]]).to.deep.equal([
      '1.0',
      'quoted-printable',
    ]);
  });

  it('use the line ends around them', async () => {
    const seen = await sendDocument([...HEAD, '', '*|NAME|*'], {
      outgoing: { globalVars: [{ name: 'NAME', content: 'a\nb\r\nc\rd' }] },
    });
    expect(bodyOf(seen)).to.equal('a\r\nb\r\nc\r\nd\r\n');
  });
});

describe('tracking of a document', () => {
  const HTML = '<html><body><p>Grüße <a href="https://x.example/?a&amp;b">x</a></p></body></html>';
  const TEXT = 'Grüße https://x.example/text';
  const encodings: Readonly<Record<string, (text: string) => string>> = {
    '8bit': (text) => text,
    base64: (text) => Buffer.from(text).toString('base64').replace(/.{76}/g, '$&\r\n'),
    'quoted-printable': (text) => encodeURIComponent(text).replace(/%/g, '='),
  };

  for (const [encoding, encode] of Object.entries(encodings)) {
    it(`changes only links in ${encoding} parts`, async () => {
      const part = (type: string, text: string) => [
        '--b',
        `Content-Type: ${type}; charset=utf-8`,
        `Content-Transfer-Encoding: ${encoding}`,
        'X-Own:  kept ',
        '',
        encode(text),
      ];
      const image = [
        '--b',
        'Content-Type: image/png',
        'Content-Transfer-Encoding: base64',
        '',
        '   iVBORw0K  Ggo=',
        'AAA',
      ];
      const seen = await sendDocument(
        [
          ...HEAD,
          'MIME-Version: 1.0',
          'Content-Type: multipart/alternative; boundary=b',
          '',
          'preamble  ',
          ...part('text/plain', TEXT),
          ...part('text/html', HTML),
          ...image,
          '--b--',
          'epilogue',
        ],
        { outgoing: TRACKED },
      );
      const [html, text] = [textOf(seen.mail.html), textOf(seen.mail.text)];
      expect([linksOf(html), linksOf(text)]).to.deep.equal([
        { clicks: ['https://x.example/?a&b'], opens: 1, unsubs: 0 },
        { clicks: ['https://x.example/text'], opens: 0, unsubs: 0 },
      ]);
      expect(html.replace(/<img[^>]*>/, '').replace(/href="[^"]*"/, 'href="https://x.example/?a&amp;b"')).to.equal(
        HTML,
      );
      expect(text.replace(/https:\S*/, 'https://x.example/text')).to.equal(TEXT);
      expect(seen.raw.toString())
        .to.contain(image.join('\r\n'))
        .and.contain('\r\n\r\npreamble  \r\n--b\r\n')
        .and.contain('\r\n--b--\r\nepilogue\r\n');
      expect(valuesOf(seen, 'List-Unsubscribe')).to.deep.equal(['<https://example.com/u>']);
    });
  }

  it('changes links in other charsets, which become UTF-8', async () => {
    const seen = await sendDocument(
      Buffer.concat([
        bytesOf([...HEAD, 'Content-Type: text/html; charset=shift_jis', '']),
        Buffer.from('8ea98e8e', 'hex'),
        Buffer.from(' <a href="https://x.example/">x</a>'),
      ]),
      { outgoing: { trackClicks: 'html' } },
    );
    expect(textOf(seen.mail.html)).to.match(/^自試 <a href="https:\/\/postern/);
  });

  it('adds one pixel to the first HTML part', async () => {
    const seen = await sendDocument(
      [
        ...HEAD,
        'Content-Type: multipart/mixed; boundary=b',
        '',
        '--b',
        'Content-Type: text/html',
        '',
        'one',
        '--b',
        'Content-Type: text/html',
        '',
        'two',
        '--b--',
      ],
      { outgoing: TRACKED },
    );
    expect(bodyOf(seen)).to.match(/one<img[^>]*>\r\n--b[^]*two\r\n--b--/);
    expect(linksOf(bodyOf(seen)).opens).to.equal(1);
  });

  const untouched: Readonly<Record<string, readonly string[]>> = {
    'an attachment': ['Content-Type: text/html', 'Content-Disposition: attachment; filename=a.html', '', HTML],
    'a part of an encoding nobody knows': [
      'Content-Type: text/html',
      'Content-Transfer-Encoding: x-uuencode',
      '',
      HTML,
    ],
    'a part of a charset nobody knows': ['Content-Type: text/html; charset=x-klingon', '', HTML],
    'a part whose bytes are not of its charset': [
      'Content-Type: text/html; charset=utf-8',
      ...QUOTED,
      '',
      '=E9 <a href=3D"https://x.example/">x</a>',
    ],
    'a message inside': ['Content-Type: message/rfc822', '', ...HEAD, 'Content-Type: text/html', '', HTML],
    'another kind of text': ['Content-Type: text/calendar', '', 'URL:https://x.example/'],
    'what is signed': [
      'Content-Type: multipart/signed; boundary=s',
      '',
      '--s',
      'Content-Type: text/html',
      '',
      HTML,
      '--s',
      'Content-Type: application/pgp-signature',
      '',
      'x',
      '--s--',
    ],
    'what is encrypted': [
      'Content-Type: multipart/encrypted; boundary=s',
      '',
      '--s',
      'Content-Type: text/html',
      '',
      HTML,
      '--s--',
    ],
  };
  for (const [name, part] of Object.entries(untouched)) {
    it(`leaves ${name} byte for byte`, async () => {
      const document = bytesOf([...HEAD, 'Content-Type: multipart/mixed; boundary=b', '', '--b', ...part, '--b--']);
      expect((await sendDocument(document, { outgoing: { ...TRACKED, ...MERGED } })).raw.toString()).to.equal(
        document.toString(),
      );
    });
  }

  it('leaves sealed parts alone', async () => {
    const document = bytesOf([
      ...HEAD,
      'Content-Type: multipart/signed; boundary=s',
      '',
      '--s',
      'Content-Type: text/html',
      '',
      `${HTML}${'x'.repeat(2000)}`,
      '--s',
      'Content-Type: application/pkcs7-signature',
      '',
      'x',
      '--s--',
    ]);
    expect((await sendDocument(document, { outgoing: TRACKED })).raw.equals(document)).to.equal(true);
  });

  it('leaves alone a message that exceeds the parser limits', async () => {
    const document = bytesOf([
      ...HEAD,
      'Content-Type: multipart/mixed; boundary=b',
      '',
      ...Array<string>(1500).fill('--b\r\nContent-Type: text/html\r\n\r\n<a href="https://x.example/">x</a>'),
      '--b--',
    ]);
    // mailparser refuses it too
    const { bytes } = await composeMail(toJob(document, { outgoing: { ...TRACKED, form: 'mime' } }));
    expect(Buffer.from(bytes).equals(document)).to.equal(true);
  });
});

describe('lines that are too long for SMTP', () => {
  const long = `${'word '.repeat(500)}é`;

  it('are encoded in text, which stays the same', async () => {
    const seen = await sendDocument([...HEAD, 'Content-Type: text/plain; charset=utf-8', '', long, 'next'], {});
    expect(textOf(seen.mail.text)).to.equal(`${long}\nnext`);
    expect(valuesOf(seen, 'Content-Transfer-Encoding')).to.deep.equal(['quoted-printable']);
    expect(
      Math.max(
        ...seen.raw
          .toString()
          .split('\r\n')
          .map((line) => line.length),
      ),
    ).to.be.at.most(200);
  });

  it('are encoded if tracking has made them', async () => {
    const html = '<a href="https://x.example/">x</a>'.repeat(20);
    const seen = await sendDocument(
      [...HEAD, 'Content-Type: text/html; charset=utf-8', 'Content-Transfer-Encoding: 7bit', '', html],
      { outgoing: TRACKED },
    );
    expect(linksOf(textOf(seen.mail.html))).to.deep.equal({
      clicks: Array<string>(20).fill('https://x.example/'),
      opens: 1,
      unsubs: 0,
    });
    expect(valuesOf(seen, 'Content-Transfer-Encoding')).to.deep.equal(['quoted-printable']);
  });

  it('are encoded again where the transfer encoding contains them', async () => {
    const base64 = Buffer.from(long.repeat(3)).toString('base64');
    const seen = await sendDocument(
      [...HEAD, 'Content-Type: text/plain; charset=utf-8', 'Content-Transfer-Encoding: base64', '', base64],
      {},
    );
    expect(textOf(seen.mail.text)).to.equal(long.repeat(3));
    expect(
      Math.max(
        ...seen.raw
          .toString()
          .split('\r\n')
          .map((line) => line.length),
      ),
    ).to.be.at.most(200);
  });

  it('stay outside text', async () => {
    const document = bytesOf([
      ...HEAD,
      'Content-Type: application/octet-stream',
      'Content-Transfer-Encoding: base64',
      '',
      'A'.repeat(4000),
    ]);
    expect((await sendDocument(document)).raw.equals(document)).to.equal(true);
  });

  it('of exactly 998 octets stay', async () => {
    const document = bytesOf([...HEAD, '', 'x'.repeat(998)]);
    expect((await sendDocument(document)).raw.equals(document)).to.equal(true);
    expect(
      valuesOf(await sendDocument(bytesOf([...HEAD, '', 'x'.repeat(999)])), 'Content-Transfer-Encoding'),
    ).to.deep.equal(['quoted-printable']);
  });
});
