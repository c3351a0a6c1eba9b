import { expect } from 'chai';
import { checkMx } from '../../../src/dns/checks.ts';
import { parseResolvConf, parseServer } from '../../../src/dns/system.ts';
import { sameName, toQuestionName } from '../../../src/dns/types.ts';
import { zoneResolver } from '../../support/zone.ts';

describe('the MX check of an inbound domain', () => {
  const hosts = ['mx1.postern.example', 'mx2.postern.example'];
  const resolver = zoneResolver({
    'good.example': {
      MX: [
        { exchange: 'mail.other.example', priority: 5 },
        { exchange: 'MX2.Postern.Example', priority: 10 },
      ],
    },
    'other.example': { MX: [{ exchange: 'mail.other.example', priority: 5 }] },
    'null.example': { MX: [{ exchange: '', priority: 0 }] },
    'bare.example': { A: ['192.0.2.1'] },
    'slow.example': { fails: 'timeout' },
    'broken.example': { fails: 'servfail' },
  });

  it('passes when an MX names one of our hosts, in any case', async () => {
    expect(await checkMx(resolver, 'good.example', hosts)).to.deep.equal({ valid: true, error: null });
  });

  it('shows which hosts the MX records name instead', async () => {
    expect(await checkMx(resolver, 'other.example', hosts)).to.deep.equal({
      valid: false,
      error:
        'The MX records of other.example point to mail.other.example, not to mx1.postern.example or mx2.postern.example',
    });
  });

  it('fails for a null MX, a domain without MX and an invalid domain', async () => {
    expect(await checkMx(resolver, 'null.example', hosts)).to.deep.equal({
      valid: false,
      error: 'The domain null.example accepts no mail (null MX, RFC 7505)',
    });
    expect(await checkMx(resolver, 'bare.example', hosts)).to.deep.equal({
      valid: false,
      error: 'The domain bare.example has no MX record',
    });
    expect(await checkMx(resolver, 'nothing.example', hosts)).to.deep.equal({
      valid: false,
      error: 'The domain nothing.example does not exist',
    });
  });

  it('is unknown when the DNS does not answer, so that an outage does not fail a valid domain', async () => {
    expect(await checkMx(resolver, 'slow.example', hosts)).to.equal('unknown');
    expect(await checkMx(resolver, 'broken.example', hosts)).to.equal('unknown');
  });
});

describe('domain names', () => {
  it('are queried in lower case and as A-labels', () => {
    expect(toQuestionName('_DMARC.Example.COM.')).to.equal('_dmarc.example.com');
    expect(toQuestionName('_dmarc.Bücher.example')).to.equal('_dmarc.xn--bcher-kva.example');
    expect(toQuestionName('a'.repeat(63) + '.example')).to.equal('a'.repeat(63) + '.example');
  });

  it('are invalid if they cannot exist in the DNS', () => {
    for (const name of [
      '',
      '.',
      '..',
      'a..b',
      '.a',
      `${'a'.repeat(64)}.b`,
      'a'.repeat(254),
      'line\nbreak.example',
      'nul\0.example',
      '\u202e.example',
    ]) {
      expect(toQuestionName(name), JSON.stringify(name)).to.equal(undefined);
    }
  });

  it('are compared regardless of case, final dot or script', () => {
    expect(sameName('MX.Example.', 'mx.example')).to.equal(true);
    expect(sameName('bücher.example', 'xn--bcher-kva.example')).to.equal(true);
    expect(sameName('', '')).to.equal(false);
  });
});

describe('name servers in settings and in resolv.conf', () => {
  it('are an address with or without a port', () => {
    expect(parseServer('192.0.2.1')).to.deep.equal({ address: '192.0.2.1', port: 53 });
    expect(parseServer('192.0.2.1:5353')).to.deep.equal({ address: '192.0.2.1', port: 5353 });
    expect(parseServer('[2001:db8::1]:5353')).to.deep.equal({ address: '2001:db8::1', port: 5353 });
    expect(parseServer('2001:db8::1')).to.deep.equal({ address: '2001:db8::1', port: 53 });
  });

  it('are invalid in any other form', () => {
    for (const text of [
      '',
      'dns.example',
      'dns.example:53',
      '192.0.2.1:0',
      '192.0.2.1:70000',
      '192.0.2.1:x',
      '[192.0.2.1]:53',
      '[2001:db8::1',
    ]) {
      expect(parseServer(text), text).to.equal(undefined);
    }
  });

  it('are the first three of resolv.conf', () => {
    const text =
      '# made by hand\nsearch example\nnameserver 192.0.2.1\n nameserver\t2001:db8::1\nnameserver nonsense\nnameserver 192.0.2.3\nnameserver 192.0.2.4\noptions edns0\n';
    expect(parseResolvConf(text)).to.deep.equal(['192.0.2.1', '[2001:db8::1]', '192.0.2.3']);
  });
});
