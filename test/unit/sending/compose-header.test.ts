import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import { withSendableHeader } from '../../../src/mail/compose/sendable.ts';
import { type Seen, sendDocument, sendDraft } from '../../support/compose.ts';
import { makeKey, signMessage } from '../../support/dns-keys.ts';
import { createPython } from '../../support/python.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';
import { zoneResolver } from '../../support/zone.ts';

const KEY = makeKey('example.com', 'postern', 2048);
const OTHER = makeKey('author.example', 'own', 2048);
const authenticator = createAuthenticator({
  resolver: zoneResolver({ ...KEY.records, ...OTHER.records }),
  settings: { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'in.postern.test', trustedSealers: [] },
  clock: systemClock,
});
/** Domains whose signature is valid, by a library that did not sign. */
const validBy = async (raw: Uint8Array) => {
  const client = { address: null, helo: null, tls: null };
  const verdicts = await authenticator.authenticate(
    { kind: 'memory', bytes: raw },
    { mailFrom: 'ann@example.com', client },
  );
  return { ours: verdicts.dkim.valid, all: JSON.stringify(verdicts) };
};

const HEAD = [
  'From: Ann <ann@example.com>',
  'To: bob@example.net',
  'Date: Tue, 06 Jan 2026 10:00:00 +0100',
  'Message-ID: <own@example.com>',
  'List-Unsubscribe: <https://example.com/u>',
];
const SUBJECT = 'Subject: Hello';
const headerOf = ({ raw }: Seen) => raw.toString('latin1').split('\r\n\r\n', 1)[0] ?? '';
const longest = (text: string) => Math.max(...text.split('\r\n').map((line) => Buffer.byteLength(line, 'latin1')));
const sent = async (lines: readonly string[], encoding: BufferEncoding = 'utf8', changes = {}) => {
  const seen = await sendDocument(Buffer.from(lines.map((line) => `${line}\r\n`).join(''), encoding), {
    dkim: KEY,
    ...changes,
  });
  expect((await validBy(seen.raw)).ours, 'the signature').to.equal(true);
  return seen;
};

/** What Python's email reads in fields: texts decoded, and addresses as [name, address]. */
const python = createPython(`
import email, email.policy, email.header, email.utils
def text(v):
    return str(email.header.make_header(email.header.decode_header(v)))
def answer(raw, names):
    m = email.message_from_bytes(raw)
    out = {}
    for n in names:
        v = [''.join(x.splitlines()) for x in m.get_all(n, [])]
        out[n] = [text(x) for x in v]
        out[n + ' addresses'] = [[text(a), b] for a, b in email.utils.getaddresses(v)]
    out['files'] = [p.get_filename() for p in m.walk() if p.get_filename()]
    return out
`);

