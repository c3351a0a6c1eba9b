/** Messages that are not UTF-8. The names are what is special about them. */
const latin1 = (...lines: string[]) => Buffer.from(lines.map((line) => `${line}\r\n`).join(''), 'latin1');

const WHO = ['From: J\xfcrgen <j@example.com>', 'To: in@example.net', 'Subject: Gr\xfc\xdfe aus K\xf6ln', 'MIME-Version: 1.0'] as const;
const MIXED = [...WHO, 'Content-Type: multipart/mixed; boundary=b', ''] as const;
const EUC_JP = '\xb2\xf1\xb5\xc4\xa4\xce\xbb\xf1\xce\xc1';
const BINARY = 'GIF\x89\x00\x01\r\n\xff\xfe\r\r\n end';
const INNER = ['From: a@example.com', 'Subject: inner \xe4', 'Content-Type: multipart/mixed; boundary=in', '', '--in', 'Content-Type: text/plain; charset=iso-8859-1', '', 'inner Gr\xfc\xdfe, and more', '--in',
  'Content-Type: application/octet-stream; name=a.bin', '', '\xff\xfe', '--in--'] as const;

export const EIGHT_BIT: Readonly<Record<string, Buffer>> = {
  'a latin1 body': latin1(...WHO, 'Content-Type: text/plain; charset=ISO-8859-1', 'Content-Transfer-Encoding: 8bit', '', 'Gr\xfc\xdfe,', '', 'sch\xf6n = gut.  ', '-- ', 'J'),
  'a body without a charset': latin1('From: a@example.com', 'Subject: x', '', 'Gr\xfc\xdfe \x80'),
  'a body of US-ASCII, with other parameters': latin1('From: a@example.com', 'Content-Type: text/plain; format=flowed;', ' charset="us-ascii"; x="a\\"b"', '', 'Gr\xfc\xdfe '),
  'a body of nearly nothing but 8 bits': latin1(...WHO, 'Content-Type: text/plain; charset=euc-jp', 'Content-Transfer-Encoding: 8bit', '', EUC_JP, EUC_JP),
  'one part of several': latin1(...WHO, 'Content-Type: multipart/alternative; boundary=b', '', 'pre\xe4mble', '--b', 'Content-Type: text/plain; charset=utf-8', 'Content-Transfer-Encoding: 8bit', '', 'caf\xc3\xa9', '--b',
    'Content-Type: text/html; charset=windows-1252', '', '<p>\x84Gr\xfc\xdfe\x93</p>', '--b', 'Content-Type: application/pdf; name=a.pdf', 'Content-Transfer-Encoding: base64', '', 'JVBERi0=', '--b--', 'epil\xf6gue'),
  'a binary file': latin1(...MIXED, '--b', '', 'see file', '--b', 'Content-Type: application/x-thing; name=a.bin', 'Content-Transfer-Encoding: binary', '', BINARY, '--b--'),
  'a text file': latin1(...MIXED, '--b', '', 'see file', '--b', 'Content-Type: text/csv', 'Content-Disposition: attachment; filename="\xfcber.csv"', '', 'K\xf6ln;1', 'M\xfcnchen;2', '--b--'),
  'an attached message': latin1(...MIXED, '--b', '', 'forwarded', '--b', 'Content-Type: message/rfc822', '', ...INNER, '--b--'),
  'a part of a digest': latin1(...WHO, 'Content-Type: multipart/digest; boundary=b', '', '--b', '', ...INNER, '--b--'),
  '8 bits in quoted-printable': latin1(...WHO, 'Content-Type: text/plain; charset=iso-8859-1', 'Content-Transfer-Encoding: quoted-printable', '', 'Gr\xfc=DFe =', 'und mehr'),
  'a signed text': latin1(...WHO, 'Content-Type: multipart/signed; boundary=b; micalg=pgp-sha256; protocol="application/pgp-signature"', '', '--b',
    'Content-Type: text/plain; charset=iso-8859-1', 'Content-Transfer-Encoding: 8bit', '', 'Gr\xfc\xdfe', '--b', 'Content-Type: application/pgp-signature; name=signature.asc', '', '-----BEGIN PGP SIGNATURE-----', '--b--'),
  'only a header': latin1('From: a@example.com', 'Subject: Gr\xfc\xdfe', 'X-Koi: =?koi8-r?Q?\xf0\xd2\xc9?=', '', 'plain'),
  'no header at all': latin1(' the b\xe4ckup failed', 'on K\xf6ln'),
  'no header, and nothing that looks like one': latin1('the b\xe4ckup failed', '', 'on K\xf6ln'),
  'a bounce that quotes 8 bits': latin1(...WHO, 'Content-Type: multipart/report; boundary=b; report-type=delivery-status', '', '--b', '', 'It did not arrive.', '--b',
    'Content-Type: message/delivery-status', '', 'Reporting-MTA: dns; mx.example.com', '', 'Final-Recipient: rfc822; x@example.com', 'Action: failed', 'Diagnostic-Code: smtp; 550 Empf\xe4nger', '--b--'),
  'lines of any length': latin1(...WHO, 'Content-Type: text/plain; charset=iso-8859-1', '', 'plain ascii text '.repeat(9000) + 'Gr\xfc\xdfe ' + 'x'.repeat(100_000), 'Gr\xfc\xdfe'.repeat(4)),
  'a large body of lines': latin1(...WHO, 'Content-Type: text/plain; charset=iso-8859-1', '', ...Array.from({ length: 20_000 }, (_, i) => `Gr\xfc\xdfe Nr. ${i} = ${'-'.repeat(i % 97)} `)),
  'a large binary body': Buffer.concat([latin1(...WHO, 'Content-Type: application/zip; name=a.zip', ''), Buffer.from(Uint8Array.from({ length: 400_000 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 0xff))]),
};
