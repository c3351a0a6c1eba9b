/** A leaf of a random message: its marker stands once in its content. */
interface RandomLeaf {
  readonly marker: string;
  readonly content: Buffer;
}

interface RandomMessage {
  readonly bytes: Buffer;
  readonly leaves: readonly RandomLeaf[];
}

/** Leaves of messages that only follow the standards are read alike by everybody. */
interface RandomStyle {
  readonly isSound: boolean;
}

const TYPES = [
  'text/plain; charset=utf-8',
  'text/plain',
  'text/html; charset=utf-8',
  'text/html',
  'text/calendar; method=REQUEST',
  'text/csv',
  'text/rtf',
  'text/x-amp-html',
  'application/pdf',
  'application/octet-stream',
  'application/ms-tnef',
  'application/applefile',
  'application/pgp-signature',
  'image/png',
  'image/svg+xml',
  'image/jpeg',
  'message/delivery-status',
  'text/rfc822-headers',
  'x-odd/x-type',
] as const;
const ODD_TYPES = ['', 'text', 'image', 'application', 'pdf', '.', 'text/', '"text/html"', 'text/plain (a comment)'];
const SUBTYPES = ['mixed', 'mixed', 'alternative', 'related', 'signed', 'report', 'appledouble', 'x-own'];
const DISPOSITIONS = ['', '', '', 'inline', 'attachment', 'ATTACHMENT'];
const ODD_DISPOSITIONS = ['"attachment"', 'bogus', 'form-data', '"inline"', 'attachment (really)'];
/** Parameters of a name, as software writes it. */
const NAMES = [
  (key: string) => `${key}="report.html"`,
  (key: string) => `${key}=plain.txt`,
  (key: string) => `${key}="=?utf-8?B?w5xiZXIucGRm?="`,
  (key: string) => `${key}*=utf-8''%C3%9Cber.png`,
  (key: string) => `${key}*0*=utf-8''%C3%9Cb;\r\n ${key}*1="er 100%25";\r\n ${key}*2=.pdf`,
  (key: string) => `${key}*0="long";\r\n ${key}*1=".txt"`,
  (key: string) => `${key}="C:\\Users\\x\\a.pdf"`,
];

/** A random message; `random` gives numbers from 0 to 1. Content is ASCII, so that a marker is found in any format. */
export function randomMessage(random: () => number, { isSound }: RandomStyle): RandomMessage {
  const leaves: RandomLeaf[] = [];
  let multiparts = 0;
  const below = (count: number) => Math.floor(random() * count);
  const of = <T>(list: readonly T[]): T | undefined => list[below(list.length)];
  const chance = (probability: number) => random() < probability;
  const odd = (probability: number) => !isSound && chance(probability);

  function leaf(): string {
    const marker = `marker${leaves.length}x${below(1e9)}end`;
    const isMessage = odd(0.05);
    const type = isMessage ? 'message/rfc822' : ((odd(0.1) ? of(ODD_TYPES) : of(TYPES)) ?? '');
    const disposition = (odd(0.15) ? of(ODD_DISPOSITIONS) : of(DISPOSITIONS)) ?? '';
    const name = (key: string) => (chance(0.35) ? `;\r\n ${of(NAMES)?.(key)}` : '');
    const lines = isMessage
      ? ['Subject: inner', 'Content-Type: multipart/mixed; boundary=inner', '', '--inner', '', marker, '--inner--']
      : [
          chance(0.5) ? `<p>${marker}</p>` : marker,
          ...Array.from({ length: below(3) }, () => 'more = of it, cid:id1@x'),
        ];
    const content = Buffer.from(lines.join('\r\n'));
    leaves.push({ marker, content });
    const encoding = isMessage ? '7bit' : (of(['7bit', 'base64', 'quoted-printable']) ?? '7bit');
    const header = [
      ...(type === '' ? [] : [`Content-Type: ${type}${name('name')}`]),
      ...(disposition === '' ? [] : [`Content-Disposition: ${disposition}${name('filename')}`]),
      `Content-Transfer-Encoding: ${encoding}`,
      ...(chance(0.3) ? [`Content-ID: <id${below(4)}@x>`] : []),
      ...(chance(0.1) ? ['Content-Location: https://x.example/logo.png'] : []),
    ];
    return [...header, '', encoded(content, encoding)].join('\r\n');
  }

  function multipart(depth: number, above: readonly string[]): string {
    const own = odd(0.05) && above[0] !== undefined ? above[0] : `b${multiparts++}=_${below(1e6)}`;
    const parameter = chance(0.2)
      ? `boundary*0="${own.slice(0, 3)}"; boundary*1="${own.slice(3)}"`
      : `boundary="${own}"`;
    const subtype = of(SUBTYPES) ?? 'mixed';
    const type = odd(0.03) ? 'multipart' : `multipart/${subtype}`;
    const start = subtype === 'related' && chance(0.3) ? `; start="<id${below(4)}@x>"` : '';
    const parts = Array.from({ length: odd(0.05) ? 0 : 1 + below(4) }, () => part(depth + 1, [own, ...above]));
    // A multipart that others cannot tell from the one around it has to end.
    const isOpen = !above.includes(own) && odd(0.15);
    return [
      `Content-Type: ${type}; ${parameter}${start}`,
      ...(chance(0.1) ? ['Content-Disposition: inline'] : []),
      '',
      ...(chance(0.2) ? ['This is a multi-part message.'] : []),
      ...parts.map((text) => `--${own}${odd(0.1) ? ' \t' : ''}\r\n${text}`),
      ...(isOpen ? [] : [`--${own}--`]),
      ...(!isOpen && !above.includes(own) && odd(0.1) ? [`--${own}\r\n${leaf()}`, `--${own}--`] : []),
      ...(chance(0.1) && !isOpen ? ['an epilogue'] : []),
    ].join('\r\n');
  }

  function part(depth: number, above: readonly string[]): string {
    return depth < 5 && chance(0.35) ? multipart(depth, above) : leaf();
  }

  const head = ['From: a@example.com', 'Subject: x', 'MIME-Version: 1.0'];
  const body = chance(0.9) ? multipart(0, []) : leaf();
  return { bytes: Buffer.from([...head, body].join('\r\n')), leaves };
}

function encoded(content: Buffer, encoding: string): string {
  if (encoding === 'base64') return content.toString('base64').replace(/.{60}/g, '$&\r\n');
  return encoding === 'quoted-printable'
    ? content.toString().replaceAll('=', '=3D').replaceAll('m', '=6D')
    : `${content}`;
}
