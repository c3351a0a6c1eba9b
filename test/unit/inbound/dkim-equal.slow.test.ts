import { expect } from 'chai';
import { type CheckedSignature, DkimVerifier } from 'mailauth/lib/dkim/dkim-verifier.js';
import { dkimSign } from 'mailauth/lib/dkim/sign.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import { createBodyHash, hashBody } from '../../../src/inbound/verdicts/dkim/canonical.ts';
import { createSignatureChecker, isUsable, parseSignature } from '../../../src/inbound/verdicts/dkim/verify.ts';
import { createPublicKeys, type PublicKey } from '../../../src/inbound/verdicts/signatures.ts';
import { parseHeaderSection } from '../../../src/mail/mime/header-section.ts';
import { type DkimKey, makeKey, signMessage } from '../../support/dns-keys.ts';
import { randomFrom } from '../../support/random-text.ts';
import { size } from '../../support/sizes.ts';

const MESSAGES = size(2000, 500);
const NOW = Date.UTC(2026, 0, 5);
const SECONDS = NOW / 1000;
const RSA = makeKey('example.net', 'rsa', 1024);
const ED = makeKey('example.net', 'ed');
const SHORT = makeKey('example.net', 'short', 768);
const textOf = (key: DkimKey) => String(key.records[`${key.selector}._domainkey.${key.domain}`]?.TXT?.[0]);
/** By selector a record, or the code that the question fails with. */
const RECORDS: Readonly<Record<string, { readonly text?: string; readonly code?: string }>> = {
  rsa: { text: textOf(RSA) },
  ed: { text: textOf(ED) },
  short: { text: textOf(SHORT) },
  swapped: { text: textOf(ED) },
  testing: { text: `${textOf(RSA)}; t=y` },
  exact: { text: `${textOf(RSA)}; t=s` },
  sha1: { text: `${textOf(RSA)}; h=sha1` },
  revoked: { text: 'v=DKIM1; k=rsa; p=' },
  web: { text: `${textOf(RSA)}; s=web` },
  garbage: { text: 'v=DKIM1; p=AAAA' },
  late: { text: `k=rsa; ${textOf(RSA)}` },
  absent: { code: 'ENOTFOUND' },
  empty: { code: 'ENODATA' },
  away: { code: 'ETIMEOUT' },
  spent: { code: 'EBUDGET' },
};
const SELECTORS = Object.keys(RECORDS);

async function lookUp(name: string): Promise<unknown[]> {
  const { text, code } = RECORDS[name.split('.')[0] ?? ''] ?? { code: 'ENOTFOUND' };
  if (text === undefined) throw Object.assign(new Error(code), { code });
  return [[text]];
}
const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);

const signedBy = ({ domain: signingDomain, selector, privateKey }: DkimKey) => ({
  signingDomain,
  selector,
  privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
});

type Outcome = 'pass' | 'fault' | `temperror ${string}`;

/**
 * What the library says of every signature, in the order of the fields; undefined when it throws, as it does when one
 * of them has `c=/`.
 */
async function library(message: Buffer): Promise<readonly CheckedSignature[] | undefined> {
  const verifier = new DkimVerifier({ minBitLength: 1024, curTime: new Date(NOW), strict: true });
  verifier.keyCache = keysOf(lookUp);
  try {
    await verifier.writeAsync(message);
    await verifier.finish();
    return verifier.results;
  } catch {
    return undefined;
  }
}

function outcomeOf({ result, comment, underSized }: CheckedSignature['status']): Outcome {
  if (result === 'temperror') return `temperror ${comment?.replace('DNS failure: ', '') ?? ''}`;
  return result === 'pass' && !underSized ? 'pass' : 'fault';
}