describe('lines of an outgoing header', () => {
  const ids = Array.from({ length: 40 }, (_, at) => `<${at}.${'x'.repeat(40)}@mail.example.com>`);

  it('are folded where they are too long, and the signature stays valid', async () => {
    const seen = await sent([
      ...HEAD,
      SUBJECT,
      `References: ${ids.join(' ')}`,
      `Errors-To: "${'a\\ b c '.repeat(200)}" <e@example.com>`,
      '',
      'x',
    ]);
    expect(longest(headerOf(seen))).to.be.at.most(78);
    expect((await python(seen.raw, ['References'])).References).to.deep.equal([ids.join(' ')]);
    expect(headerOf(seen)).not.to.match(/\\\r\n/);
  });

  it('stay byte for byte up to 998 octets', async () => {
    const lines = [
      ...HEAD,
      SUBJECT,
      `X-Long: ${'a '.repeat(494)}b`,
      `X-Folded: ${'b '.repeat(480)}`,
      `\t${'c '.repeat(400)}d`,
    ];
    const seen = await sent([...lines, '', 'x']);
    expect(longest(headerOf(seen))).to.equal(997);
    expect(headerOf(seen).endsWith(lines.join('\r\n'))).to.equal(true);
    const over = await sent([...HEAD, SUBJECT, `X-Long: ${'a '.repeat(495)}b`, 'X-Short: as   it is', '', 'x']);
    expect(longest(headerOf(over))).to.equal(76);
    expect(headerOf(over)).to.include('X-Short: as   it is');
  });

  it('are folded in a draft, for any headers', async () => {
    const headers = [
      ['References', ids.join(' ')],
      ['X-Token', 'k'.repeat(3000)],
      ['X-Json', `{"a":"${'b'.repeat(2000)}"}`],
      ['X-Blanks', `a${' '.repeat(3000)}b`],
      ['Reply-To', Array.from({ length: 60 }, (_, at) => `person${at}@example.com`).join(',')],
      ['Errors-To', Array.from({ length: 60 }, (_, at) => `person${at}@example.com`).join(',')],
      ['Autocrypt', `addr=ann@example.com; keydata=${'QUJD'.repeat(500)}`],
    ] as const;
    const seen = await sendDraft(
      { text: 'x', headers },
      { dkim: KEY, outgoing: { subject: 's'.repeat(3000), fromName: 'n'.repeat(3000) } },
    );
    expect((await validBy(seen.raw)).ours).to.equal(true);
    expect(longest(headerOf(seen))).to.be.at.most(998);
    const read = await python(seen.raw, ['X-Token', 'X-Json', 'Subject', 'From', 'Errors-To', 'Reply-To', 'Autocrypt']);
    expect(read['X-Token']).to.deep.equal(['k'.repeat(3000)]);
    expect(read['X-Json']).to.deep.equal([headers[2][1]]);
    expect(read.Subject).to.deep.equal(['s'.repeat(3000)]);
    expect(read['From addresses']).to.deep.equal([['n'.repeat(3000), 'ann@example.com']]);
    expect(read['Errors-To addresses']).to.have.length(60);
    expect(read['Reply-To addresses']).to.have.length(60);
    expect(String(read.Autocrypt).replaceAll(' ', '')).to.equal(headers[6][1].replaceAll(' ', ''));
  });

  it('are split where a field without blanks allows one', async () => {
    const seen = await sent([
      ...HEAD,
      SUBJECT,
      `In-Reply-To: ${ids.join('')}`,
      `Cc: ${Array.from({ length: 90 }, (_, at) => `"A,${at}"<c${at}@example.com>`).join(',')}`,
      `Resent-To: ${'ö'.repeat(600)} <r@example.com>`,
      '',
      'x',
    ]);
    expect(longest(headerOf(seen))).to.be.at.most(78);
    const read = await python(seen.raw, ['In-Reply-To', 'Cc', 'Resent-To']);
    expect(read['In-Reply-To']).to.deep.equal([ids.join(' ')]);
    expect(read['Cc addresses']).to.have.length(90).and.to.deep.include(['A,89', 'c89@example.com']);
    expect(read['Resent-To addresses']).to.deep.equal([['ö'.repeat(600), 'r@example.com']]);
  });

  it('are dropped with their field if they cannot be split, or rejected if the message needs it', async () => {
    for (const field of [
      `Cc: ${'x'.repeat(1200)}@example.com`,
      `Received: ${'x'.repeat(1200)}`,
      `In-Reply-To: <${'x'.repeat(1200)}@x>`,
    ]) {
      const seen = await sent([...HEAD, field, SUBJECT, '', 'x']);
      expect(headerOf(seen)).to.include(`${HEAD.join('\r\n')}\r\n${SUBJECT}`);
    }
    for (const field of [
      `Message-ID: <${'x'.repeat(1200)}@example.com>`,
      `Content-Type: text/plain; boundary*=${'x'.repeat(1200)}`,
    ]) {
      const others = HEAD.filter((line) => !line.startsWith(field.slice(0, 4)));
      const fault = await sendDocument([...others, SUBJECT, field, '', 'x']).catch((error: unknown) => error);
      const name = field.slice(0, field.indexOf(':'));
      expect(String(fault)).to.match(
        new RegExp(`^UnsendableField: the header field ${name} has a word of more than 998`),
      );
    }
  });
});

