import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createResolver } from '../../../src/dns/resolver.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import type { Envelope } from '../../../src/mail/addresses/envelope.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import type { ZoneRecords } from '../../support/zone.ts';
import { startZone, zoneResolver } from '../../support/zone.ts';

const SETTINGS = { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'mx.postern.example', trustedSealers: [] };
const MESSAGE = Buffer.from('From: Ann <ann@example.net>\r\nTo: bob@in.example\r\nSubject: hello\r\n\r\nHello.\r\n');

function envelope(
  address: string | null,
  mailFrom = 'ann@example.net',
  helo: string | null = 'mail.example.net',
): Envelope {
  return { mailFrom, client: { address, helo, tls: null } };
}

function verdictsOf(records: ZoneRecords, from: Envelope, message: Uint8Array = MESSAGE, settings = SETTINGS) {
  const resolver = zoneResolver(records);
  return createAuthenticator({ resolver, settings, clock: systemClock }).authenticate(
    { kind: 'memory', bytes: message },
    from,
  );
}

async function spfOf(records: ZoneRecords, from: Envelope) {
  return (await verdictsOf(records, from)).spf;
}

describe('the SPF verdict', () => {
  const records: ZoneRecords = {
    'example.net': { TXT: ['v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all'] },
    'soft.example': { TXT: ['v=spf1 ~all'] },
    'neutral.example': { TXT: ['v=spf1 ?all'] },
    'two.example': { TXT: ['v=spf1 -all', 'v=spf1 +all'] },
    'slow.example': { fails: 'timeout' },
    'broken.example': { fails: 'servfail' },
    'mail.helo.example': { TXT: ['v=spf1 ip4:192.0.2.7 -all'] },
    'xn--bcher-kva.example': { TXT: ['v=spf1 ip4:192.0.2.7 -all'] },
    'who.example': { TXT: ['v=spf1 exists:%{ir}.%{v}.%{h}.who.example -all'] },
    '7.2.0.192.in-addr.mail.example.net.who.example': { A: ['127.0.0.2'] },
  };

  it('has a fixed text for every result', async () => {
    for (const [address, mailFrom, result, detail] of [
      ['192.0.2.7', undefined, 'pass', 'sender SPF authorized'],
      ['198.51.100.1', undefined, 'fail', 'SPF fail - not authorized'],
      ['192.0.2.7', 'a@soft.example', 'softfail', 'domain owner discourages use of this host'],
      ['192.0.2.7', 'a@neutral.example', 'neutral', 'access neither permitted nor denied'],
      ['192.0.2.7', 'a@nothing.example', 'none', ''],
      ['192.0.2.7', 'a@slow.example', 'temperror', 'temporary DNS error in processing'],
      ['192.0.2.7', 'a@broken.example', 'temperror', 'temporary DNS error in processing'],
      ['192.0.2.7', 'a@two.example', 'permerror', 'permanent error in processing'],
    ] as const)
      expect(await spfOf(records, envelope(address, mailFrom)), mailFrom).to.deep.equal({ result, detail });
  });

  it('is that of HELO for the null sender', async () => {
    expect(await spfOf(records, envelope('192.0.2.7', '', 'mail.helo.example'))).to.have.property('result', 'pass');
    expect(await spfOf(records, envelope('192.0.2.8', '', 'mail.helo.example'))).to.have.property('result', 'fail');
  });

  it('is none without an address, or without a name', async () => {
    expect(await spfOf(records, envelope(null))).to.have.property('result', 'none');
    expect(await spfOf(records, envelope('not an address'))).to.have.property('result', 'none');
    expect(await spfOf(records, envelope('192.0.2.7', '', null))).to.have.property('result', 'none');
    expect(await spfOf(records, envelope('192.0.2.7', '', ''))).to.have.property('result', 'none');
  });

  it('treats an IPv4-mapped address as IPv4, and an IPv6 address as IPv6', async () => {
    expect(await spfOf(records, envelope('::ffff:192.0.2.7'))).to.have.property('result', 'pass');
    expect(await spfOf(records, envelope('2001:db8::7'))).to.have.property('result', 'pass');
    expect(await spfOf(records, envelope('2001:db9::7'))).to.have.property('result', 'fail');
  });

  it('queries a domain of any script by its A-label', async () => {
    expect(await spfOf(records, envelope('192.0.2.7', 'a@bücher.example'))).to.have.property('result', 'pass');
  });

  it('gives macros the client and its HELO, and nothing of this machine', async () => {
    expect(await spfOf(records, envelope('192.0.2.7', 'a@who.example'))).to.have.property('result', 'pass');
  });

  it('handles any HELO and any reverse-path', async () => {
    const odd = [
      '[192.0.2.7]',
      '[IPv6:2001:db8::1]',
      'a',
      '-',
      '..',
      '%{s}',
      'x'.repeat(5000),
      '\u0000',
      '☃.example',
      'localhost',
      '<>',
      '(',
      ' ',
    ];
    for (const text of odd) {
      for (const from of [
        envelope('192.0.2.7', '', text),
        envelope('192.0.2.7', text, text),
        envelope('192.0.2.7', `${text}@${text}`, null),
        envelope('fe80::1%eth0', `"a b"@${text}`),
      ]) {
        expect((await spfOf(records, from)).result, text.slice(0, 20)).to.be.oneOf([
          'none',
          'permerror',
          'neutral',
          'fail',
        ]);
      }
    }
  });
});

