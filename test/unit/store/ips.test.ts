import { expect } from 'chai';
import { fallbackDomain, toIpId } from '../../../src/store/rows/ips.ts';

describe('the id of a sending address', () => {
  it('is the same for all notations', () => {
    for (const spelling of [
      '2001:db8::1',
      '2001:DB8::1',
      '2001:0db8:0000:0000:0000:0000:0000:0001',
      '2001:db8:0:0::1',
      ' 2001:db8::1 ',
    ])
      expect(toIpId(spelling), spelling).to.equal('2001:db8::1');
    for (const spelling of ['192.0.2.1', '::ffff:192.0.2.1', '::FFFF:C000:0201', '0:0:0:0:0:ffff:c000:201'])
      expect(toIpId(spelling), spelling).to.equal('192.0.2.1');
    for (const spelling of ['::1.2.3.4', '::102:304', '0:0:0:0:0:0:1.2.3.4'])
      expect(toIpId(spelling), spelling).to.equal('::102:304');
  });

  it('is empty for an invalid address, or one that exists on every host', () => {
    for (const text of [
      '',
      ' ',
      'x',
      '1',
      '1.2.3',
      '1.2.3.4.5',
      '256.0.0.1',
      '010.0.0.1',
      '0x7f.0.0.1',
      '1.2.3.4/8',
      '[::1]',
      'fe80::1%eth0',
      '::1%',
      ':::',
      '1::2::3',
      '12345::',
      'localhost',
      '1.2.3.4\0',
      '１.2.3.4',
      '$gt',
      '__proto__',
    ]) {
      expect(toIpId(text), JSON.stringify(text)).to.equal(undefined);
    }
  });
});

describe('the default name of an address', () => {
  it('is a host name under ours', () => {
    expect(fallbackDomain('192.0.2.1', 'mx.example.com')).to.equal('192-0-2-1.mx.example.com');
    expect(fallbackDomain('2001:db8::1', 'mx.example.com')).to.equal(
      '2001-0db8-0000-0000-0000-0000-0000-0001.mx.example.com',
    );
    for (const id of ['::', '::1', '1::', '::102:304'])
      expect(fallbackDomain(id, 'a.example')).to.match(/^([0-9a-f]{4}-){7}[0-9a-f]{4}\.a\.example$/);
  });
});
