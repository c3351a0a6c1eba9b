import { createHash, sign } from 'node:crypto';
import { type DkimKey, makeKey } from '../dns-keys.ts';

/** A signed message in which something is unusual, and what RFC 6376 says of its signature. */
export interface OddMessage {
  readonly raw: Buffer;
  /** What is unusual, by the names in `ODDITIES`. */
  readonly oddities: readonly string[];
  readonly valid: boolean;
}

type Form = 'simple' | 'relaxed';

/** A message on its way to being signed. */
interface Draft {
  key: DkimKey;
  header: string[];
  body: string;
  headerForm: Form;
  bodyForm: Form;
  /** Of the signature, b= empty. */
  tags: [name: string, value: string][];
  /** What h= stands for, when that is not what it says. */
  names: string[];
  /** Between tags, and around the equals signs. */
  between: () => string;
  around: () => string;
  end: string;
  /** What becomes of the signature, and of the message, when it is signed. */
  after: ((text: string) => string)[];
  length: number | undefined;
}

/** `valid`: what RFC 6376 (and RFC 8301, RFC 8463) says. `set` makes it so. */
interface Oddity {
  readonly valid: boolean;
  set(draft: Draft, random: () => number): void;
}

export const NOW = 1_767_571_200;
const RSA = makeKey('example.net', 'rsa', 1024);
const ED = makeKey('example.net', 'ed');
const UNDER = makeKey('ex_ample.net', 'k1_2026', 1024);
const OTHER = makeKey('example.net', 'other', 1024);
const SHORT = makeKey('example.net', 'short', 768);
const textOf = (key: DkimKey): string => String(Object.values(key.records)[0]?.TXT?.[0]);
const pOf = (key: DkimKey): string => /p=(.*)$/.exec(textOf(key))?.[1] ?? '';
/** Records that publish the key of `rsa` in one way or another. */
const PUBLISHED: Readonly<Record<string, readonly [valid: boolean, text: string]>> = {
  notes: [true, `v=DKIM1; k=rsa; n=who=reads this?; p=${pOf(RSA)}`],
  testing: [true, `v=DKIM1; t=y; p=${pOf(RSA)}`],
  hashes: [true, `v=DKIM1; h=sha256:sha1; s=email; p=${pOf(RSA)};`],
  bare: [true, `p=${pOf(RSA)}`],
  unknown: [true, `v=DKIM1; x_y=1; p=${pOf(RSA)}`],
  every: [true, `v=DKIM1; s=*; p=${pOf(RSA)}`],
  revoked: [false, 'v=DKIM1; p='],
  sha1: [false, `v=DKIM1; h=sha1; p=${pOf(RSA)}`],
  web: [false, `v=DKIM1; s=web; p=${pOf(RSA)}`],
  version: [false, `v=DKIM2; p=${pOf(RSA)}`],
  type: [false, `v=DKIM1; k=dsa; p=${pOf(RSA)}`],
};
/** The zone: by name the one TXT record there. */
export const RECORDS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [RSA, ED, UNDER, SHORT].flatMap((key) => Object.keys(key.records).map((name) => [name, textOf(key)])),
  ),
  'other._domainkey.example.net': textOf(RSA),
  'exact._domainkey.example.net': `v=DKIM1; t=s; p=${pOf(RSA)}`,
  ...Object.fromEntries(
    Object.entries(PUBLISHED).map(([selector, [, text]]) => [`${selector}._domainkey.example.net`, text]),
  ),
};

const put = (draft: Draft, name: string, value: string): void => {
  const tag = draft.tags.find(([known]) => known === name);
  if (tag) tag[1] = value;
  else draft.tags.splice(1, 0, [name, value]);
};
const tag = (valid: boolean, name: string, value: string): Oddity => ({
  valid,
  set: (draft) => put(draft, name, value),
});
const without = (name: string): Oddity => ({
  valid: false,
  set: (draft) => {
    draft.tags = draft.tags.filter(([known]) => known !== name);
  },
});
const after = (change: (text: string) => string): Oddity => ({
  valid: false,
  set: (draft) => {
    draft.after.push(change);
  },
});
const names = (valid: boolean, ...list: string[]): Oddity => ({
  valid,
  set: (draft) => {
    draft.names = list;
    put(draft, 'h', list.join(':'));
  },
});
const written = (valid: boolean, text: string, ...list: string[]): Oddity => ({
  valid,
  set: (draft) => {
    draft.names = list;
    put(draft, 'h', text);
  },
});
const body = (text: string): Oddity => ({
  valid: true,
  set: (draft) => {
    draft.body = text;
  },
});
const field = (line: string): Oddity => ({
  valid: true,
  set: (draft) => {
    draft.header.splice(1, 0, line);
  },
});
const published = (selector: string): Oddity => ({
  valid: PUBLISHED[selector]?.[0] ?? false,
  set: (draft) => put(draft, 's', selector),
});

