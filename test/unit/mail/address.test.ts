import { expect } from 'chai';
import { parseAddress, toAsciiDomain, toWire } from '../../../src/mail/addresses/address.ts';

describe('an address', () => {
  it('has a mailbox without quotes and a domain in lower-case A-labels', () => {
    for (const [text, mailbox, domain] of [
      ['b@ours.test', 'b', 'ours.test'],
      ['B.c+tag@Ours.TEST', 'B.c+tag', 'ours.test'],
      ["!#$%&'*+-/=?^_`{|}~@ours.test", "!#$%&'*+-/=?^_`{|}~", 'ours.test'],
      ['"b c"@ours.test', 'b c', 'ours.test'],
      ['"b@c"@ours.test', 'b@c', 'ours.test'],
      ['"b\\"\\\\c"@ours.test', 'b"\\c', 'ours.test'],
      ['"b..c."@ours.test', 'b..c.', 'ours.test'],
      ['""@ours.test', '', 'ours.test'],
      ['jörg@München.test', 'jörg', 'xn--mnchen-3ya.test'],
      ['用户@例え.テスト', '用户', 'xn--r8jz45g.xn--zckzah'],
      ['b@localhost', 'b', 'localhost'],
      ['b@my_host.ours.test', 'b', 'my_host.ours.test'],
      ['b@[192.0.2.1]', 'b', '[192.0.2.1]'],
      ['b..c@ours.test', 'b..c', 'ours.test'],
      ['b.@ours.test', 'b.', 'ours.test'],
      ['.b@ours.test', '.b', 'ours.test'],
      ['b@[ipv6:2001:DB8::1]', 'b', '[IPv6:2001:db8::1]'],
    ] as const)
      expect(parseAddress(text), text).to.deep.equal({ text, mailbox, domain });
  });

  it('is invalid in any other form', () => {
    for (const text of [
      '',
      'b',
      '@',
      'b@',
      '@ours.test',
      'b@@ours.test',
      'b@c@ours.test',
      'b c@ours.test',
      'b<c@ours.test',
      '<b@ours.test>',
      '"b@ours.test',
      'b"@ours.test',
      '"b"c"@ours.test',
      '"b\\"@ours.test',
      '@relay.test:b@ours.test',
      '@relay.test,@two.test:b@ours.test',
      'b@ours..test',
      'b@.ours.test',
      'b@ours.test.',
      'b@-ours.test',
      'b@ours-.test',
      'b@ours test',
      'b@ours/test',
      'b@ours%2etest',
      'b@192.0.2.1',
      'b@[192.0.2.256]',
      'b@[192.0.2.1',
      'b@[IPv6:fe80::1%eth0]',
      'b@[tag:x]',
      'b@[]',
    ])
      expect(parseAddress(text), text).to.equal(undefined);
  });

  it('contains nothing that could break a line, a header or a log', () => {
    for (const bad of [
      '\r',
      '\n',
      '\0',
      '\t',
      '\x1b',
      '\x7f',
      '\x85',
      '\u2028',
      '\u2029',
      '\u202e',
      '\ufffd',
      '\ufeff',
      '\ud800',
    ]) {
      for (const text of [
        `b${bad}@ours.test`,
        `"b${bad}"@ours.test`,
        `"b\\${bad}"@ours.test`,
        `b@ours${bad}.test`,
        `b@ours.test${bad}`,
      ]) {
        expect(parseAddress(text), JSON.stringify(text)).to.equal(undefined);
      }
    }
  });

  it('has at most 1,000 octets, of which the domain has 253: local parts of SRS and VERP have more than 64', () => {
    const domain = `${'d'.repeat(63)}.${'d'.repeat(63)}.${'d'.repeat(63)}.${'d'.repeat(61)}`;
    for (const local of [
      'SRS0=3Ypr33=QM=crm.customer-domain.example=bounce+b.25211.6039846.eb7e7e8ba282f9d0',
      'bounces+1234567-abcd-somebody.with.a.long.name=customer-domain.example',
      'b'.repeat(1000 - '@ours.test'.length),
      'ö'.repeat(495),
    ])
      expect(parseAddress(`${local}@ours.test`)?.mailbox, local).to.equal(local);
    expect(parseAddress(`${'b'.repeat(991)}@ours.test`)).to.equal(undefined);
    expect(parseAddress(`${'ö'.repeat(496)}@ours.test`)).to.equal(undefined);
    expect(parseAddress(`b@${domain}`)).to.not.equal(undefined);
    expect(parseAddress(`b@${domain}d`)).to.equal(undefined);
    expect(parseAddress(`b@${'d'.repeat(64)}.test`)).to.equal(undefined);
  });

  it('is quoted only where the grammar requires it', () => {
    for (const [text, wire] of [
      ['B.c@Ours.test', 'B.c@ours.test'],
      ['"b.c"@ours.test', 'b.c@ours.test'],
      ['b..c@ours.test', '"b..c"@ours.test'],
      ['b.@ours.test', '"b."@ours.test'],
      ['"b\\"c"@ours.test', '"b\\"c"@ours.test'],
      ['b@münchen.test', 'b@xn--mnchen-3ya.test'],
    ] as const) {
      const address = parseAddress(text);
      expect(address && toWire(address), text).to.equal(wire);
      expect(parseAddress(wire)?.mailbox, wire).to.equal(address?.mailbox);
    }
  });

  it('takes linear time', () => {
    for (const text of [
      '"'.repeat(100_000),
      `${'a.'.repeat(50_000)}@ours.test`,
      `"${'\\"'.repeat(50_000)}@ours.test`,
      `b@${'a.'.repeat(50_000)}`,
    ]) {
      expect(parseAddress(text)).to.equal(undefined);
    }
  });
});

describe('a domain in ASCII', () => {
  it('is the form used for DNS queries', () => {
    for (const [text, ascii] of [
      ['Ours.TEST', 'ours.test'],
      ['ours.test.', 'ours.test'],
      ['München.test', 'xn--mnchen-3ya.test'],
      ['faß.test', 'xn--fa-hia.test'],
      ['XN--MNCHEN-3YA.test', 'xn--mnchen-3ya.test'],
      ['例え。テスト', 'xn--r8jz45g.xn--zckzah'],
      ['_dmarc.ours.test', '_dmarc.ours.test'],
    ] as const)
      expect(toAsciiDomain(text), text).to.equal(ascii);
  });

  it('is rejected if it could be read as something else', () => {
    for (const text of [
      '',
      '.',
      '..',
      'a..b',
      '.a',
      'a b',
      'a/b',
      'a?b',
      'a#b',
      'a:80',
      'a@b',
      'a%2eb',
      'a\tb',
      'a\nb',
      '[::1]',
      '192.0.2.1',
      '1.2',
      '１９２.0.2.1',
      '-a.test',
      'a-.test',
      `${'a'.repeat(64)}.test`,
      `${'a.'.repeat(130)}test`,
      '٠.test..',
      'a\u202eb.test',
    ])
      expect(toAsciiDomain(text), JSON.stringify(text)).to.equal(undefined);
  });
});
