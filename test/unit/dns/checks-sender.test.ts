import { expect } from 'chai';
import { checkA, checkDkim, checkPtr, checkSpf, toReverseName } from '../../../src/dns/checks.ts';

import { type ZoneNode, type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const INCLUDE = 'spf.mx.postern.test';

describe('the SPF check of a sender domain', () => {
  const check = (node: ZoneNode | undefined, more: ZoneRecords = {}) =>
    checkSpf(zoneResolver({ ...(node && { 'example.com': node }), ...more }), 'example.com', INCLUDE);
  const errorOf = async (...texts: string[]) => {
    const found = await check({ TXT: texts });
    return found === 'unknown' ? found : found.error;
  };

  it('passes for a record that includes our name, with its TTL', async () => {
    const records = [
      `v=spf1 include:${INCLUDE} ~all`,
      `v=spf1 include:${INCLUDE}`,
      `v=spf1 redirect=${INCLUDE}`,
      `V=SPF1  a mx:mail.example.com/24//64 ip4:192.0.2.0/24 ip6:2001:db8::/32 +INCLUDE:SPF.mx.Postern.Test. ?all`,
      `v=spf1 include:_spf.other.example include:${INCLUDE} -all exp=why.%{d} future=thing`,
      `v=spf1 exists:%{ir}.list.example include:${INCLUDE} ptr -all redirect=other.example`,
    ];
    const others = { '_spf.other.example': { TXT: ['v=spf1 ip4:192.0.2.1 -all'], ttl: 9 } };
    for (const text of records)
      expect(await check({ TXT: ['google-site-verification=x', text], ttl: 77 }, others), text).to.deep.equal({
        valid: true,
        error: null,
        ttl: 77,
      });
  });

  it('joins a record in several strings', async () => {
    expect(await check({ TXT: [['v=spf1 include:spf.mx', '.postern.test ~all']] })).to.include({ valid: true });
  });

  it('follows a redirect, and uses the smaller TTL', async () => {
    const redirect = { TXT: ['v=spf1 redirect=_spf.example.com'], ttl: 900 };
    expect(
      await check(redirect, { '_spf.example.com': { TXT: [`v=spf1 include:${INCLUDE} -all`], ttl: 60 } }),
    ).to.deep.equal({ valid: true, error: null, ttl: 60 });
    expect(await check(redirect, { '_spf.example.com': { TXT: ['x'] } })).to.deep.equal({
      valid: false,
      error: "_spf.example.com, which its SPF record names, doesn't have an SPF record.",
    });
    expect(await check(redirect, { '_spf.example.com': redirect })).to.deep.equal({
      valid: false,
      error: "This domain's SPF record needs more than 10 DNS lookups to reach ours, and receivers stop at that limit.",
    });
    expect(await check(redirect, { '_spf.example.com': { fails: 'timeout' } })).to.equal('unknown');
  });

  /** Records a0 to a9 below example.net, each of which includes the next, and the last one ours. */
  const chain = (length: number): ZoneRecords =>
    Object.fromEntries(
      Array.from({ length }, (_, n) => [
        `a${n}.example.net`,
        { TXT: [`v=spf1 include:${n + 1 === length ? INCLUDE : `a${n + 1}.example.net`} -all`], ttl: 300 - n },
      ]),
    );

  it('follows nested includes, as receivers do, and uses the smallest TTL', async () => {
    const first = { TXT: ['v=spf1 ip4:192.0.2.1 include:a0.example.net ~all'], ttl: 900 };
    expect(await check(first, chain(1))).to.deep.equal({ valid: true, error: null, ttl: 300 });
    expect(await check(first, chain(9))).to.deep.equal({ valid: true, error: null, ttl: 292 });
    expect(await check({ TXT: ['v=spf1 redirect=a0.example.net'] }, chain(2))).to.include({ valid: true });
    expect(
      await check(
        { TXT: ['v=spf1 include:b.example.net include:a0.example.net -all'] },
        { ...chain(2), 'b.example.net': { TXT: ['v=spf1 ip4:192.0.2.1 -all'] } },
      ),
    ).to.include({ valid: true });
  });

  it('stops after ten lookups, as receivers do', async () => {
    const tooMany = {
      valid: false,
      error: "This domain's SPF record needs more than 10 DNS lookups to reach ours, and receivers stop at that limit.",
    };
    expect(await check({ TXT: ['v=spf1 include:a0.example.net ~all'] }, chain(10))).to.deep.equal(tooMany);
    const others = 'a mx a:x.example.net mx:y.example.net exists:z.example.net ptr';
    const hosts: ZoneRecords = {
      'x.example.net': { AAAA: ['2001:db8::1'] },
      'y.example.net': { MX: [{ exchange: 'x.example.net', priority: 1 }] },
      'z.example.net': { A: ['127.0.0.2'] },
    };
    expect(
      await check({ TXT: [`v=spf1 ${others} include:a0.example.net ~all`] }, { ...hosts, ...chain(3) }),
    ).to.include({ valid: true });
    expect(
      await check({ TXT: [`v=spf1 ${others} include:a0.example.net ~all`] }, { ...hosts, ...chain(4) }),
    ).to.deep.equal(tooMany);
    expect(
      await check(
        { TXT: [`v=spf1 ip4:192.0.2.1 ip6:2001:db8::1 ${others} include:a0.example.net ~all`] },
        { ...hosts, ...chain(3) },
      ),
      'addresses cost nothing',
    ).to.include({ valid: true });
    const twelve = Array.from({ length: 12 }, (_, n) => `c${n}.example.net`);
    const records = Object.fromEntries(twelve.map((name) => [name, { TXT: ['v=spf1 ip4:192.0.2.1 -all'] }]));
    const including = twelve.map((name) => `include:${name}`);
    expect(
      await check({ TXT: [`v=spf1 ${including.join(' ')} include:${INCLUDE} ~all`] }, records),
      'twelve includes before ours in its own record',
    ).to.deep.equal(tooMany);
    for (const before of [9, 10]) {
      const found = await check(
        { TXT: [`v=spf1 ${including.slice(0, before).join(' ')} include:${INCLUDE} ~all`] },
        records,
      );
      expect(found, `${before} before ours`).to.include({ valid: before === 9 });
    }
    expect(
      await check({ TXT: [`v=spf1 include:${INCLUDE} ${including.join(' ')} ~all`] }, records),
      'behind ours nobody gets to them',
    ).to.include({ valid: true });
    expect(await check({ TXT: ['v=spf1 include:example.com -all'] }), 'a circle').to.deep.equal(tooMany);
  });

  it('stops after two void lookups, eleven MX records, and errors of an include, as receivers do', async () => {
    const error = async (text: string, more: ZoneRecords = {}) => {
      const found = await check({ TXT: [`v=spf1 ${text} include:${INCLUDE} ~all`] }, more);
      return found === 'unknown' ? found : found.error;
    };
    const missing = ['a:x.example.net', 'mx:x.example.net', 'exists:x.example.net', 'a:y.example.net/24'];
    expect(await error(missing.slice(0, 2).join(' '))).to.equal(null);
    expect(await error(missing.slice(1).join(' '))).to.match(/^This domain's SPF record names more than 2 hosts that/);
    const exchanges = Array.from({ length: 11 }, (_, n) => ({ exchange: `mx${n}.example.net`, priority: 1 }));
    expect(await error('mx:x.example.net', { 'x.example.net': { MX: exchanges } })).to.match(/more than 10 MX records/);
    expect(await error('mx:x.example.net', { 'x.example.net': { MX: exchanges.slice(1) } })).to.equal(null);
    expect(await error('a:x.example.net', { 'x.example.net': { fails: 'timeout' } })).to.equal('unknown');
    for (const qualifier of ['', '?', '-']) {
      expect(await error(`${qualifier}include:x.example.net`)).to.match(/^x\.example\.net, .* doesn't have an SPF/);
      const two = { 'x.example.net': { TXT: ['v=spf1 -all', 'v=spf1 a -all'] } };
      expect(await error(`${qualifier}include:x.example.net`, two)).to.match(/more than one SPF record/);
    }
    expect(await errorOf('v=spf1 redirect=a.example.net redirect=b.example.net')).to.match(/syntax error in "redirect/);
  });

  it('does not pass by an include after its "all", without permission, or by a macro', async () => {
    const wrong = { valid: false, error: `This domain has an SPF record, but it doesn't include ${INCLUDE}.` };
    for (const record of [
      `v=spf1 -all include:${INCLUDE}`,
      `v=spf1 ?include:${INCLUDE} -all`,
      `v=spf1 -all redirect=${INCLUDE}`,
      `v=spf1 include:%{d}.example -all`,
    ]) {
      expect(
        await check({ TXT: ['v=spf1 include:b.example.net -all'] }, { 'b.example.net': { TXT: [record] } }),
        record,
      ).to.deep.equal(wrong);
    }
    expect(await check({ TXT: ['v=spf1 ~include:a0.example.net -all'] }, chain(1))).to.deep.equal(wrong);
    expect(await check({ TXT: ['v=spf1 -all include:a0.example.net'] }, chain(1))).to.deep.equal(wrong);
  });

  it('names the unusable include, and is unknown while the DNS of one does not answer', async () => {
    const first = { TXT: ['v=spf1 include:b.example.net -all'] };
    const errorWith = async (node: ZoneNode) => {
      const found = await check(first, { 'b.example.net': node });
      return found === 'unknown' ? found : found.error;
    };
    expect(await errorWith({ A: ['192.0.2.1'] })).to.equal(
      "b.example.net, which its SPF record names, doesn't have an SPF record.",
    );
    expect(await errorWith({ TXT: ['v=spf1 -all', 'v=spf1 a'] })).to.equal(
      'b.example.net, which its SPF record names, has more than one SPF record. Receivers ignore them all until there is only one.',
    );
    expect(await errorWith({ TXT: ['v=spf1 ip4:x'] })).to.equal(
      'The SPF record of b.example.net, which its SPF record names, has a syntax error in "ip4:x".',
    );
    expect(await errorWith({ fails: 'timeout' })).to.equal('unknown');
  });

  it('explains a failure', async () => {
    expect(await check(undefined)).to.deep.equal({ valid: false, error: 'This domain does not exist.' });
    expect(await errorOf('v=spf10 include:x', 'v=spf2.0/pra all', 'spf1')).to.equal(
      "This domain doesn't have an SPF record.",
    );
    expect(await check({ A: ['192.0.2.1'] })).to.deep.equal({
      valid: false,
      error: "This domain doesn't have an SPF record.",
    });
    expect(await errorOf(`v=spf1 include:${INCLUDE} ~all`, 'v=spf1 -all')).to.equal(
      'This domain has more than one SPF record. Receivers ignore them all until there is only one.',
    );
    for (const text of ['v=spf1', 'v=spf1 -all', `v=spf1 a:${INCLUDE} ~all`, 'v=spf1 -all redirect=_spf.example.com']) {
      expect(await errorOf(text), text).to.equal(`This domain has an SPF record, but it doesn't include ${INCLUDE}.`);
    }
    expect(await errorOf(`v=spf1 -all include:${INCLUDE}`)).to.equal(
      `This domain has an SPF record, but it includes ${INCLUDE} after "all", where receivers ignore it.`,
    );
    expect(await errorOf(`v=spf1 ?include:${INCLUDE} ~all`)).to.equal(
      `This domain has an SPF record, but it includes ${INCLUDE} with the qualifier "?", which does not authorize it.`,
    );
    for (const term of [
      'include',
      'include:',
      'includ:x',
      'ip4:300.x',
      'all:',
      '~',
      `include ${INCLUDE}`,
      'spf.mx.postern.test',
      '"v=spf1',
    ]) {
      expect(await errorOf(`v=spf1 include:${INCLUDE} ${term} ~all`), term).to.match(
        /^This domain's SPF record has a syntax error in "/,
      );
    }
  });

  it('is fast for a record that was made to be slow', async () => {
    const terms = [
      'include:' + 'a'.repeat(20_000) + ' ',
      'a'.repeat(30_000),
      ' '.repeat(30_000),
      'a:'.repeat(15_000),
      '0='.repeat(15_000),
      'a=' + '='.repeat(30_000),
    ];
    // Were it quadratic or worse in any of them, the time of the test would be over long before.
    for (const term of terms) expect(await check({ TXT: [`v=spf1 ${term}`] })).to.include({ valid: false });
  });

  it('is unknown when the DNS does not answer', async () => {
    expect(await check({ fails: 'timeout' })).to.equal('unknown');
    expect(await check({ fails: 'servfail' })).to.equal('unknown');
  });
});

describe('the DKIM check of a sender domain', () => {
  const KEY = 'MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A';
  const names = { name: 'postern._domainkey.example.com', target: 'abc.dkim.mx.postern.test' };
  const check = (zone: ZoneRecords) => checkDkim(zoneResolver(zone), names, KEY);
  const errorOf = async (...TXT: (string | string[])[]) => {
    const found = await check({ [names.name]: { TXT } });
    return found === 'unknown' ? found : found.error;
  };

  it('passes for our key in any notation', async () => {
    for (const text of [
      `v=DKIM1; k=rsa; p=${KEY}`,
      `v=DKIM1;k=rsa;p=${KEY};`,
      `p=${KEY}`,
      ` v = DKIM1 ; h=sha1:sha256 ; s=email ; t=s; n=a=b; p= ${KEY.slice(0, 9)} ${KEY.slice(9)} `,
      `v=DKIM1; s=*; p=${KEY}`,
    ]) {
      expect(await check({ [names.name]: { TXT: [text], ttl: 60 } }), text).to.deep.equal({
        valid: true,
        error: null,
        ttl: 60,
      });
    }
    expect(await errorOf(['v=DKIM1; k=rsa; p=', KEY.slice(0, 10), KEY.slice(10)])).to.equal(null);
  });

  it('passes for our key behind a CNAME', async () => {
    expect(
      await check({ [names.name]: { CNAME: names.target }, [names.target]: { TXT: [`v=DKIM1; p=${KEY}`] } }),
    ).to.include({ valid: true });
  });

  it('explains a failure', async () => {
    expect(await check({})).to.deep.equal({
      valid: false,
      error: 'There is no DKIM record at postern._domainkey.example.com.',
    });
    expect(await check({ [names.name]: { CNAME: 'ABC.dkim.mx.postern.test.' } })).to.deep.equal({
      valid: false,
      error:
        'postern._domainkey.example.com points to abc.dkim.mx.postern.test as it should, but the record there is not published yet.',
    });
    expect(await check({ [names.name]: { CNAME: 'dkim.other.example' } })).to.deep.equal({
      valid: false,
      error: 'postern._domainkey.example.com points to dkim.other.example, not to abc.dkim.mx.postern.test.',
    });
    expect(await errorOf(`v=DKIM1; p=${KEY}`, 'v=DKIM1; p=x')).to.equal(
      'There is more than one record at postern._domainkey.example.com. Receivers need exactly one.',
    );
    expect(await errorOf('v=DKIM1; k=rsa; p=Another')).to.equal(
      'The record at postern._domainkey.example.com contains a different key.',
    );
    expect(await errorOf('v=DKIM1; k=rsa; p=')).to.equal(
      'The record at postern._domainkey.example.com says that the key is revoked (p= is empty).',
    );
    expect(await errorOf('v=DKIM1; k=rsa')).to.equal('The record at postern._domainkey.example.com has no key (p=).');
    expect(await errorOf(`v=DKIM2; p=${KEY}`)).to.equal(
      'The record at postern._domainkey.example.com does not begin with v=DKIM1.',
    );
    expect(await errorOf(`k=ed25519; p=${KEY}`)).to.equal(
      'The record at postern._domainkey.example.com is not for an RSA key.',
    );
    expect(await errorOf(`h=sha1; p=${KEY}`)).to.equal(
      'The record at postern._domainkey.example.com does not allow SHA-256 (h=).',
    );
    expect(await errorOf(`s=tlsa; p=${KEY}`)).to.equal(
      'The record at postern._domainkey.example.com is not for email (s=).',
    );
    expect(await errorOf('')).to.equal('The record at postern._domainkey.example.com has no key (p=).');
  });

  it('is unknown when the DNS does not answer', async () => {
    expect(await check({ [names.name]: { fails: 'servfail' } })).to.equal('unknown');
  });
});

describe('custom reverse DNS checks', () => {
  const resolver = zoneResolver({
    'mail.example.com': { A: ['192.0.2.9', '192.0.2.1'], AAAA: ['2001:DB8:0:0::1'] },
    'other.example.com': { A: ['192.0.2.9'] },
    'text.example.com': { TXT: ['x'] },
    'slow.example.com': { fails: 'timeout' },
    '1.2.0.192.in-addr.arpa': { PTR: ['mail.example.com.'] },
    '9.2.0.192.in-addr.arpa': { fails: 'servfail' },
    '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa': { PTR: ['MAIL.example.com'] },
  });

  it('pass when name and address point to each other', async () => {
    expect(await checkA(resolver, 'Mail.Example.com', '192.0.2.1')).to.deep.equal({ valid: true, error: null });
    expect(await checkA(resolver, 'mail.example.com', '2001:db8::1')).to.deep.equal({ valid: true, error: null });
    expect(await checkPtr(resolver, '192.0.2.1', 'MAIL.example.com')).to.deep.equal({ valid: true, error: null });
    expect(await checkPtr(resolver, '2001:db8::1', 'mail.example.com')).to.deep.equal({ valid: true, error: null });
  });

  it('explain a failure in the words of Mandrill', async () => {
    expect(await checkA(resolver, 'mail128.example.com', '192.0.2.1')).to.deep.equal({
      valid: false,
      error: 'mail128.example.com does not exist',
    });
    expect(await checkA(resolver, 'text.example.com', '192.0.2.1')).to.deep.equal({
      valid: false,
      error: 'No A record found',
    });
    expect(await checkA(resolver, 'other.example.com', '192.0.2.1')).to.deep.equal({
      valid: false,
      error: 'other.example.com points to 192.0.2.9, not to 192.0.2.1',
    });
    expect(await checkPtr(resolver, '192.0.2.1', 'other.example.com')).to.deep.equal({
      valid: false,
      error: 'Invalid reverse DNS',
    });
    expect(await checkPtr(resolver, '192.0.2.2', 'mail.example.com')).to.deep.equal({
      valid: false,
      error: 'Invalid reverse DNS',
    });
    expect(await checkPtr(resolver, 'mail.example.com', 'mail.example.com')).to.deep.equal({
      valid: false,
      error: 'mail.example.com is not an IP address',
    });
  });

  it('are unknown when the DNS does not answer', async () => {
    expect(await checkA(resolver, 'slow.example.com', '192.0.2.1')).to.equal('unknown');
    expect(await checkPtr(resolver, '192.0.2.9', 'mail.example.com')).to.equal('unknown');
  });

  it('query the names of addresses in the reverse DNS', () => {
    expect(toReverseName('192.0.2.1')).to.equal('1.2.0.192.in-addr.arpa');
    expect(toReverseName('fe80::1%eth0')).to.equal(undefined);
    expect(toReverseName('192.0.2')).to.equal(undefined);
  });
});