export const ODDITIES: Readonly<Record<string, Oddity>> = {
  'tags in any order': {
    valid: true,
    set: (draft, random) => {
      draft.tags = draft.tags
        .map((one) => [random(), one] as const)
        .toSorted((a, b) => a[0] - b[0])
        .map(([, one]) => one);
    },
  },
  'white space around tags': {
    valid: true,
    set: (draft, random) => {
      draft.between = () => [' ', '  ', '\t', ''][Math.floor(random() * 4)] ?? '';
      draft.around = () => [' ', '', '\t'][Math.floor(random() * 3)] ?? '';
    },
  },
  'folds between tags': {
    valid: true,
    set: (draft, random) => {
      draft.between = () => ['\r\n ', '\r\n\t', ' \r\n  ', ' '][Math.floor(random() * 4)] ?? '';
    },
  },
  'no c=': {
    valid: true,
    set: (draft) => {
      draft.headerForm = 'simple';
      draft.bodyForm = 'simple';
      draft.tags = draft.tags.filter(([name]) => name !== 'c');
    },
  },
  'c= of one word': {
    valid: true,
    set: (draft) => {
      draft.bodyForm = 'simple';
      put(draft, 'c', draft.headerForm);
    },
  },
  'an unknown tag': tag(true, 'xyz_1', 'a c=d'),
  'an unknown tag that is D and not d': tag(true, 'D', 'attacker.test'),
  'a semicolon at the end': {
    valid: true,
    set: (draft) => {
      draft.end = ';';
    },
  },
  'copied fields': tag(true, 'z', 'From:ann@example.net|Subject:a=20b'),
  't=': tag(true, 't', String(NOW - 100)),
  't= and x= to come': {
    valid: true,
    set: (draft) => {
      put(draft, 't', String(NOW - 100));
      put(draft, 'x', '9999999999');
    },
  },
  'i= of the domain': tag(true, 'i', '@example.net'),
  'i= of somebody': tag(true, 'i', 'ann@example.net'),
  'i= below the domain': tag(true, 'i', 'ann@lists.example.net'),
  'i= in quoted-printable': tag(true, 'i', 'a=3Db@example.net'),
  'q=': tag(true, 'q', 'dns/txt'),
  'q= with another method': tag(true, 'q', 'dns/txt:x-future'),
  'fields signed more often than they are there': names(true, 'from', 'from', 'subject', 'subject', 'to', 'to'),
  'signed fields that are not there': names(true, 'from', 'x-missing', 'subject', 'list-id'),
  'a name twice, for two fields': {
    valid: true,
    set: (draft) => {
      draft.header.push('Received: from a', 'Received: from b');
      draft.names = ['from', 'received', 'received'];
      put(draft, 'h', 'from:received:received');
    },
  },
  'the lower of two fields': {
    valid: true,
    set: (draft) => {
      draft.header.push('Received: from a', 'Received: from b');
      draft.names = ['from', 'received'];
      put(draft, 'h', 'from:received');
    },
  },
  'h= with white space': written(true, 'From : To :\r\n\tSubject', 'from', 'to', 'subject'),
  'h= in capitals': written(true, 'FROM:SUBJECT', 'from', 'subject'),
  'b= in pieces': {
    valid: true,
    set: (draft) => {
      draft.after.push((text) => text.replace(/([ ;\t]b[ \t]*=[ \t]*)(.{20})(.{30})/, '$1$2\r\n $3 '));
    },
  },
  'l= of the whole body': {
    valid: true,
    set: (draft) => {
      draft.length = Infinity;
    },
  },
  'an Ed25519 key': {
    valid: true,
    set: (draft) => {
      draft.key = ED;
      put(draft, 'a', 'ed25519-sha256');
      put(draft, 's', 'ed');
    },
  },
  'underscores in s= and d=': {
    valid: true,
    set: (draft) => {
      draft.key = UNDER;
      put(draft, 's', UNDER.selector);
      put(draft, 'd', UNDER.domain);
    },
  },
  'no body': body(''),
  'a body of empty lines': body('\r\n\r\n\r\n'),
  'a body of white space': body(' \r\n\t\r\n'),
  'white space at the ends of lines': body('Hello \t\r\n  you\t  there \r\n\r\n\r\n'),
  'a body without a last line end': body('Hello\r\nyou'),
  '8-bit bytes': {
    valid: true,
    set: (draft) => {
      draft.body = 'Gr\xc3\xbc\xc3\x9fe \xff\r\n';
      draft.header.splice(1, 0, 'Comments: J\xc3\xbcrgen \xe9');
    },
  },
  'a folded field': field('Subject:  folded\r\n  twice \r\n\tand more'),
  'an empty field': field('Subject:'),
  'a field of white space': field('Subject: \t '),
  ...Object.fromEntries(Object.keys(PUBLISHED).map((selector) => [`a key record: ${selector}`, published(selector)])),

  'an empty tag': {
    valid: false,
    set: (draft) => {
      draft.tags.splice(2, 0, ['', '']);
    },
  },
  'a tag twice': {
    valid: false,
    set: (draft) => {
      draft.tags.push(['t', '1'], ['t', '2']);
    },
  },
  'a tag without an equals sign': {
    valid: false,
    set: (draft) => {
      draft.tags.splice(2, 0, ['nothing', '']);
    },
  },
  'a tag name with a hyphen': tag(false, 'x-y', '1'),
  'v=2': tag(false, 'v', '2'),
  'no v=': without('v'),
  'no bh=': without('bh'),
  'no h=': without('h'),
  'no s=': without('s'),
  'no a=': without('a'),
  'From is not signed': names(false, 'to', 'subject'),
  'h= is empty': names(false),
  'h= with a name of nothing': written(false, 'from::subject', 'from', 'subject'),
  'h= with white space in a name': written(false, 'fr om:subject:from', 'from', 'subject'),
  'rsa-sha1': tag(false, 'a', 'rsa-sha1'),
  'an unknown algorithm': tag(false, 'a', 'rsa-sha512'),
  'c=/': tag(false, 'c', '/'),
  'c= of an unknown form': tag(false, 'c', 'relaxed/none'),
  'another d=': tag(false, 'd', 'example.org'),
  'a d= of one label': tag(false, 'd', 'net'),
  'i= elsewhere': tag(false, 'i', '@example.org'),
  'i= of a name that ends in the same letters': tag(false, 'i', '@badexample.net'),
  'i= below a domain whose key forbids it': {
    valid: false,
    set: (draft) => {
      put(draft, 's', 'exact');
      put(draft, 'i', '@lists.example.net');
    },
  },
  'q= without dns/txt': tag(false, 'q', 'http'),
  't= that is no number': tag(false, 't', 'now'),
  'x= that is over': {
    valid: false,
    set: (draft) => {
      put(draft, 't', '1000000000');
      put(draft, 'x', '1000000600');
    },
  },
  'x= before t=': {
    valid: false,
    set: (draft) => {
      put(draft, 't', '9999999998');
      put(draft, 'x', '9999999997');
    },
  },
  'l= less than the body': {
    valid: false,
    set: (draft) => {
      draft.length = 3;
    },
  },
  'l= that is no number': tag(false, 'l', 'x'),
  'a key that is not there': tag(false, 's', 'nowhere'),
  'the key of somebody else': {
    valid: false,
    set: (draft) => {
      draft.key = OTHER;
      put(draft, 's', 'other');
    },
  },
  'a key of 768 bits': {
    valid: false,
    set: (draft) => {
      draft.key = SHORT;
      put(draft, 's', 'short');
    },
  },
  'b= with a letter changed': after((text) =>
    text.replace(
      /([ ;\t]b[ \t]*=[ \t]*.{9})(.)/,
      (_, front: string, letter: string) => front + (letter === 'A' ? 'B' : 'A'),
    ),
  ),
  'b= with what is no base64': after((text) => text.replace(/([ ;\t]b[ \t]*=[ \t]*.{9})/, '$1!$$*')),
  'b= cut short': after((text) => text.replace(/([ ;\t]b[ \t]*=[ \t]*.{20})[^;\r]*/, '$1')),
  'a body that was changed': after((text) => `${text}x\r\n`),
  'a field that was changed': after((text) => text.replace('From: Ann', 'From: Anna')),
  'a field that was added': after((text) => text.replace(/\r\n\r\n/, '\r\nFrom: eve@example.net\r\n\r\n')),
  'another bh=': tag(false, 'bh', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='),
};
const NAMES = Object.keys(ODDITIES);
const VALID_NAMES = NAMES.filter((name) => ODDITIES[name]?.valid);

/** Oddities that change the same thing, of which a message has one at most. */
const GROUPS: readonly RegExp[] = [
  /key|underscores|\b[ids]=|rsa|algorithm|no a=/,
  /\bb=/,
  /body|\bl=|bh=|8-bit/,
  /\bh=|name|signed|lower/,
  /\b[tx]=|twice/,
  /\bc=/,
  /\bq=/,
  /\bv=/,
  /field/,
];

function apart(names: readonly string[]): string[] {
  const taken = new Set<RegExp>();
  return names.filter((name) => {
    const groups = GROUPS.filter((group) => group.test(name));
    if (groups.some((group) => taken.has(group))) return false;
    for (const group of groups) taken.add(group);
    return true;
  });
}

/** A message with these oddities, or with some that are picked. */
export function oddMessage(random: () => number, given?: readonly string[]): OddMessage {
  const pick = <T>(from: readonly T[]): T | undefined => from[Math.floor(random() * from.length)];
  const oddities =
    given ??
    apart(
      [
        ...new Set([
          ...(random() < 0.4 ? [pick(NAMES)] : []),
          ...Array.from({ length: Math.floor(random() * 4) }, () => pick(VALID_NAMES)),
        ]),
      ].filter((name) => name !== undefined),
    );
  const [headerForm, bodyForm]: [Form, Form] = [
    random() < 0.5 ? 'simple' : 'relaxed',
    random() < 0.5 ? 'simple' : 'relaxed',
  ];
  const draft: Draft = {
    key: RSA,
    header: ['From: Ann <ann@example.net>', 'To: bob@in.example', 'Subject: Hello  you'],
    body: 'Hello Bob.\r\nHow  are you? \r\n\r\n',
    headerForm,
    bodyForm,
    tags: [
      ['v', '1'],
      ['a', 'rsa-sha256'],
      ['c', `${headerForm}/${bodyForm}`],
      ['d', 'example.net'],
      ['s', 'rsa'],
      ['h', 'from:to:subject'],
      ['bh', ''],
      ['b', ''],
    ],
    names: ['from', 'to', 'subject'],
    between: () => ' ',
    around: () => '',
    end: '',
    after: [],
    length: undefined,
  };
  for (const name of oddities) ODDITIES[name]?.set(draft, random);
  const raw = draft.after.reduce((text, change) => change(text), signed(draft));
  return { raw: Buffer.from(raw, 'latin1'), oddities, valid: oddities.every((name) => ODDITIES[name]?.valid) };
}

function signed(draft: Draft): string {
  const { key, header, headerForm, bodyForm, tags } = draft;
  const canonical = bodyForm === 'simple' ? draft.body : draft.body.replace(/[ \t]+/g, ' ').replace(/ (?=\r\n|$)/g, '');
  const ended = canonical.replace(/(?:\r\n)*$/, '');
  const whole = Buffer.from(ended === '' && bodyForm === 'relaxed' ? '' : `${ended}\r\n`, 'latin1');
  const covered = draft.length === undefined ? whole : whole.subarray(0, draft.length);
  if (draft.length !== undefined) put(draft, 'l', String(covered.length));
  const hash = tags.find(([name, value]) => name === 'bh' && value === '');
  if (hash) hash[1] = createHash('sha256').update(covered).digest('base64');
  const render = new Map<[string, string], string>();
  for (const one of tags)
    render.set(
      one,
      `${draft.between()}${one[0]}${one[0] === '' || one[0] === 'nothing' ? '' : `${draft.around()}=${one[0] === 'b' ? '' : draft.around()}`}`,
    );
  const fieldOf = (b: string): string =>
    `DKIM-Signature:${tags.map((one) => render.get(one) + (one[0] === 'b' ? b : one[1])).join(';')}${draft.end}`;
  const covers: string[] = [];
  const rest = [...header];
  for (const name of draft.names) {
    const at = rest.findLastIndex((line) => line.toLowerCase().startsWith(`${name}:`));
    if (at !== -1) covers.push(...rest.splice(at, 1));
  }
  const data = Buffer.from(
    [...covers, fieldOf('')].map((line) => (headerForm === 'simple' ? line : relaxed(line))).join('\r\n'),
    'latin1',
  );
  const signature =
    key.algorithm === 'ed25519-sha256'
      ? sign(null, createHash('sha256').update(data).digest(), key.privateKey)
      : sign('sha256', data, key.privateKey);
  return `${[fieldOf(signature.toString('base64')), ...header].join('\r\n')}\r\n\r\n${draft.body}`;
}

/** RFC 6376 section 3.4.2. */
function relaxed(line: string): string {
  const colon = line.indexOf(':');
  return `${line.slice(0, colon).toLowerCase()}:${line
    .slice(colon + 1)
    .replaceAll('\r\n', '')
    .replace(/[ \t]+/g, ' ')
    .trim()}`;
}