describe('raw 8-bit fields', () => {
  it('are encoded in their charset', async () => {
    const seen = await sent([
      'From: Jürgen Größe <ann@example.com>',
      'To: "Müller, Jörg" <bob@example.net>, Team Köln: Zoë <z@example.net>, plain@example.net;',
      'Cc: kim@example.net (Kim aus Köln), <info@größe.example>, Ö @ Acme <o@example.net>',
      'Subject: Größe der Datei =?utf-8?Q?f=C3=BCr?= Österreich, ok',
      'X-Note: id=5; name=Größe',
      'List-Id: Liste für Größe <liste.example.com>',
      'In-Reply-To: <größe@example.com>',
      ...HEAD.slice(2),
      '',
      'x',
    ]);
    expect(headerOf(seen)).to.match(/^[\t\r\n -~]*$/);
    expect(longest(headerOf(seen))).to.be.at.most(78);
    const read = await python(seen.raw, ['From', 'To', 'Cc', 'Subject', 'X-Note', 'List-Id', 'In-Reply-To']);
    expect(read['From addresses']).to.deep.equal([['Jürgen Größe', 'ann@example.com']]);
    expect(read['To addresses']).to.deep.include.members([
      ['Müller, Jörg', 'bob@example.net'],
      ['Zoë', 'z@example.net'],
      ['', 'plain@example.net'],
    ]);
    expect(read['Cc addresses']).to.deep.include.members([
      ['Kim aus Köln', 'kim@example.net'],
      ['', 'info@xn--gre-6ka8i.example'],
      ['Ö @ Acme', 'o@example.net'],
    ]);
    expect(read.Subject).to.deep.equal(['Größe der Datei für Österreich, ok']);
    expect(read['X-Note']).to.deep.equal(['id=5; name=Größe']);
    expect(headerOf(seen)).to.include('X-Note: id=5; =?');
    expect(read['List-Id']).to.deep.equal(['Liste für Größe <liste.example.com>']);
    expect(read['In-Reply-To']).to.deep.equal(['<gr%C3%B6%C3%9Fe@example.com>']);
  });

  it('are decoded by the charset of the body if they are not UTF-8', async () => {
    const latin1 = await sent([...HEAD, 'Subject: Größe', '', 'x'], 'latin1');
    expect((await python(latin1.raw, ['Subject'])).Subject).to.deep.equal(['Größe']);
    const koi8 = Buffer.concat([
      Buffer.from(`${HEAD.join('\r\n')}\r\nSubject: `),
      Buffer.from([0xf0, 0xd2, 0xc9, 0xd7, 0xc5, 0xd4]),
      Buffer.from(
        '\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain; charset=koi8-r\r\n\r\nx\r\n--b--\r\n',
      ),
    ]);
    expect((await python((await sendDocument(koi8)).raw, ['Subject'])).Subject).to.deep.equal(['Привет']);
  });

  it('are encoded in the parts, with file names', async () => {
    const seen = await sent([
      ...HEAD,
      SUBJECT,
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b',
      'Content-Type: application/pdf; name="Größe der Datei.pdf"',
      `Content-Disposition: attachment; filename="${'Größe '.repeat(30)}.pdf"`,
      '',
      'x',
      '--b',
      `Content-Disposition: attachment; filename="${'x'.repeat(1200)}.pdf"; size=5`,
      '',
      'x',
      '--b--',
    ]);
    expect(seen.raw.toString('latin1')).to.match(/^[\t\r\n -~]*$/);
    expect(longest(seen.raw.toString('latin1'))).to.be.at.most(998);
    expect((await python(seen.raw, [])).files).to.deep.equal([`${'Größe '.repeat(30)}.pdf`, `${'x'.repeat(1200)}.pdf`]);
  });

  it('are merged decoded', async () => {
    const outgoing = { globalVars: [{ name: 'NAME', content: 'Bøb' }], sender: 'ann@example.com' };
    const lines = [
      'From: Büro für *|NAME|* <ann@example.com>',
      ...HEAD.slice(1),
      'Subject: Größe von *|NAME|*',
      '',
      'x',
    ];
    for (const encoding of ['utf8', 'latin1'] as const) {
      const read = await python((await sent(lines, encoding, { outgoing })).raw, ['Subject', 'From']);
      expect(read.Subject).to.deep.equal(['Größe von Bøb']);
      expect(read['From addresses']).to.deep.equal([['Büro für Bøb', 'ann@example.com']]);
    }
  });

  it('stay where an address needs SMTPUTF8, and become UTF-8 there', async () => {
    const lines = [...HEAD, 'Subject: Größe', 'Reply-To: jörg@example.com', '', 'x'];
    const text = `${lines.join('\r\n')}\r\n`;
    expect((await sendDocument(lines)).raw.toString()).to.equal(text);
    const by = { recipient: 'jörg@example.net' };
    const other = [...HEAD, 'Subject: Größe', '', 'x'];
    expect((await sendDocument(other, by)).raw.toString()).to.equal(`${other.join('\r\n')}\r\n`);
    const domain = { recipient: 'bob@größe.example' };
    expect(headerOf(await sendDocument(other, domain))).to.match(/^[\t\r\n -~]*$/);
    const latin1 = await sent(other, 'latin1', by);
    expect((await python(latin1.raw, ['Subject'])).Subject).to.deep.equal(['Größe']);
  });

  it('stay where an existing signature covers them', async () => {
    const lines = ['From: Ann <ann@example.com>', ...HEAD.slice(1), 'Subject: Größe', 'X-Other: Größe'];
    const unsigned = Buffer.from(`${lines.join('\r\n')}\r\n\r\nbody\r\n`).toString('latin1');
    const fields = ['from', 'to', 'subject', 'date'];
    const signed = signMessage(unsigned, OTHER, { fields });
    const seen = await sendDocument(Buffer.from(signed, 'latin1'), { dkim: KEY });
    expect(headerOf(seen)).to.include(Buffer.from('Subject: Größe').toString('latin1'));
    expect(headerOf(seen)).to.match(/X-Other: =\?utf-8\?Q\?Gr=C3=B6=C3=9Fe\?=/);
    const { all } = await validBy(seen.raw);
    expect(all).to.match(/author\.example/);
  });

  it('leave signed or attached messages as they are', async () => {
    const body = [
      '--b',
      'Content-Type: multipart/signed; boundary=s; protocol="application/pgp-signature"; micalg=pgp-sha256',
      '',
      '--s',
      'Content-Type: text/plain; name="Größe.txt"',
      `X-Long: ${'a '.repeat(600)}`,
      '',
      'Grüße',
      '--s--',
      '--b',
      'Content-Type: message/rfc822',
      '',
      'Subject: Größe',
      '',
      'x',
      '--b--',
    ];
    const seen = await sent([...HEAD, 'Subject: Größe', 'Content-Type: multipart/mixed; boundary=b', '', ...body]);
    expect(seen.raw.toString().endsWith(body.map((line) => `${line}\r\n`).join(''))).to.equal(true);
  });
});

