import { expect } from 'chai';
import { createAddressList, networkOf, normalizeAddress } from '../../../src/base/networks.ts';

describe('the address of a client', () => {
  it('has one canonical form', () => {
    expect(normalizeAddress('::ffff:192.0.2.1')).to.equal('192.0.2.1');
    expect(normalizeAddress('::FFFF:C000:0201')).to.equal('192.0.2.1');
    expect(normalizeAddress('fe80::1%eth0')).to.equal('fe80::1');
    expect(normalizeAddress('2001:DB8:0:0:0:0:0:1')).to.equal('2001:db8::1');
    expect(normalizeAddress('192.0.2.1')).to.equal('192.0.2.1');
    for (const text of ['', 'client.test', '192.0.2', '192.0.2.256', '1::2::3'])
      expect(normalizeAddress(text)).to.equal(undefined);
  });

  it('counts by its /64 if it is IPv6', () => {
    for (const address of ['2001:db8::1', '2001:db8::ffff:1:2:3', '2001:db8:0:0:1::'])
      expect(networkOf(address)).to.equal('2001:db8:0:0::/64');
    expect(networkOf('2001:db8:0:1::1')).to.equal('2001:db8:0:1::/64');
    expect(networkOf('::1')).to.equal('0:0:0:0::/64');
    expect(networkOf('1:2:3:4:5:6:7:8')).to.equal('1:2:3:4::/64');
    expect(networkOf('192.0.2.1')).to.equal('192.0.2.1');
  });

  it('is matched against lists of addresses and networks of both families', () => {
    const listed = createAddressList(['10.0.0.0/8', '192.0.2.1', '2001:db8::/32', '::1']);
    for (const address of ['10.255.0.1', '192.0.2.1', '2001:db8:1::1', '::1'])
      expect(listed(address), address).to.equal(true);
    for (const address of ['11.0.0.1', '192.0.2.2', '2001:db9::1', '::2'])
      expect(listed(address), address).to.equal(false);
    expect(createAddressList([])('127.0.0.1')).to.equal(false);
  });
});
