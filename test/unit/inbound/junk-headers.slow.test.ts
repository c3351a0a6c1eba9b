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
    { bytes: Buffer.from(message, 'latin1') },
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
  it('in front of a message that fails leave it failing, and in front of one that passes leave it passing', async () => {
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

  it('all at once do the same, as far as a header may be long', async () => {
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

  it("that ask for keys which never come cannot use up the time of the message's own signature", async () => {
    const slow = Array.from(
      { length: 60 },
      (_, i) =>
        `DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/simple; d=victim.example; s=slow${i}; h=from; bh=${BODY_HASH}; b=AAAA\r\n`,
    ).join('');
    expect((await verdicts(slow + PASSING)).dmarc).to.deep.equal(PASS);
    expect((await verdicts(slow + FAILING)).dmarc).to.deep.equal(FAIL);
  });

  it('are as good as one more From field for taking a pass away, and no good at all for taking a failure away', async () => {
    for (const from of [
      'From: evil@attacker.test\r\n',
      'FROM : evil@attacker.test\r\n',
      'From\r\n : evil@attacker.test\r\n',
      'From:\r\n',
      'From: ,\r\n',
      'From: (\r\n',
      'From: "\r\n',
    ]) {
      expect((await verdicts(from + FAILING)).dmarc, from).to.deep.equal(FAIL);
      expect((await verdicts(from + PASSING)).dmarc.result, from).to.be.oneOf(['permerror', 'fail']);
    }
  });
});