describe('addresses in headers of the API', () => {
  const FIELDS = [
    'Sender',
    'Reply-To',
    'Disposition-Notification-To',
    'Return-Receipt-To',
    'Errors-To',
    'Mail-Followup-To',
    'Mail-Reply-To',
    'X-Confirm-Reading-To',
  ];
  it('are never inside an encoded word', async () => {
    for (const [value, expected] of [
      ['Jörg <a@x.test>', [['Jörg', 'a@x.test']]],
      [
        '"Größe, Jörg" <a@x.test>, b@x.test',
        [
          ['Größe, Jörg', 'a@x.test'],
          ['', 'b@x.test'],
        ],
      ],
      ['Jörg <a@größe.test>', [['Jörg', 'a@xn--gre-6ka8i.test']]],
      ['日本 太郎 <a@x.test>', [['日本 太郎', 'a@x.test']]],
    ] as const) {
      const seen = await sendDraft({ text: 'x', headers: FIELDS.map((name) => [name, value] as const) });
      expect(headerOf(seen)).to.match(/^[\t\r\n -~]*$/);
      const read = await python(seen.raw, FIELDS);
      for (const name of FIELDS) expect(read[`${name} addresses`], name).to.deep.equal(expected);
    }
  });

  it('keep comments, groups and URLs', async () => {
    const seen = await sendDraft({
      text: 'x',
      headers: [
        ['Mail-Reply-To', 'a@x.test (Jörg)'],
        ['Errors-To', 'Büro: a@x.test, Zoë <b@x.test>;'],
        ['List-Help', '<https://x.test/größe> (Größe)'],
        ['List-Id', 'Größe <liste.x.test>'],
        ['X-Free', 'Jörg <a@x.test>'],
      ],
    });
    const read = await python(seen.raw, ['Mail-Reply-To', 'Errors-To', 'List-Help', 'List-Id', 'X-Free']);
    expect(read['Mail-Reply-To addresses']).to.deep.equal([['Jörg', 'a@x.test']]);
    expect(read['Errors-To addresses']).to.deep.include.members([
      ['', 'a@x.test'],
      ['Zoë', 'b@x.test'],
    ]);
    expect(read['List-Help']).to.deep.equal(['<https://x.test/gr%C3%B6%C3%9Fe> (Größe)']);
    expect(read['List-Id']).to.deep.equal(['Größe <liste.x.test>']);
    expect(read['X-Free']).to.deep.equal(['Jörg <a@x.test>']);
  });
});

