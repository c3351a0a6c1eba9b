import { randomBytes } from 'node:crypto';
import { crlf, multipart } from '../mime.ts';

const FROM = 'From: a@bombs.test';
const many = (count: number, line: (i: number) => string) => Array.from({ length: count }, (_, i) => line(i));
const base64 = (bytes: Buffer) => bytes.toString('base64').replace(/.{76}/g, '$&\r\n');

/** Signature of the domain that `ZONE` has keys for. */
const signature = (i: number, tags = '') =>
  `DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=bombs.test; s=s${i};${tags} h=from:subject; bh=frcCV1k9oG9oKj3dpUqdJg1PxRT2RSN/XKdLCPjaYaY=; b=${'Vm9u'.repeat(80)}dA==`;

/**
 * Bombs beside those of test/support/mime-hostile.ts: what verdicts cost, and shapes that take long where something is
 * quadratic.
 */
export const BOMBS: Readonly<Record<string, () => Buffer>> = {
  '500 DKIM signatures': () => crlf(...many(500, (i) => signature(i)), FROM, 'Subject: signed', '', 'body'),
  'DKIM signatures of a thousand fields': () =>
    crlf(
      ...many(10, (i) => signature(i).replace('h=from', `h=from${':x'.repeat(1000)}`)),
      FROM,
      ...many(900, (i) => `X: ${i}`),
      '',
      'body',
    ),
  'a DKIM body of 20 MB under ten signatures': () =>
    crlf(
      ...many(10, (i) => signature(i, ` l=${i * 2_000_000};`)),
      FROM,
      '',
      'x '.repeat(500).concat('\r\n').repeat(20_000),
    ),
  'blank lines at the end of a body, for relaxed DKIM': () =>
    crlf(signature(1), FROM, '', 'x', ' \t\r\n'.repeat(2_000_000), 'y'),
  '50 ARC sets that do not hold': () =>
    crlf(
      ...many(50, (i) =>
        [
          `ARC-Seal: i=${i + 1}; a=rsa-sha256; cv=pass; d=bombs.test; s=s${i}; b=Vm9udA==`,
          `ARC-Message-Signature: i=${i + 1}; a=rsa-sha256; d=bombs.test; s=s${i}; h=from; bh=Vm9u; b=Vm9u`,
          `ARC-Authentication-Results: i=${i + 1}; bombs.test; spf=pass`,
        ].join('\r\n'),
      ),
      FROM,
      '',
      'body',
    ),
  'encoded words of every charset': () =>
    crlf(FROM, `Subject: ${many(5000, (i) => `=?x-charset-${i}?q?=e4?=`).join(' ')}`, '', 'body'),
  'encoded words within encoded words': () =>
    crlf(FROM, `Subject: ${'=?utf-8?q?=3D=3Futf-8=3Fq=3F'.repeat(8000)}`, '', 'body'),
  'encoded words in a thousand names': () =>
    crlf(FROM, `To: ${many(1000, (i) => `=?utf-8?b?w6k=?= <a${i}@b.test>`).join(', ')}`, '', 'body'),
  'uuencoded files in their thousands': () =>
    crlf(FROM, '', ...many(20_000, (i) => `begin 644 f${i}.txt\r\n#86%A\r\n\`\r\nend`)),
  'a uuencoded file that never ends': () =>
    crlf(FROM, 'Content-Transfer-Encoding: x-uuencode', '', 'begin 644 x', `${'M'.repeat(61)}\r\n`.repeat(200_000)),
  'base64 of nothing but rubbish': () =>
    crlf(
      FROM,
      'Content-Type: application/pdf',
      'Content-Transfer-Encoding: base64',
      '',
      '=*=!=.=,=-=_A=\r\n'.repeat(200_000),
    ),
  'base64 in lines of one character': () =>
    crlf(FROM, 'Content-Type: application/pdf', 'Content-Transfer-Encoding: base64', '', 'Q\r\n'.repeat(2_000_000)),
  'base64 in one line of 15 MB': () =>
    crlf(
      FROM,
      'Content-Type: application/pdf',
      'Content-Transfer-Encoding: base64',
      '',
      randomBytes(11_000_000).toString('base64'),
    ),
  'base64 text in a charset of two bytes': () =>
    crlf(
      FROM,
      'Content-Type: text/plain; charset=utf-16',
      'Content-Transfer-Encoding: base64',
      '',
      base64(randomBytes(6_000_000)),
    ),
  'HTML of open quotes': () => crlf(FROM, 'Content-Type: text/html', '', '<a href="'.repeat(300_000)),
  'HTML of comments that never end': () => crlf(FROM, 'Content-Type: text/html', '', '<!--'.repeat(500_000)),
  'HTML of tables in tables': () => crlf(FROM, 'Content-Type: text/html', '', '<table><tr><td>'.repeat(150_000)),
  'HTML of entities': () => crlf(FROM, 'Content-Type: text/html', '', '&amp&lt;&#x41'.repeat(300_000)),
  'flowed text that never ends a paragraph': () =>
    crlf(FROM, 'Content-Type: text/plain; format=flowed', '', '> > > quoted \r\n'.repeat(300_000)),
  'quoted-printable soft breaks in their millions': () =>
    crlf(FROM, 'Content-Transfer-Encoding: quoted-printable', '', '=\r\n'.repeat(3_000_000)),
  'a million short lines': () => crlf(FROM, '', 'a\r\n'.repeat(1_000_000)),
  '999 parts with 100 header lines each': () =>
    multipart(
      'mixed',
      [FROM],
      ...many(999, () => '').map((_, i) => [
        ...many(9, (n) => `X-${n}: ${'v'.repeat(90)}`),
        `Content-Disposition: attachment; filename="=?utf-8?q?f${i}?="`,
        '',
        'x',
      ]),
    ),
  'parts nested 64 deep, each with siblings': () =>
    crlf(
      FROM,
      ...many(
        60,
        (i) => `Content-Type: multipart/mixed; boundary=b${i}\r\n\r\n${`--b${i}\r\n\r\nx\r\n`.repeat(15)}--b${i}`,
      ),
      '',
      'innermost',
    ),
  'boundaries that begin alike': () =>
    crlf(
      FROM,
      ...many(
        60,
        (i) => `Content-Type: multipart/mixed; boundary=${'b'.repeat(900)}${i}\r\n\r\n--${'b'.repeat(900)}${i}`,
      ),
      '',
      `--${'b'.repeat(900)}x\r\n`.repeat(10_000),
    ),
  'message ids in their thousands': () =>
    crlf(FROM, `References:${many(8000, (i) => ` <${i}@bombs.test>`).join('')}`, '', 'body'),
  'commas and semicolons in addresses': () =>
    crlf(FROM, `To: ${',;'.repeat(30_000)}`, `Cc: ${';,<>'.repeat(500)}`, '', 'body'),
  'backslashes in an address': () => crlf(FROM, `To: "${'\\'.repeat(60_000)}"@x`, '', 'body'),
  'the same field a thousand times': () => crlf(FROM, ...many(990, () => 'X-Same: v'), '', 'body'),
};

/** Keys for the signatures, and an SPF record that asks on and on. */
export const ZONE = Object.fromEntries([
  ...many(500, (i) => `s${i}._domainkey.bombs.test`).map((name) => [
    name,
    {
      TXT: [
        'v=DKIM1; k=rsa; p=MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKLYaI8dvQv9dxqYbXy1wQb1wGkR2gkqJ2rPpL4N5vDk0eyC2l1eDk2Q8F9xw0Y6hOa1b9Zt6sYQz4mJr5n4nFsCAwEAAQ==',
      ],
    },
  ]),
  ...Array.from({ length: 40 }, (_, i) => [
    i === 0 ? 'bombs.test' : `i${i}.bombs.test`,
    { TXT: [`v=spf1 include:i${2 * i + 1}.bombs.test include:i${2 * i + 2}.bombs.test -all`] },
  ]),
]);
