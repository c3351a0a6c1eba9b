import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import { makeKey, signMessage } from '../../support/dns-keys.ts';
import { randomFrom } from '../../support/random-text.ts';
import { size } from '../../support/sizes.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const OWN = makeKey('victim.example', 'own', 1024);
const EVIL = makeKey('attacker.test', 'evil', 1024);
const ZONE: ZoneRecords = {
  ...OWN.records,
  ...EVIL.records,
  'attacker.test': { TXT: ['v=spf1 ip4:192.0.2.66 -all'] },
  '_dmarc.attacker.test': { TXT: ['v=DMARC1; p=none'] },
  'victim.example': { TXT: ['v=spf1 -all'] },
  '_dmarc.victim.example': { TXT: ['v=DMARC1; p=reject'] },
  'slow.attacker.test': { fails: 'timeout' },
  'slow._domainkey.attacker.test': { fails: 'timeout' },
};
const ENVELOPE = {
  mailFrom: 'evil@attacker.test',
  client: { address: '192.0.2.66', helo: 'mail.attacker.test', tls: null },
};
const SETTINGS = { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'mx.postern.example', trustedSealers: [] };
const MESSAGE = 'From: Boss <ceo@victim.example>\r\nTo: desk@in.test\r\nSubject: money\r\n\r\nPay at once.\r\n';
const FAILING = signMessage(MESSAGE, EVIL);
const PASSING = signMessage(MESSAGE, OWN);
const FAIL = { result: 'fail', policy: 'reject', aligned: false };
const PASS = { result: 'pass', policy: 'reject', aligned: true };
const BODY_HASH = /bh=([^;]+)/.exec(PASSING)?.[1] ?? '';

const verdicts = (message: string) =>
  createAuthenticator({ resolver: zoneResolver(ZONE), settings: SETTINGS, clock: systemClock }).authenticate(
    { kind: 'memory', bytes: Buffer.from(message, 'latin1') },
    ENVELOPE,
  );

/**
 * A header field that says whatever an attacker might think of. None is a From field: that is another author, and has
 * tests of its own.
 */
function junk(random: () => number): string {
  const pick = (...from: string[]): string => from[Math.floor(random() * from.length)] ?? '';
  const maybe = (text: string): string => (random() < 0.85 ? text : '');
  const tag = (name: string, ...values: string[]): string =>
    maybe(
      `${pick('', ' ', '\r\n ', '\t')}${name}${pick('=', '=', '=', ' = ', '')}${pick(...values)}${pick(';', ';', ';', ';', ';;', '')}`,
    );
  const tags = (): string =>
    [
      tag('v', '1', '1', '1', '2', ''),
      tag('a', 'rsa-sha256', 'rsa-sha256', 'ed25519-sha256', 'rsa-sha1', 'x', ''),
      tag('c', '/', 'relaxed/relaxed', 'simple', '/simple', 'relaxed/', 'none/none', '', 'relaxed/relaxed/x'),
      tag(
        'd',
        'victim.example',
        'attacker.test',
        'slow.attacker.test',
        'com',
        '',
        '..',
        '\xe9.example',
        `${'a.'.repeat(140)}victim.example`,
      ),
      tag('s', 'own', 'evil', 'slow', 'none', '', '..', `${'s.'.repeat(130)}s`, '__proto__'),
      tag(
        'h',
        'from',
        'from:to:subject',
        'to',
        '',
        ':',
        'From : From',
        'from:dkim-signature',
        `from${':x'.repeat(300)}`,
      ),
      tag('i', '@victim.example', 'x@attacker.test', '@', '=', '1', '0', '51', '1'),
      tag('l', '0', '5', '-1', 'x', '999999999999999999999'),
      tag('t', '1', 'x', '99999999999999'),
      tag('x', '1', '9999999999', ''),
      tag('q', 'dns/txt', 'http'),
      tag('cv', 'none', 'pass', 'fail'),
      tag('bh', BODY_HASH, BODY_HASH, 'AAAA', '', '='),
      tag('b', 'AAAA', '', '=', '\xff', 'A'.repeat(172)),
      tag('constructor', 'x'),
    ].join('');
  const text = (): string =>
    Array.from({ length: Math.floor(random() * 30) }, () =>
      pick('a', ' ', ';', '=', '"', '(', '<', '\xe9', '\t', '@', ',', 'i=1', '\r\n '),
    ).join('');
  switch (Math.floor(random() * 10)) {
    case 0:
    case 1:
    case 2:
      return `${pick('DKIM-Signature', 'dkim-signature', 'DKIM-Signature ')}:${tags()}\r\n`;
    case 3:
    case 4:
      return `${pick('ARC-Seal', 'ARC-Message-Signature', 'ARC-Authentication-Results', 'ARC-X')}: ${pick('i=1;', 'i=2;', '')}${tags()}\r\n`;
    case 5:
      return `${pick('Authentication-Results', 'Received-SPF')}: ${pick('mx.postern.example', 'x')}; dmarc=pass header.from=victim.example; dkim=pass ${text()}\r\n`;
    case 6:
      return `${pick('Sender', 'Reply-To', 'Resent-From', 'X-From', 'From-', '-From', 'Fr\xf6m', 'Return-Path', 'Envelope-From', 'To', 'Cc')}: ${pick('evil@attacker.test', 'ceo@victim.example', text())}\r\n`;
    case 7:
      return `${pick('no colon at all', 'two words: x', ':', ': x', 'X\x00Y: z', 'From ceo@attacker.test', '\xe9: \xe9', '=?utf-8?q?From?=: evil@attacker.test')}\r\n`;
    case 8:
      return `X-Long: ${pick('y', '\xff', ' ', '(').repeat(Math.floor(random() * 3000))}\r\n`;
    default:
      return (
        signMessage(`X: ${text().replaceAll('\r\n', '')}\r\n${MESSAGE}`, EVIL, { length: 0 }).split(MESSAGE)[0] ?? ''
      );
  }
}