/** What we say of every signature, and what we read in it. */
async function ours(message: Buffer): Promise<{ readonly value: string; readonly outcome: Outcome }[]> {
  const section = parseHeaderSection(message);
  const fields = section.fields.filter(({ name }) => name === 'dkim-signature');
  const reads = fields
    .map((field) => ({ field, value: section.text.slice(section.text.indexOf(':', field.start) + 1, field.end) }))
    .map(({ field, value }) => ({ field, value, read: parseSignature(value) }));
  const deps = { keys: keysOf(lookUp), minBitLength: 1024, now: NOW };
  const checker = await createSignatureChecker(
    section,
    { kind: 'memory', bytes: message },
    reads.map(({ read }) => read).filter(isUsable),
    deps,
  );
  return Promise.all(
    reads.map(async ({ field, value, read }) => ({ value, outcome: outcomeOf(await checker.check(field, read)) })),
  );
}

interface Chance {
  readonly random: () => number;
  pick<T>(from: readonly [T, ...T[]]): T;
  some(pieces: readonly [string, ...string[]], most: number): string;
}

function chanceOf(seed: number): Chance {
  const random = randomFrom(seed);
  const pick = <T>(from: readonly [T, ...T[]]): T => from[Math.floor(random() * from.length)] ?? from[0];
  return {
    random,
    pick,
    some: (pieces, most) => Array.from({ length: Math.floor(random() * most) }, () => pick(pieces)).join(''),
  };
}

const BODY = [
  'a',
  'words of it',
  ' ',
  '  ',
  '\t',
  '\r\n',
  '\r\n',
  ' \r\n',
  '\r\n\r\n',
  '\xe9',
  '=',
  '\x00',
  '\x0b',
  ';',
] as const;
const TORN = [...BODY, '\r', '\n', ' \r', '\n\r', '\r\r\n', ' \n'] as const;
const FIELDS = [
  'From: Ann <ann@example.net>\r\n',
  'FROM :ann@example.net\r\n',
  'To: bob@in.example\r\n',
  'to:\tbob@in.example,\r\n\t carl@in.example\r\n',
  'Subject: hello\r\n',
  'Subject:  two  words \t \r\n',
  'subject: folded\r\n  twice\r\n\tand more\r\n',
  'SUBJECT:\r\n',
  'Subject: \r\n \r\n',
  'Date: Mon, 5 Jan 2026 12:00:00 +0000\r\n',
  'X-Byte: \xe9\xa0\xc3\x84 \xa0\r\n',
  'X-Odd\t : \x0b a\x0c \r\n',
  'Message-ID: <1@example.net>\r\n',
  'Reply-To\r\n : late@example.net\r\n',
  'Received: from a\r\n by b; Mon\r\n',
] as const;

/** A message with one to three signatures, and then often with something done to it. */
async function generate(chance: Chance): Promise<Buffer> {
  const { random, pick, some } = chance;
  let text = `From: Ann <ann@example.net>\r\n${some(FIELDS, 12)}\r\n${some(BODY, 40)}`;
  for (let signatures = 1 + Math.floor(random() * 2.2); signatures > 0; signatures--) text = await sign(text, chance);
  const changes = random() < 0.35 ? 0 : 1 + Math.floor(random() * 3);
  for (let n = 0; n < changes; n++) text = pick(CHANGES)(text, chance);
  return Buffer.from(text, 'latin1');
}

async function sign(text: string, { random, pick }: Chance): Promise<string> {
  const key = random() < 0.7 ? RSA : ED;
  if (random() < 0.4) {
    const names = ['from', 'to', 'subject', 'subject', 'x-byte', 'x-odd', 'reply-to', 'missing', 'received'].filter(
      (name) => name === 'from' || random() < 0.5,
    );
    const tags = pick([
      't=1',
      `x=${SECONDS + 9}`,
      `x=${SECONDS - 9}`,
      `t=${SECONDS + 5}; x=${SECONDS + 9}`,
      'q=dns/txt',
      'z=From:b=c|b=d',
      'new_tag=1',
      't=',
    ]);
    const identity = pick([
      '@example.net',
      'ann@sub.example.net',
      '@Example.NET',
      'a=40b@example.net',
      '"a b"@example.net',
      '@other.example',
    ]);
    return signMessage(
      text,
      { ...key, selector: pick([key.selector, ...SELECTORS]) },
      {
        fields: names,
        ...(random() < 0.5 ? { tags } : {}),
        ...(random() < 0.3 ? { identity } : {}),
        ...(random() < 0.1 ? { length: 3 } : {}),
      },
    );
  }
  const signed = await dkimSign(Buffer.from(text, 'latin1'), {
    canonicalization: pick(['relaxed/relaxed', 'relaxed/simple', 'simple/simple', 'simple/relaxed']),
    signTime: new Date(NOW),
    algorithm: key.algorithm,
    ...signedBy(key),
    signatureData: [signedBy(key)],
  });
  return signed.signatures + text;
}

