import { crlf, multipart } from './mime.ts';

/** Multiparts inside multiparts. */
export function nested(depth: number): Buffer {
  const opening = Array.from(
    { length: depth },
    (_, i) => `Content-Type: multipart/mixed; boundary=b${i}\r\n\r\n--b${i}\r\n`,
  );
  return Buffer.from(`From: a@example.com\r\n${opening.join('')}\r\ninnermost\r\n`);
}

const FROM = 'From: a@example.com';
const many = (count: number, line: (i: number) => string) => Array.from({ length: count }, (_, i) => line(i));

/** A part whose name is in pieces. */
const PIECES = [
  'Content-Disposition: attachment; filename*0=a; filename*1=.pdf',
  'Content-Type: application/pdf',
  '',
  'x',
] as const;

/** Messages that are written to hurt a parser. Each is made when it is asked for. */
export const HOSTILE: Readonly<Record<string, () => Buffer>> = {
  '100,000 header lines': () => crlf(FROM, ...many(100_000, (i) => `X-H${i}: value`), '', 'body'),
  'one header of 10 MB': () => crlf(FROM, `X-Long: ${'a'.repeat(10_000_000)}`, '', 'body'),
  'a header of blanks': () => crlf(FROM, `Subject: a${' '.repeat(250_000)}b`, `X-A: ${'\t'.repeat(3000)}`, '', 'body'),
  'folds of nothing but blanks': () => crlf(FROM, 'Subject: a', ...many(900, () => ` ${' '.repeat(250)}`), '', 'body'),
  '1,000,000 addresses in To': () =>
    crlf(FROM, `To: ${many(1_000_000, (i) => `a${i}@example.net`).join(',\r\n ')}`, '', 'body'),
  'an address of nested comments': () => crlf(FROM, `To: ${'('.repeat(60_000)}`, '', 'body'),
  'an address of quotes': () => crlf(FROM, `To: ${'"a\\" '.repeat(10_000)}`, '', 'body'),
  'an address of angles': () => crlf(FROM, `To: ${'<a@'.repeat(20_000)}`, '', 'body'),
  'an address of groups': () => crlf(FROM, `To: ${'g:'.repeat(30_000)}`, '', 'body'),
  'encoded words that never end': () => crlf(FROM, `Subject: ${'=?utf-8?q?'.repeat(20_000)}`, '', 'body'),
  'encoded words in their thousands': () => crlf(FROM, `Subject: ${'=?utf-8?b?w6k=?= '.repeat(14_000)}`, '', 'body'),
  'question marks in an address': () => crlf(FROM, `To: ${'=?=?'.repeat(16_000)}@example.net`, '', 'body'),
  'a chain of RFC 2231 parameters': () =>
    multipart(
      'mixed',
      [FROM],
      [`Content-Type: application/pdf;${many(12_000, (i) => ` name*${i}*=%41;`).join('')}`, '', 'body'],
    ),
  'RFC 2231 parameters without a number': () =>
    multipart(
      'mixed',
      [FROM],
      [
        `Content-Disposition: attachment;${many(12_000, (i) => ` filename*${i}${'*'.repeat(i % 9)}=a;`).join('')}`,
        '',
        'body',
      ],
    ),
  'parameters in their thousands': () =>
    crlf(FROM, `Content-Type: text/plain;${many(20_000, (i) => ` a${i}=b;`).join('')}`, '', 'body'),
  'quotes that never close in a parameter': () =>
    crlf(FROM, `Content-Type: text/plain; charset="${'\\"'.repeat(100_000)}`, '', 'body'),
  '100,000 parts': () => multipart('mixed', [FROM], ['', `x\r\n${'--=_b\r\n\r\nx\r\n'.repeat(100_000)}`]),
  'multiparts 10,000 deep': () => nested(10_000),
  'multiparts 10,000 deep, with boundaries in the form of RFC 2231': () =>
    Buffer.from(
      `${FROM}\r\n${many(10_000, (i) => `Content-Type: multipart/mixed; boundary*=us-ascii''b${i}\r\n\r\n--b${i}\r\n`).join('')}`,
    ),
  'messages within messages 10,000 deep': () =>
    crlf(FROM, ...many(10_000, () => 'Content-Type: message/rfc822\r\nContent-Disposition: inline\r\n'), 'innermost'),
  'delimiters that are none, in their millions': () => multipart('mixed', [FROM], ['', '--=_c\r\n'.repeat(1_000_000)]),
  'multiparts that share one boundary': () =>
    crlf(
      FROM,
      'Content-Type: multipart/mixed; boundary=b',
      '',
      ...many(500, () => '--b\r\nContent-Type: multipart/mixed; boundary=b\r\n'),
      '--b--',
    ),
  'empty lines in their millions': () => crlf(FROM, '', '\r\n'.repeat(3_000_000)),
  'equals signs in quoted-printable': () =>
    crlf(FROM, 'Content-Transfer-Encoding: quoted-printable', '', '='.repeat(2_000_000)),
  'blanks in quoted-printable': () =>
    crlf(FROM, 'Content-Transfer-Encoding: quoted-printable', '', `${' '.repeat(2_000_000)}x`),
  'blanks before 8-bit in quoted-printable': () =>
    crlf(FROM, 'Content-Transfer-Encoding: quoted-printable', '', `é${' '.repeat(100_000)}x`),
  'blanks in quoted-printable by the million': () =>
    multipart('mixed', [FROM], PIECES, [
      'Content-Transfer-Encoding: quoted-printable',
      '',
      `${' '.repeat(8_000_000)}x`,
    ]),
  'ISO-2022-JP that shifts all the time': () =>
    multipart('mixed', [FROM], PIECES, [
      'Content-Type: text/plain; charset=iso-2022-jp',
      '',
      '\x1b$B$3\x1b(B\x1b$(C$3\x1b$A$4\r\n'.repeat(300_000),
    ]),
  'names in pieces in their hundreds': () =>
    multipart('mixed', [FROM], ...many(990, () => '').map(() => [...PIECES, 'x\r\n'.repeat(2000)])),
  'base64 of padding': () => crlf(FROM, 'Content-Transfer-Encoding: base64', '', '=\r\n'.repeat(1_000_000)),
  'base64 of empty lines and words': () =>
    crlf(FROM, 'Content-Transfer-Encoding: base64', '', `AAAA\r\n${'\r\na b=c\r\n'.repeat(500_000)}`),
  'base64 of one letter on each line': () =>
    crlf(FROM, 'Content-Transfer-Encoding: base64', '', 'A\r\n'.repeat(1_000_000)),
  'uuencode of lines without anything': () =>
    crlf(FROM, 'Content-Transfer-Encoding: uuencode', '', `begin 644 a\r\n${'!\r\n'.repeat(1_000_000)}`),
  'HTML of meta elements': () =>
    crlf(FROM, 'Content-Type: text/html', '', `${'<meta charset= '.repeat(2000)}${'\xe4'.repeat(1_000_000)}`),
  'HTML of references': () =>
    multipart(
      'mixed',
      [FROM],
      ['Content-Type: text/html', '', '<img src= "cid:&#x41;%41 '.repeat(300_000)],
      ...many(900, (i) => `${i}`).map((i) => [
        `Content-ID: <${i}>`,
        'Content-Type: image/png',
        'Content-Disposition: attachment',
        '',
        'x',
      ]),
    ),
  'raw fields and files, whose charset is far': () =>
    Buffer.from(
      multipart(
        'mixed',
        [FROM, ...many(900, (i) => `X-${i}: \xe4\x1b$B\x1b(B`)],
        ...many(900, (i) => `Content-Type: x/y; name="\xe4${i}"`).map((field) => [field, '', 'x']),
      ).toString(),
      'latin1',
    ),
  'escapes in a header': () => crlf(FROM, `Subject: ${'\x1b$B$3\x1b(B'.repeat(25_000)}`, '', 'body'),
  'a type that is folded without end': () =>
    crlf('Subject: \x1b$B', `Content-Type: a/b${'\r\n ;'.repeat(60_000)}`, '', 'x'),
  'backslashes in a name': () =>
    crlf(FROM, `Content-Disposition: attachment; filename="${'\\'.repeat(200_000)}a"`, '', 'body'),
  'dots at the end of a name': () =>
    crlf(FROM, `Content-Disposition: attachment; filename="a${'. '.repeat(100_000)}b"`, '', 'body'),
  'comments in a type': () => crlf(FROM, `Content-Type: ${'('.repeat(100_000)}${'()'.repeat(50_000)}`, '', 'body'),
  'parts without an empty line': () =>
    multipart('mixed', [FROM], ...many(990, () => '').map(() => ['no field', 'x'.repeat(20_000)])),
  'recipients on a thousand lines': () =>
    crlf(FROM, `To: ${many(2500, (i) => `a${i}@example.net`).join(',\r\n ')}`, '', 'body'),
  'HTML of nested elements': () => crlf(FROM, 'Content-Type: text/html', '', '<div>'.repeat(200_000)),
  'file names that are alike': () =>
    multipart(
      'mixed',
      [FROM],
      ...many(990, () => '').map(() => ['Content-Disposition: attachment; filename=a.txt', '', 'x']),
    ),
  'names of the language': () =>
    multipart(
      'mixed',
      [FROM, '__proto__: x', 'constructor: y', 'prototype: z', 'hasOwnProperty: 1', '7: digits'],
      ['Content-Disposition: attachment; filename=__proto__', '', 'x'],
      ['Content-Disposition: attachment; filename=constructor; __proto__=1', '', 'y'],
    ),
  'NUL bytes': () => Buffer.from(`${FROM}\r\nSubject: a\0b\r\n\r\nbody\0\0\r\n`),
  'nothing but NUL bytes': () => Buffer.alloc(100_000),
  'bytes of chance': () =>
    Buffer.from(Uint8Array.from({ length: 200_000 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 0xff)),
  'no bytes': () => Buffer.alloc(0),
  'one CRLF': () => Buffer.from('\r\n'),
  'only CRLF': () => Buffer.from('\r\n'.repeat(1000)),
  'no header': () => Buffer.from('\r\nbody\r\n'),
  'no colon': () => Buffer.from('hello there\r\nthis is not mail\r\n'),
  'no body': () => crlf(FROM, 'Subject: x'),
  'no line end': () => Buffer.from('Subject: x'),
  'a cut multipart': () =>
    Buffer.from(`${FROM}\r\nContent-Type: multipart/mixed; boundary="b\r\n\r\n--b\r\nContent-Ty`),
  'a boundary of 100,000 characters': () =>
    crlf(
      FROM,
      `Content-Type: multipart/mixed; boundary=${'b'.repeat(100_000)}`,
      '',
      `--${'b'.repeat(100_000)}`,
      '',
      'x',
    ),
  'an empty boundary': () => crlf(FROM, 'Content-Type: multipart/mixed; boundary=""', '', '--', '', 'x', '----'),
  'a charset that is a path': () => crlf(FROM, 'Content-Type: text/plain; charset="../../etc/passwd"', '', 'x'),
  'a charset of the language': () => crlf(FROM, 'Content-Type: text/plain; charset=__proto__', '', 'x'),
  'half a surrogate, as UTF-8 would never have it': () =>
    Buffer.concat([crlf(FROM, ''), Buffer.from([0xed, 0xa0, 0x80, 0xed, 0xb0, 0x80, 0x0d, 0x0a])]),
};

/** Those that break a cap; all others are to be parsed. */
export const BREACHES: Readonly<Record<string, string>> = {
  '100,000 header lines': 'a header of more than 262144 bytes',
  'one header of 10 MB': 'a header of more than 262144 bytes',
  '1,000,000 addresses in To': 'a header of more than 262144 bytes',
  '100,000 parts': 'more than 1000 parts',
  'multiparts 10,000 deep': 'parts nested more than 64 deep',
  'multiparts 10,000 deep, with boundaries in the form of RFC 2231': 'parts nested more than 64 deep',
  'multiparts that share one boundary': 'parts nested more than 64 deep',
};