describe('thousands of junk headers', () => {
  it('in front do not change a failing or a passing message', async () => {
    const random = randomFrom(20);
    for (let left = size(10_000, 2000); left > 0; ) {
      const many = random() < 0.3 ? 1 : 1 + Math.floor(random() * 40);
      const front = Array.from({ length: many }, () => junk(random)).join('');
      left -= many;
      const [failing, passing] = [await verdicts(front + FAILING), await verdicts(front + PASSING)];
      expect(failing.dmarc, front).to.deep.equal(FAIL);
      expect(passing.dmarc, front).to.deep.equal(PASS);
      expect(passing.dkim, front).to.deep.equal({ signed: true, valid: true });
      for (const { arc } of [failing, passing])
        expect(arc.result, front).to.equal(
          /^arc-(?:seal|message-signature|authentication-results):/im.test(front) ? 'fail' : 'none',
        );
    }
  }).timeout(120_000);

  it('all at once do the same, up to the largest header', async () => {
    for (const line of [
      'DKIM-Signature: c=/\r\n',
      'ARC-Seal: i=1\r\n',
      'X: y\r\n',
      'DKIM-Signature:\r\n',
      'no field\r\n',
    ]) {
      const front = line.repeat(10_000);
      expect((await verdicts(front + FAILING)).dmarc, line).to.deep.equal(FAIL);
      expect((await verdicts(front + PASSING)).dmarc, line).to.deep.equal(PASS);
    }
  }).timeout(20_000);

  /** What a sender adds, by size: each is a message that says who wrote it, with something large around that. */
  const LARGE: readonly (readonly [string, (message: string) => string])[] = [
    ...[255, 256, 257, 300, 1000].flatMap((kilobytes): [string, (message: string) => string][] => {
      const bytes = kilobytes * 1024;
      const folded = `X-Junk: y${`\r\n ${'y'.repeat(70)}`.repeat(bytes / 73)}\r\n`;
      return [
        [`a field of ${kilobytes} KB in front`, (message) => `X-Junk: ${'y'.repeat(bytes)}\r\n${message}`],
        [`a folded field of ${kilobytes} KB in front`, (message) => folded + message],
        [
          `a field of ${kilobytes} KB behind From`,
          (message) => message.replace('To:', `X-Junk: ${'y'.repeat(bytes)}\r\nTo:`),
        ],
        [
          `a field of ${kilobytes} KB at the end`,
          (message) => message.replace('\r\n\r\n', `\r\nX-Junk: ${'y'.repeat(bytes)}\r\n\r\n`),
        ],
        [`a name of ${kilobytes} KB`, (message) => `${'y'.repeat(bytes)}: x\r\n${message}`],
        [`a line of ${kilobytes} KB that is no field`, (message) => `X: y\r\n${'y '.repeat(bytes / 2)}\r\n${message}`],
        [`fields of ${kilobytes} KB together`, (message) => 'X: y\r\n'.repeat(bytes / 6) + message],
        [`signatures of ${kilobytes} KB`, (message) => `DKIM-Signature: v=1; b=${'A'.repeat(bytes)}\r\n${message}`],
        [
          `a To field of ${kilobytes} KB`,
          (message) => `To: ${'a@in.test, '.repeat(bytes / 11)}b@in.test\r\n${message}`,
        ],
      ];
    }),
    ...[11, 101, 1001, 5000].flatMap((count): [string, (message: string) => string][] => [
      [
        `${count} signatures`,
        (message) =>
          `DKIM-Signature: v=1; a=rsa-sha256; d=x${count}.test; s=k; h=from; bh=${BODY_HASH}; b=AAAA\r\n`.repeat(
            count,
          ) + message,
      ],
      [`${count} ARC fields`, (message) => 'ARC-Seal: i=1; cv=none\r\n'.repeat(count) + message],
      [`${count} lines of one field`, (message) => `X: y${'\r\n y'.repeat(count)}\r\n${message}`],
    ]),
  ];

  it('of any size neither hide nor improve a verdict', async () => {
    for (const [name, enlarge] of LARGE) {
      const [failing, passing] = [await verdicts(enlarge(FAILING)), await verdicts(enlarge(PASSING))];
      const isTooLarge = failing.dmarc.result === 'permerror';
      if (!isTooLarge) expect(failing.dmarc, name).to.deep.equal(FAIL);
      else
        for (const one of [failing, passing]) {
          expect(one.dmarc, name).to.deep.equal({ result: 'permerror', policy: null, aligned: false });
          expect([one.dkim, one.arc.result], name).to.deep.equal([{ signed: true, valid: false }, 'fail']);
          expect(
            one.evidence?.dkim.map(({ result }) => result),
            name,
          ).to.deep.equal(['permerror']);
        }
      expect(isTooLarge, name).to.equal(/\b(?:256|257|300|1000) KB|5000 signatures/.test(name));
      if (!isTooLarge && !/behind From|at the end/.test(name)) expect(passing.dmarc, name).to.deep.equal(PASS);
      expect(failing.spf.result, name).to.equal('pass');
    }
  }).timeout(120_000);

  it('of parts do not change a verdict: a thousand, and a hundred nested', async () => {
    const flat = `--b\r\n\r\nx\r\n`.repeat(1500);
    const deep = Array.from(
      { length: 100 },
      (_, i) => `--b${i}\r\nContent-Type: multipart/mixed; boundary=b${i + 1}\r\n\r\n`,
    );
    for (const [boundary, body] of [
      ['b', flat],
      ['b0', deep.join('')],
    ] as const) {
      const message =
        MESSAGE.replace('Subject:', `Content-Type: multipart/mixed; boundary=${boundary}\r\nSubject:`) + body;
      expect((await verdicts(signMessage(message, EVIL))).dmarc).to.deep.equal(FAIL);
      expect((await verdicts(signMessage(message, OWN))).dmarc).to.deep.equal(PASS);
    }
  });

  it('with keys that never arrive cannot use up the time of the signature of the message', async () => {
    const slow = Array.from(
      { length: 60 },
      (_, i) =>
        `DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/simple; d=victim.example; s=slow${i}; h=from; bh=${BODY_HASH}; b=AAAA\r\n`,
    ).join('');
    expect((await verdicts(slow + PASSING)).dmarc).to.deep.equal(PASS);
    expect((await verdicts(slow + FAILING)).dmarc).to.deep.equal(FAIL);
  });

  it('work like an additional From field: they may remove a pass, never a failure', async () => {
    for (const from of [
      'From: evil@attacker.test\r\n',
      'FROM : evil@attacker.test\r\n',
      'From\r\n : evil@attacker.test\r\n',
      'From:\r\n',
      'From: ,\r\n',
      'From: (\r\n',
      'From: "\r\n',
      `From: ${Array.from({ length: 9 }, (_, i) => `a@p${i}.test`).join(', ')}\r\n`,
    ]) {
      expect((await verdicts(from + FAILING)).dmarc.result, from).to.equal('fail');
      if (!from.includes('p8')) expect((await verdicts(from + FAILING)).dmarc, from).to.deep.equal(FAIL);
      expect((await verdicts(from + PASSING)).dmarc.result, from).to.be.oneOf(['permerror', 'fail']);
    }
    // More authors than are asked about, the victim last.
    const many = `${Array.from({ length: 4 }, (_, i) => `a@p${i}.test`).join(', ')}, Boss`;
    expect((await verdicts(FAILING.replace('Boss', many))).dmarc.result).to.equal('fail');
  });
});