/** Something in front of, in or instead of one match. */
function inOne(text: string, what: RegExp, { random }: Chance, change: (found: string) => string): string {
  const matches = [...text.matchAll(what)];
  const match = matches[Math.floor(random() * matches.length)];
  return match ? text.slice(0, match.index) + change(match[0]) + text.slice(match.index + match[0].length) : text;
}

const CHANGES: readonly [(text: string, chance: Chance) => string, ...((text: string, chance: Chance) => string)[]] = [
  (text, chance) => inOne(text, / /g, chance, () => chance.pick(['  ', '\t', '\r\n ', '', ' \r\n\t'])),
  (text, chance) => inOne(text, /\r\n/g, chance, (found) => chance.pick([' ', '\t ', '\r\n', '\r', '\n']) + found),
  (text, chance) => inOne(text, /\r\n/g, chance, () => chance.pick(['\n', '\r', '\r\n\r\n', ' \r\n'])),
  (text, chance) => inOne(text, /[a-z]/g, chance, (found) => chance.pick(['x', '\xe9', found.toUpperCase(), ''])),
  (text, chance) =>
    inOne(text, /;/g, chance, () =>
      chance.pick([';;', ' ; ', ';\r\n ', '', `; t=${SECONDS}; `, '; l=3;', '; b=x;', '; h=to;', '; X=1;']),
    ),
  (text, chance) => inOne(text, / s=\w+/g, chance, () => ` s=${chance.pick(['rsa', ...SELECTORS])}`),
  (text, chance) =>
    inOne(
      text,
      / d=[\w.]+/g,
      chance,
      () =>
        ` d=${chance.pick(['EXAMPLE.net', 'example', 'other.example', 'exa mple.net', '-x.net', 'example.net.', ''])}`,
    ),
  (text, chance) =>
    inOne(text, / c=[\w/]+;/g, chance, () =>
      chance.pick(['', ' c=simple;', ' c=relaxed;', ' c=Relaxed/simple;', ' c=relaxed/;', ' c=relaxed/none;']),
    ),
  (text, chance) =>
    inOne(
      text,
      / a=[\w-]+/g,
      chance,
      () => ` a=${chance.pick(['rsa-sha256', 'ed25519-sha256', 'rsa-sha1', 'RSA-sha256', 'rsa-sha512', 'rsa'])}`,
    ),
  (text, chance) =>
    inOne(text, / b=[\w+/]+/g, chance, (found) =>
      chance.pick([
        ' b=',
        ' B=AAAA',
        `${found.slice(0, 20)}\r\n ${found.slice(20)}`,
        found.slice(0, -1),
        ' b=====',
        `${found} `,
      ]),
    ),
  (text, chance) =>
    inOne(text, /h=[\w:-]+/g, chance, (found) =>
      chance.pick([
        'h=',
        'h=to',
        'h=from',
        `${found}:dkim-signature`,
        found.toUpperCase().replace('H=', 'h='),
        found.replaceAll(':', ' : '),
        `${found}::`,
      ]),
    ),
  (text, chance) => `${chance.pick([...FIELDS])}${text}`,
  (text, chance) => `${text}${chance.some(TORN, 6)}`,
  (text) => text.replace('\r\n\r\n', '\r\n'),
  (text) => text.slice(0, text.indexOf('\r\n\r\n') + 2),
  (text) => `no field\r\n${text}`,
  (text) => `From ann@example.net Mon: 5\r\n${text}`,
  (text) => `ARC-Seal: i=1; cv=none\r\n${text}`,
];

/** Where we take less than the library does, and the RFC is with us. */
const EXCEPTIONS: readonly { readonly found: RegExp; readonly why: string }[] = [
  { found: /\bb==/, why: 'an equals sign alone is no base64 (RFC 6376 section 2.10)' },
  { found: /\r(?!\n)/, why: 'a bare CR is no white space (section 2.8)' },
];