describe('the header of outgoing mail', () => {
  const facts = { charset: () => '', utf8: false };

  it('is ASCII in short lines, or rejected, for any input', () => {
    const random = randomFrom(5600);
    const pieces = [
      'a',
      ' ',
      '\t',
      'ö',
      '"',
      '\\',
      '(',
      ')',
      '<',
      '>',
      '@',
      ',',
      ';',
      ':',
      '=',
      '=?utf-8?Q?',
      '?=',
      '\r\n ',
      'x'.repeat(300),
      ' '.repeat(600),
      '日本',
      '\x80',
    ];
    const names = ['To', 'Subject', 'References', 'Content-Type', 'DKIM-Signature', 'Received', 'List-Id', 'X-Any'];
    for (let round = 0; round < 3000; round++) {
      const value = randomText(random, pieces, 40)
        .replace(/\r(?!\n )|(?<!\r)\n/g, '')
        .replace(/(?:\r\n[ \t]*)+/g, '\r\n ');
      const message = Buffer.from(
        `${names[round % names.length]}: ${round % 2 ? value : value.replace(/[^\0-\xff]/gu, '\x80')}x\r\nX-Behind: here\r\n\r\nbody`,
        round % 2 ? 'utf8' : 'latin1',
      );
      let text = '';
      try {
        text = withSendableHeader(message, facts).toString('latin1');
      } catch (error) {
        expect(error).to.include({ name: 'UnsendableField' });
        continue;
      }
      const header = text.split('\r\n\r\n', 1)[0] ?? '';
      expect(longest(header), JSON.stringify(value)).to.be.at.most(998);
      if (!/@/.test(value)) expect(header, JSON.stringify(value)).not.to.match(/[\x80-\xff]/);
      expect(text.endsWith('\r\nX-Behind: here\r\n\r\nbody'), JSON.stringify(value)).to.equal(true);
    }
  });

  it('takes linear time', () => {
    for (const piece of [
      '"\\',
      '"',
      '(',
      '<',
      '<a@',
      'ö',
      'ö ',
      ', ',
      '=?utf-8?Q?ö?= ',
      '\\ ',
      ' ',
      ';a="ö',
      '><',
      'x',
    ]) {
      for (const name of ['To', 'Subject', 'References', 'Content-Type', 'ARC-Seal']) {
        const message = Buffer.from(`${name}: ${piece.repeat(300_000 / piece.length)}x\r\n\r\nbody`);
        try {
          expect(withSendableHeader(message, facts).length).to.be.above(4);
        } catch (error) {
          expect(error).to.include({ name: 'UnsendableField' });
        }
      }
    }
  });
});
