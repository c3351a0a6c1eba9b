import { crlf, multipart } from './mime.ts';

export interface Sample {
  readonly bytes: Buffer;
}

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const HEAD = [
  'Received: by mail-ej1-f54.example.com with SMTP id a640c23a62f3a',
  '        for <in@example.net>; Mon, 05 Jan 2026 03:59:57 -0800 (PST)',
  'DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=example.com; s=2023;',
  '        h=to:subject:message-id:date:from:mime-version:from:to:cc:subject;',
  '        bh=frcCV1k9oG9oKj3dpUqdJg1PxRT2RSN/XKdLCPjaYaY=; b=Vm9udA==',
  'MIME-Version: 1.0',
  'Message-ID: <CAGBx7Gg@mail.example.com>',
  'Date: Mon, 05 Jan 2026 12:00:00 +0100',
] as const;
const WHO = [
  'From: "Doe, Jane" <jane@example.com>',
  'To: In Box <in@example.net>, other@example.net',
  'Subject: Quarterly numbers',
] as const;
const COMMON = [...HEAD, ...WHO] as const;

function latin1(...lines: string[]): Buffer {
  return Buffer.from(lines.map((line) => `${line}\r\n`).join(''), 'latin1');
}

/** Messages in the shapes that software in the field writes. The names are what is special about them. */
export const CORPUS: Readonly<Record<string, Sample>> = {
  'plain text': { bytes: crlf(...COMMON, '', 'Hello,', '', 'see you.', '-- ', 'Jane') },
  'plain text with a charset': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: text/plain; charset="UTF-8"',
      'Content-Transfer-Encoding: 8bit',
      '',
      'Grüße aus Köln 🎉',
    ),
  },
  'only HTML': { bytes: crlf(...COMMON, 'Content-Type: text/html; charset=utf-8', '', '<p>Hello</p>') },
  'flowed text': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: text/plain; charset=utf-8; format=flowed; delsp=yes',
      '',
      'A long line that ',
      'goes on.',
      '> quoted ',
      '> more',
    ),
  },
  'text and HTML as alternatives': {
    bytes: multipart(
      'alternative',
      COMMON,
      ['Content-Type: text/plain; charset="UTF-8"', '', 'Hello', ''],
      [
        'Content-Type: text/html; charset="UTF-8"',
        'Content-Transfer-Encoding: quoted-printable',
        '',
        '<div dir=3D"ltr">Hello=20',
        'caf=C3=A9 =',
        'goes on</div>',
        '',
      ],
    ),
  },
  'quoted-printable with odd line ends': {
    bytes: crlf(
      ...COMMON,
      'Content-Transfer-Encoding: Quoted-Printable',
      '',
      'white space at the end \t ',
      'kept=20',
      'soft = ',
      'break=',
      '',
      'a=3Db = c =zz =4',
      'last=',
    ),
  },
  'base64 text': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: text/plain; charset=utf-8',
      'Content-Transfer-Encoding: base64',
      '',
      Buffer.from('Zeile 1\r\nZeile 2 ä\r\n').toString('base64'),
    ),
  },
  'an attached file': {
    bytes: multipart(
      'mixed',
      COMMON,
      ['Content-Type: text/plain', '', 'see file'],
      [
        'Content-Type: application/pdf; name="report.pdf"',
        'Content-Disposition: attachment; filename="report.pdf"',
        'Content-Transfer-Encoding: base64',
        'Content-ID: <f_1>',
        'X-Attachment-Id: f_1',
        '',
        'JVBERi0xLjQKJeLjz9MKMSAwIG9i',
        'agpbXQo=',
      ],
    ),
  },
  'a text file and a binary one': {
    bytes: multipart(
      'mixed',
      COMMON,
      ['Content-Type: text/csv; charset=utf-8', 'Content-Disposition: attachment; filename=a.csv', '', 'a;b', '1;2'],
      [
        'Content-Type: application/octet-stream',
        'Content-Disposition: attachment; filename=b.bin',
        'Content-Transfer-Encoding: quoted-printable',
        '',
        '=00=01=FF',
      ],
    ),
  },
  'an image in the text': {
    bytes: multipart(
      'related',
      COMMON,
      ['Content-Type: text/html', '', '<img src="cid:logo@example.com">'],
      [
        'Content-Type: image/png; name=logo.png',
        'Content-Disposition: inline; filename=logo.png',
        'Content-ID: <logo@example.com>',
        'Content-Transfer-Encoding: base64',
        '',
        PNG,
      ],
    ),
  },
  'mixed with related with alternative': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: multipart/mixed;',
      '\tboundary="----=_Part_1"',
      '',
      'This is a multi-part message in MIME format.',
      '------=_Part_1',
      'Content-Type: multipart/related; boundary=rel',
      '',
      '--rel',
      'Content-Type: multipart/alternative; boundary=alt',
      '',
      '--alt',
      '',
      'plain',
      '--alt',
      'Content-Type: text/html',
      '',
      '<b>rich</b>',
      '--alt--',
      '',
      '--rel',
      'Content-Type: image/png',
      'Content-ID: <i1>',
      'Content-Transfer-Encoding: base64',
      '',
      PNG,
      '--rel--',
      '',
      '------=_Part_1',
      'Content-Type: text/plain; name="n.txt"',
      'Content-Disposition: attachment',
      '',
      'note',
      '------=_Part_1--',
      'epilogue',
    ),
  },
  'encoded words': {
    bytes: crlf(
      'From: =?UTF-8?B?SsO8cmdlbiBN?= =?UTF-8?B?w7xsbGVy?= <j@example.com>',
      'To: =?iso-8859-1?Q?Andr=E9_P?= <a@example.net>',
      'Subject: =?utf-8?q?Caf=C3?= =?utf-8?q?=A9?= and =?us-ascii?q?more?=',
      ' =?utf-8?b?8J+OiQ==?=',
      '',
      'x',
    ),
  },
  'encoded file names': {
    bytes: multipart(
      'mixed',
      COMMON,
      [
        'Content-Type: application/pdf; name="=?UTF-8?B?w5xiZXJzaWNodC5wZGY=?="',
        'Content-Disposition: attachment; filename="=?UTF-8?Q?=C3=9Cbersicht.pdf?="',
        '',
        'x',
      ],
      ["Content-Disposition: attachment; filename*=UTF-8''%e2%82%ac%20rates.txt", 'Content-Type: text/plain', '', 'y'],
    ),
  },
  'file names in pieces (RFC 2231)': {
    bytes: multipart(
      'mixed',
      COMMON,
      [
        "Content-Disposition: attachment; filename*0*=utf-8''%C3%9Cber; filename*1*=sicht%20; filename*2=2026.pdf",
        'Content-Type: application/pdf',
        '',
        'x',
      ],
      [
        "Content-Disposition: attachment; filename*=iso-8859-1'de'%DCbersicht.pdf",
        'Content-Type: application/pdf',
        '',
        'y',
      ],
    ),
  },
  'a boundary and a charset in the form of RFC 2231': {
    bytes: crlf(
      ...COMMON,
      "Content-Type: multipart/signed; micalg*=us-ascii''pgp-md5;",
      "\tboundary*0*=us-ascii''Ee%51f;",
      '\tboundary*1=GwPc',
      '',
      '--EeQfGwPc',
      "Content-Type: text/plain; charset*=us-ascii''koi8-r",
      'Content-Transfer-Encoding: quoted-printable',
      '',
      '=F0=D2=C9=D7=C5=D4',
      '--EeQfGwPc',
      'Content-Type: application/pgp-signature',
      '',
      'x',
      '--EeQfGwPc--',
    ),
  },
  'windows-1252': {
    bytes: latin1(
      ...COMMON,
      'Content-Type: text/plain; charset=windows-1252',
      'Content-Transfer-Encoding: 8bit',
      '',
      'd\xe9j\xe0 vu \x93quoted\x94 \x80',
    ),
  },
  'latin1 in quoted-printable': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: text/plain; charset=ISO-8859-1',
      'Content-Transfer-Encoding: quoted-printable',
      '',
      'd=E9j=E0 vu',
    ),
  },
  'iso-2022-jp': {
    bytes: latin1(
      'From: =?ISO-2022-JP?B?GyRCJDMkcyRLJEEkTxsoQg==?= <k@example.jp>',
      'Subject: =?ISO-2022-JP?B?GyRCJDMkcyRLJEEkTxsoQg==?=',
      'Content-Type: text/plain; charset=ISO-2022-JP',
      '',
      '\x1b$B$3$s$K$A$O\x1b(B',
    ),
  },
  'an unknown charset': { bytes: crlf(...COMMON, 'Content-Type: text/plain; charset=x-unknown-8', '', 'plain enough') },
  'UTF-8 in headers': { bytes: crlf('From: Jürgen <j@example.com>', 'To: in@example.net', 'Subject: Grüße', '', 'x') },
  '8-bit headers that are not UTF-8': {
    bytes: latin1('From: J\xfcrgen <j@example.com>', 'Subject: Gr\xfc\xdfe', '', 'x'),
  },
  'groups and comments': {
    bytes: crlf(
      'From: jane@example.com (Jane)',
      'To: team: a@example.net, B <b@example.net>;, undisclosed:;',
      'Cc: c@example.net',
      'Cc: "D" <d@example.net>',
      'Subject: x',
      '',
      'x',
    ),
  },
  'an attached message': {
    bytes: multipart(
      'mixed',
      COMMON,
      ['', 'forwarded'],
      [
        'Content-Type: message/rfc822',
        'Content-Disposition: inline',
        '',
        'From: a@example.com',
        'Subject: inner',
        'Content-Type: multipart/mixed; boundary=in',
        '',
        '--in',
        '',
        'inner text',
        '--in--',
      ],
    ),
  },
  'a bounce': {
    bytes: multipart(
      'report; report-type=delivery-status',
      COMMON,
      ['Content-Description: Notification', '', 'It did not arrive.'],
      [
        'Content-Type: message/delivery-status',
        '',
        'Reporting-MTA: dns; mx.example.com',
        '',
        'Final-Recipient: rfc822; x@example.com',
        'Action: failed',
      ],
      ['Content-Type: text/rfc822-headers', '', 'Subject: hello'],
    ),
  },
  'an invitation': {
    bytes: multipart(
      'alternative',
      COMMON,
      ['Content-Type: text/plain', '', 'meet'],
      ['Content-Type: text/calendar; charset=utf-8; method=REQUEST', '', 'BEGIN:VCALENDAR', 'END:VCALENDAR'],
    ),
  },
  'two texts and two HTML parts': {
    bytes: multipart(
      'mixed',
      COMMON,
      ['', 'one'],
      ['Content-Type: text/html', '', '<i>1</i>'],
      ['', 'two'],
      ['Content-Type: text/html', '', '<i>2</i>'],
    ),
  },
  'empty parts': {
    bytes: multipart(
      'mixed',
      COMMON,
      ['Content-Type: text/plain', ''],
      ['Content-Type: text/html', ''],
      ['Content-Type: image/gif', ''],
    ),
  },
  'an empty body': { bytes: crlf(...COMMON, '') },
  'no subject and no To': { bytes: crlf('From: a@example.com', '', 'x') },
  'an encoding nobody knows': { bytes: crlf(...COMMON, 'Content-Transfer-Encoding: x-yenc', '', '=ybegin line=128') },
  'a uuencoded text': {
    bytes: crlf(...COMMON, 'Content-Transfer-Encoding: x-uuencode', '', 'begin 644 a', '%:&5L;&\\ ', '`', 'end'),
  },
  'a base64 body with dirt in it': { bytes: crlf(...COMMON, 'Content-Transfer-Encoding: base64', '', 'SGVs bG8=!') },
  'two Subject and two From fields': {
    bytes: crlf('From: a@example.com', 'From: b@example.com', 'Subject: one', 'Subject: two', '', 'x'),
  },
  'a truncated multipart': {
    bytes: multipart('mixed', COMMON, ['', 'one'], ['Content-Type: image/png; name=a.png', '', 'half an im']).subarray(
      0,
      -30,
    ),
  },
  'base64 that begins anew after padding': {
    bytes: crlf(...COMMON, 'Content-Transfer-Encoding: base64', '', 'SGVsbG8=', 'IHRoZXJl', 'IQ=='),
  },
  'words in charsets of the world': {
    bytes: crlf(
      'From: =?koi8-r?B?8NLJ18XU?= <a@example.com>',
      'Subject: =?gb2312?B?xOO6ww==?= =?big5?B?p0Gmbg==?= =?shift_jis?B?grGC8Q==?= =?windows-1251?Q?=CF=F0=E8?= =?euc-kr?B?vsiz5w==?=',
      '',
      'x',
    ),
  },
  'words in a charset nobody knows': { bytes: crlf('From: a@example.com', 'Subject: =?x-unknown?q?abc?=', '', 'x') },
  'words with white space inside': {
    bytes: crlf('From: a@example.com', 'Subject: =?utf-8?q?caf=C3=A9 and more?=', '', 'x'),
  },
  'words in names in quotes': {
    bytes: crlf('From: "=?utf-8?q?J=C3=BCrgen?=" <j@example.com>', 'To: <in@example.net>', '', 'x'),
  },
  'a comma that separates nothing': {
    bytes: crlf('From: a@example.com', 'To: a@example.net, , "B" <b@example.net>,', '', 'x'),
  },
  'a text in Korean': { bytes: latin1(...COMMON, 'Content-Type: text/plain; charset=euc-kr', '', '\xbe\xc8\xb3\xe7') },
  '8-bit text in quoted-printable': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: text/plain; charset=utf-8',
      'Content-Transfer-Encoding: quoted-printable',
      '',
      'Grüße =',
      'und mehr',
    ),
  },
  'a disposition nobody knows': {
    bytes: multipart('mixed', COMMON, ['Content-Disposition: form-data; name=x', 'Content-Type: text/plain', '', 'x']),
  },
  'an inner multipart that nobody closed': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: multipart/mixed; boundary=out',
      '',
      '--out',
      'Content-Type: multipart/alternative; boundary=in',
      '',
      '--in',
      '',
      'one',
      '--out',
      'Content-Type: text/html',
      '',
      '<b>',
      '--out--',
    ),
  },
  'delimiters with white space behind them': {
    bytes: crlf(
      ...COMMON,
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b ',
      '',
      'one',
      '--b\t',
      'Content-Type: text/html',
      '',
      '<b>',
      '--b--',
    ),
  },
  'a multipart without a boundary': {
    bytes: crlf(...COMMON, 'Content-Type: multipart/mixed', '', '--b', '', 'one', '--b--'),
  },
  'a type that is none': {
    bytes: crlf(...COMMON, 'Content-Type: text', '', 'hello'),
  },
};