describe('the DNS budget of a message', () => {
  it('gives a temporary error when it is used up, not an exception', async () => {
    const records: ZoneRecords = {
      'example.net': { TXT: ['v=spf1 a:a.example.net a:b.example.net ip4:192.0.2.7 -all'] },
      'a.example.net': { A: ['192.0.2.1'] },
      'b.example.net': { A: ['192.0.2.1'] },
    };
    const verdicts = await verdictsOf(records, envelope('192.0.2.7'), MESSAGE, { ...SETTINGS, questionsPerMessage: 2 });
    expect(verdicts.spf.result).to.equal('temperror');
    expect(verdicts.dmarc.result).to.equal('temperror');
    expect(
      (await verdictsOf(records, envelope('192.0.2.7'), MESSAGE, { ...SETTINGS, questionsPerMessage: 0 })).spf.result,
    ).to.equal('temperror');
  });

  it('reserves a share for DMARC, however expensive the SPF of the sender is', async () => {
    const hosts = Array.from({ length: 10 }, (_, i) => ({ exchange: `mx${i}.evil.example`, priority: i }));
    const records: ZoneRecords = {
      'evil.example': {
        TXT: [`v=spf1 ${Array.from({ length: 9 }, (_, i) => `mx:m${i}.evil.example`).join(' ')} -all`],
      },
      ...Object.fromEntries(
        Array.from({ length: 9 }, (_, m) => [
          `m${m}.evil.example`,
          { MX: hosts.map((host) => ({ ...host, exchange: `x${m}.${host.exchange}` })) },
        ]),
      ),
      ...Object.fromEntries(
        Array.from({ length: 90 }, (_, i) => [`x${Math.floor(i / 10)}.mx${i % 10}.evil.example`, { A: ['192.0.2.1'] }]),
      ),
      '_dmarc.example.net': { TXT: ['v=DMARC1; p=reject'] },
    };
    const verdicts = await verdictsOf(records, envelope('198.51.100.1', 'x@evil.example'));
    expect(verdicts.spf.result).to.equal('temperror');
    expect(verdicts.dmarc).to.deep.equal({ result: 'fail', policy: 'reject', aligned: false });
  });

  it('is also a time limit: afterwards every verdict exists', async () => {
    const clock = createTestClock();
    const zone = await startZone({});
    zone.behave('drop');
    const resolver = createResolver(
      { servers: [zone.server], timeoutMs: 60_000, ...SETTINGS },
      { clock, log: createTestLog(), ids: createIds(clock), metrics: NO_METRICS },
    );
    const authenticator = createAuthenticator({ resolver, settings: SETTINGS, clock });
    const verdicts = authenticator.authenticate({ kind: 'memory', bytes: MESSAGE }, envelope('192.0.2.7'));
    let done = false;
    void verdicts.finally(() => {
      done = true;
    });
    let spent = 0;
    while (!done && spent < 60_000) {
      await clock.advance(1000);
      spent += 1000;
    }
    expect(spent).to.be.at.most(21_000);
    expect((await verdicts).spf.result).to.equal('temperror');
    expect((await verdicts).dmarc.result).to.equal('temperror');
    await resolver.stop();
    await zone.stop();
  });
});
