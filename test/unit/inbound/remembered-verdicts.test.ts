import { expect } from 'chai';
import type { Resolver } from '../../../src/dns/types.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import { createTestClock } from '../../support/clock.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const SETTINGS = { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'mx.postern.example', trustedSealers: [] };
const ZONE: ZoneRecords = {
  'example.net': { TXT: ['v=spf1 ip4:192.0.2.7 -all'], ttl: 60 },
  '_dmarc.example.net': { TXT: ['v=DMARC1; p=reject'], ttl: 60 },
  'macro.example': { TXT: ['v=spf1 exists:%{l}.ok.example -all'] },
  'ann.ok.example': { A: ['127.0.0.2'] },
  'broken.example': { fails: 'servfail' },
};

interface Mail {
  readonly address?: string;
  readonly mailFrom?: string;
  readonly helo?: string;
  readonly from?: string;
}

/** One authenticator over a zone that can be changed, its clock, and the names it asked for. */
function openWorld() {
  const clock = createTestClock();
  const asked: string[] = [];
  let zone: Resolver = zoneResolver(ZONE);
  const resolver: Resolver = {
    ...zone,
    resolve: ((name: string, type: 'MX') => {
      asked.push(`${type} ${name}`);
      return zone.resolve(name, type);
    }) as Resolver['resolve'],
  };
  const authenticator = createAuthenticator({ resolver, settings: SETTINGS, clock });
  return {
    clock,
    asked,
    set(records: ZoneRecords) {
      zone = zoneResolver(records);
    },
    verdicts({
      address = '192.0.2.7',
      mailFrom = 'ann@example.net',
      helo = 'mail.example.net',
      from = 'ann@example.net',
    }: Mail = {}) {
      const bytes = Buffer.from(`From: Ann <${from}>\r\nSubject: hello\r\n\r\nHello.\r\n`);
      return authenticator.authenticate({ kind: 'memory', bytes }, { mailFrom, client: { address, helo, tls: null } });
    },
  };
}

describe('a cached verdict', () => {
  it('is reused without a query for any mailbox of the domain', async () => {
    const { verdicts, asked } = openWorld();
    const first = await verdicts();
    expect(first).to.deep.include({
      spf: { result: 'pass', detail: 'sender SPF authorized' },
      dmarc: { result: 'pass', policy: 'reject', aligned: true },
    });
    const questions = asked.length;
    expect(await verdicts({ mailFrom: 'bounce+8f14e45f@example.net' })).to.deep.equal(first);
    expect(asked).to.have.length(questions);
  });

  it('is not reused for another address, another HELO of the null sender, or another author', async () => {
    const { verdicts } = openWorld();
    await verdicts();
    expect((await verdicts({ address: '192.0.2.8' })).spf.result).to.equal('fail');
    expect((await verdicts({ address: '192.0.2.8' })).dmarc.result).to.equal('fail');
    expect((await verdicts({ mailFrom: '', helo: 'example.net' })).spf.result).to.equal('pass');
    expect((await verdicts({ mailFrom: '', helo: 'nobody.example' })).spf.result).to.equal('none');
    expect((await verdicts({ from: 'ann@elsewhere.example' })).dmarc.result).to.equal('none');
  });

  it('expires with the shortest TTL of its records', async () => {
    const { verdicts, set, clock } = openWorld();
    await verdicts();
    set({ ...ZONE, 'example.net': { TXT: ['v=spf1 -all'], ttl: 60 } });
    await clock.advance(59_000);
    expect((await verdicts()).spf.result).to.equal('pass');
    await clock.advance(2000);
    expect((await verdicts()).spf.result).to.equal('fail');
  });

  it('is computed again ten seconds after a record was missing', async () => {
    const { verdicts, set, clock } = openWorld();
    expect((await verdicts({ mailFrom: 'a@new.example' })).spf.result).to.equal('none');
    set({ ...ZONE, 'new.example': { TXT: ['v=spf1 ip4:192.0.2.7 -all'] } });
    await clock.advance(10_001);
    expect((await verdicts({ mailFrom: 'a@new.example' })).spf.result).to.equal('pass');
  });

  it('is not kept if a macro uses the mailbox', async () => {
    const { verdicts } = openWorld();
    expect((await verdicts({ mailFrom: 'ann@macro.example' })).spf.result).to.equal('pass');
    expect((await verdicts({ mailFrom: 'eve@macro.example' })).spf.result).to.equal('fail');
    expect((await verdicts({ mailFrom: 'ann@macro.example' })).spf.result).to.equal('pass');
  });

  it('is not kept after a DNS failure', async () => {
    const { verdicts, set } = openWorld();
    expect((await verdicts({ mailFrom: 'a@broken.example' })).spf.result).to.equal('temperror');
    set({ ...ZONE, 'broken.example': { TXT: ['v=spf1 ip4:192.0.2.7 -all'] } });
    expect((await verdicts({ mailFrom: 'a@broken.example' })).spf.result).to.equal('pass');
  });
});