describe('our signature checks', () => {
  it(`agree with the library on ${MESSAGES} generated messages, most of them damaged, except where RFC 6376 differs`, async () => {
    const seen: Record<string, number> = {};
    for (let seed = 1; seed <= MESSAGES; seed++) {
      const message = await generate(chanceOf(seed));
      const [own, theirs] = [await ours(message), await library(message)];
      for (const [index, { value, outcome }] of own.entries()) {
        const status = theirs?.[index]?.status;
        const expected = status && outcomeOf(status);
        const exception = EXCEPTIONS.find(({ found }) => found.test(message.toString('latin1')))?.why;
        const key =
          outcome === expected
            ? outcome
            : expected === undefined
              ? 'the library threw'
              : (exception ?? `${outcome} instead of ${expected}`);
        if (expected !== undefined && outcome !== expected && (exception === undefined || outcome === 'pass'))
          expect.fail(
            `seed ${seed}: ${outcome}, the library says ${expected}\n${value}\n${message.toString('latin1')}`,
          );
        seen[key] = (seen[key] ?? 0) + 1;
      }
    }
    for (const key of ['pass', 'fault', 'temperror ETIMEOUT', 'temperror EBUDGET'])
      expect(seen[key], key).to.be.above(MESSAGES / 100);
  }).timeout(60_000);

  it('compute the same signatures as the library', async () => {
    for (const key of [RSA, ED])
      for (const form of ['relaxed/relaxed', 'relaxed/simple', 'simple/simple', 'simple/relaxed']) {
        const text = `Subject: a  b\r\n c\r\nFrom: ann@example.net\r\n\r\nHello \r\n\r\n\tyou\r\n\r\n`;
        const { signatures } = await dkimSign(text, {
          canonicalization: form,
          algorithm: key.algorithm,
          signTime: new Date(NOW),
          ...signedBy(key),
          signatureData: [signedBy(key)],
        });
        expect(
          (await ours(Buffer.from(signatures + text))).map(({ outcome }) => outcome),
          form,
        ).to.deep.equal(['pass']);
      }
  });
});

describe('the hash of a body', () => {
  const signed = (form: string) =>
    `From: a@example.net\r\nDKIM-Signature: v=1; a=rsa-sha256; c=simple/${form}; d=example.net; s=rsa; h=from; bh=x; b=x\r\n\r\n`;

  async function hashed(form: string, body: Buffer): Promise<unknown> {
    const [result] = (await library(Buffer.concat([Buffer.from(signed(form)), body]))) ?? [];
    return result && 'bodyHash' in result ? result.bodyHash : undefined;
  }

  it('matches that of the library, whole and in pieces, for any white space and line ends', async () => {
    for (let seed = 1; seed <= 400; seed++) {
      const { random, pick, some } = chanceOf(seed);
      const body = Buffer.from(some(seed % 2 === 0 ? BODY : TORN, 60), 'latin1');
      for (const form of ['simple', 'relaxed'] as const) {
        const expected = await hashed(form, body);
        expect(
          hashBody(form, body).hash.toString('base64'),
          `${form} of ${JSON.stringify(body.toString('latin1'))}`,
        ).to.equal(expected);
        const running = createBodyHash(form);
        for (let at = 0; at < body.length; ) {
          const next = at + 1 + Math.floor(random() * pick([1, 3, 30]));
          running.update(body.subarray(at, next));
          at = next;
        }
        expect(
          running.digest().hash.toString('base64'),
          `${form} in pieces of ${JSON.stringify(body.toString('latin1'))}`,
        ).to.equal(expected);
      }
    }
  }).timeout(30_000);

  it('takes linear time, for megabytes that need a second pass', () => {
    for (const unit of ['\r\n', 'a\r\n\r\n\r\n', 'a  ', ' \t', '\r', 'a\t', '\n']) {
      for (const form of ['simple', 'relaxed'] as const) hashBody(form, Buffer.alloc(4_000_000, unit));
    }
  }).timeout(20_000);
});
