import { expect } from 'chai';
import { parseAddressList } from '../../../src/mail/addresses/address-list.ts';
import { authorOf, soleAuthorOf } from '../../../src/mail/addresses/author.ts';
import { parseHeaders } from '../../../src/mail/mime/headers.ts';
import { randomFrom } from '../../support/random-text.ts';

const mailboxes = (value: string) =>
  parseAddressList(value).mailboxes.map(({ address, name }) => (name === null ? address : `${name} <${address}>`));

/** The address fields of the examples in RFC 5322 appendix A, folds taken out, and whom they name. */
const APPENDIX_A: readonly (readonly [value: string, found: readonly string[]])[] = [
  // A.1.1
  ['John Doe <jdoe@machine.example>', ['John Doe <jdoe@machine.example>']],
  ['Mary Smith <mary@example.net>', ['Mary Smith <mary@example.net>']],
  ['Michael Jones <mjones@machine.example>', ['Michael Jones <mjones@machine.example>']],
  // A.1.2
  ['"Joe Q. Public" <john.q.public@example.com>', ['Joe Q. Public <john.q.public@example.com>']],
  [
    'Mary Smith <mary@x.test>, jdoe@example.org, Who? <one@y.test>',
    ['Mary Smith <mary@x.test>', 'jdoe@example.org', 'Who? <one@y.test>'],
  ],
  [
    '<boss@nil.test>, "Giant; \\"Big\\" Box" <sysservices@example.net>',
    ['boss@nil.test', 'Giant; "Big" Box <sysservices@example.net>'],
  ],
  // A.1.3
  ['Pete <pete@silly.example>', ['Pete <pete@silly.example>']],
  [
    'A Group:Ed Jones <c@a.test>,joe@where.test,John <jdoe@one.test>;',
    ['Ed Jones <c@a.test>', 'joe@where.test', 'John <jdoe@one.test>'],
  ],
  ['Undisclosed recipients:;', []],
  // A.2, A.3, A.4
  ['"Mary Smith: Personal Account" <smith@home.example>', ['Mary Smith: Personal Account <smith@home.example>']],
  ['Jane Brown <j-brown@other.example>', ['Jane Brown <j-brown@other.example>']],
  // A.5
  ['Pete(A nice \\) chap) <pete(his account)@silly.test(his host)>', ['Pete <pete@silly.test>']],
  [
    "A Group(Some people) :Chris Jones <c@(Chris's host.)public.example>, joe@example.org, John <jdoe@one.test> (my dear friend); (the end of the group)",
    ['Chris Jones <c@public.example>', 'joe@example.org', 'John <jdoe@one.test>'],
  ],
  ['(Empty list)(start)Hidden recipients  :(nobody(that I know))  ;', []],
  // A.6.1
  ['Joe Q. Public <john.q.public@example.com>', ['Joe Q. Public <john.q.public@example.com>']],
  [
    'Mary Smith <@node.test:mary@example.net>, , jdoe@test  . example',
    ['Mary Smith <mary@example.net>', 'jdoe@test.example'],
  ],
  // A.6.3
  ['John Doe <jdoe@machine(comment).  example>', ['John Doe <jdoe@machine.example>']],
  ['Mary Smith    <mary@example.net>', ['Mary Smith <mary@example.net>']],
];

describe('the address field parser', () => {
  for (const [value, found] of APPENDIX_A) {
    it(`parses the example of RFC 5322 appendix A: ${value}`, () => {
      expect(mailboxes(value)).to.deep.equal(found);
      expect(parseAddressList(value)).to.deep.include({ sound: true, unreadable: [], otherDomains: [] });
    });
  }

  for (const [value, found] of [
    ['Group: a@b.test (in a group), "c d"@e.test;, f@g.test', ['in a group <a@b.test>', '"c d"@e.test', 'f@g.test']],
    ['jane@example.com (Jane)', ['Jane <jane@example.com>']],
    ['"jdoe"@x.test', ['jdoe@x.test']],
    ['"a".b@c.test', ['a.b@c.test']],
    ['<"a>b"@c.test>', ['"a>b"@c.test']],
    ['"a\\"b\\\\c"@d.test', ['"a\\"b\\\\c"@d.test']],
    ['x@[192.0.2.1], y@[IPv6:2001:db8::1]', ['x@[192.0.2.1]', 'y@[IPv6:2001:db8::1]']],
    ['joe @ where . test', ['joe@where.test']],
    ['<@a.test,@[192.0.2.1]:b@c.test>', ['b@c.test']],
    ['Jürgen <jürgen@bücher.test>', ['Jürgen <jürgen@bücher.test>']],
    ['用户@例え.テスト', ['用户@例え.テスト']],
    ['=?utf-8?q?J=C3=BCrgen?= =?utf-8?b?TcO8bGxlcg==?= <j@x.test>', ['JürgenMüller <j@x.test>']],
    ['"=?utf-8?q?J=C3=BCrgen?=" <j@x.test>', ['Jürgen <j@x.test>']],
    ['j@x.test (=?utf-8?q?J=C3=BCrgen?=)', ['Jürgen <j@x.test>']],
    // What is not in the grammar, is written every day, and means one thing.
    ['foo..bar.@x.test', ['foo..bar.@x.test']],
    ['[List] Ann <a@x.test>', ['[List] Ann <a@x.test>']],
    ['a@x.test <a@x.test>', ['a@x.test <a@x.test>']],
    ['=?utf-8?q?Doe,_Jane_(x)?= <j@x.test>', ['Doe, Jane (x) <j@x.test>']],
  ] as const) {
    it(`parses ${value}`, () => {
      expect(mailboxes(value)).to.deep.equal(found);
      expect(parseAddressList(value).sound).to.equal(true);
    });
  }

  it('finds no address in what an encoded word decodes to (RFC 2047 sections 5 and 6.2)', () => {
    const hidden = (text: string) => `=?utf-8?b?${Buffer.from(text).toString('base64')}?=`;
    for (const secret of [
      '<ceo@victim.example>',
      'ceo@victim.example',
      'ceo@victim.example,',
      'Group: ceo@victim.example;',
      '"x" <ceo@victim.example>, (',
    ]) {
      expect(parseAddressList(hidden(secret)).mailboxes).to.deep.equal([]);
      expect(mailboxes(`${hidden(secret)} <evil@attacker.test>`)).to.deep.equal([`${secret} <evil@attacker.test>`]);
      expect(parseAddressList(`${hidden(secret)}:<evil@attacker.test>`)).to.deep.include({
        sound: false,
        mailboxes: [{ address: 'evil@attacker.test', name: null, domain: 'attacker.test' }],
      });
      expect(
        parseAddressList(`evil@attacker.test (${hidden(secret)})`).mailboxes.map(({ address }) => address),
      ).to.deep.equal(['evil@attacker.test']);
      expect(
        authorOf([{ name: 'From', value: `=?utf-8?q?${secret.replaceAll(' ', '_')}?= <evil@attacker.test>` }]).certain,
        secret,
      ).to.equal(false);
    }
    expect(parseAddressList('=?utf-8?q?ceo?=@attacker.test').mailboxes).to.deep.equal([
      { address: '=?utf-8?q?ceo?=@attacker.test', name: null, domain: 'attacker.test' },
    ]);
  });

  for (const [value, found, domains, unreadable] of [
    ['ceo@victim.example <evil@attacker.test>', ['ceo@victim.example <evil@attacker.test>'], ['victim.example'], []],
    ['Acme, Inc. <a@b.test>', ['Inc. <a@b.test>'], [], ['Acme']],
    ['<a@b.test', ['a@b.test'], ['b.test'], []],
    ['Ann a@b.test', ['a@b.test'], ['b.test'], []],
    ['"Ann <a@b.test>', ['"Ann <a@b.test>'], [], []],
    ['Ann (x <a@b.test>', ['Ann (x <a@b.test>'], [], []],
    ['<a@b.test> <c@d.test>', ['a@b.test'], ['b.test', 'd.test'], []],
    ['a@b.test@c.test', ['a@b.test'], ['b.test', 'c.test'], []],
    ['a@b.test; c@d.test', ['a@b.test', 'c@d.test'], [], []],
    ['G: a@b.test', ['a@b.test'], [], []],
    ['G: H: a@b.test;;', ['a@b.test'], [], ['H']],
    ['G:; a@b.test', ['a@b.test'], [], []],
    ['<>', [], [], ['<>']],
    ['root', [], [], ['root']],
    ['a@', [], [], ['a@']],
    ['@b.test', [], [], ['@b.test']],
    ['a@b..test', [], [], ['a@b..test']],
    ['a@1.2.3.4', ['a@1.2.3.4'], [], []],
    ['a@b.test\u0000', ['a@b.test'], ['b.test'], []],
  ] as const) {
    it(`reports that it guessed: ${JSON.stringify(value)}`, () => {
      expect(mailboxes(value)).to.deep.equal(found);
      expect(parseAddressList(value)).to.deep.include({ sound: false, otherDomains: domains, unreadable });
    });
  }

  it('takes linear time, for any repetition', function () {
    this.timeout(20_000);
    const pieces = [
      '(',
      '"',
      '<',
      'a@',
      ',',
      '=?a?q?',
      '\\',
      '[',
      ':',
      ';',
      '@',
      '.',
      'a@b,',
      '"\\"',
      '=?a?q?,',
      '<a@b>',
      'x@y ',
      '(a)',
      'é',
      'a.',
      '(\\',
    ];
    for (const piece of pieces) parseAddressList(piece.repeat((64 * 1024) / piece.length));
  });

  it('never returns an address whose domain is not in the text, nor any new letter', () => {
    const random = randomFrom(7);
    const pieces = [
      'a',
      'b.test',
      '@',
      '<',
      '>',
      '"',
      '(',
      ')',
      ',',
      ';',
      ':',
      '.',
      ' ',
      '\\',
      '[',
      ']',
      '=?utf-8?q?x=40y?=',
      '=?utf-8?b?PGFAYj4=?=',
      'é',
      '\t',
    ];
    for (let i = 0; i < 20_000; i++) {
      const value = Array.from(
        { length: 1 + Math.floor(random() * 14) },
        () => pieces[Math.floor(random() * pieces.length)],
      ).join('');
      const list = parseAddressList(value);
      for (const { address, domain } of list.mailboxes) {
        expect(address, value).to.match(/^[^@]+@[^@]+$|^".*"@[^@]+$/);
        if (!address.endsWith(']'))
          expect(value.toLowerCase().replace(/[\s"\\()]/g, ''), value).to.include(
            address
              .slice(address.lastIndexOf('@') + 1)
              .toLowerCase()
              .split('.')[0],
          );
        if (list.sound) expect(domain, value).to.be.a('string');
      }
    }
  });
});

describe('the author of a message', () => {
  const author = (...lines: string[]) =>
    authorOf(parseHeaders(Buffer.from(lines.map((line) => `${line}\r\n`).join(''))), 'bounce@sender.test');

  it('is certain when one From field names mailboxes of one domain', () => {
    expect(author('From: Ann <ann@Example.NET>')).to.deep.equal({
      mailbox: { address: 'ann@Example.NET', name: 'Ann' },
      domains: ['example.net'],
      fields: 1,
      certain: true,
    });
    expect(author('From: ann@example.net, Bob <bob@example.net>')).to.deep.include({
      certain: true,
      domains: ['example.net'],
    });
    expect(author('From: Authors: ann@example.net, bob@example.net;')).to.deep.include({
      certain: true,
      mailbox: { address: 'ann@example.net', name: null },
    });
    expect(author('From : ann@example.net')).to.deep.include({ certain: true, fields: 1 });
    expect(author('From: ann@bücher.example')).to.deep.include({ certain: true, domains: ['xn--bcher-kva.example'] });
  });

  it('is the first named author, and uncertain, if there may be others', () => {
    for (const lines of [
      ['From: ann@example.net, bob@other.test'],
      ['From: ann@example.net', 'From: bob@other.test'],
      ['From: ann@example.net', 'From: ann@example.net'],
      ['From: ann@example.net', 'From:'],
      ['From: "bob@other.test" ann@example.net'],
      ['From: bob@other.test <ann@example.net>'],
    ])
      expect(author(...lines), lines.join()).to.deep.include({
        certain: false,
        mailbox: { address: 'ann@example.net', name: lines[0]?.startsWith('From: bob') ? 'bob@other.test' : null },
      });
  });

  it('is the envelope sender, and uncertain, if From names no author', () => {
    for (const lines of [
      [],
      ['From:'],
      ['From: undisclosed:;'],
      ['From: =?utf-8?b?PGNlb0B2aWN0aW0uZXhhbXBsZT4=?='],
      ['Sender: ann@example.net'],
    ]) {
      expect(author(...lines), lines.join()).to.deep.include({
        certain: false,
        mailbox: { address: 'bounce@sender.test', name: null },
        domains: ['sender.test'],
      });
    }
  });

  it('stands for an account only as the only author', () => {
    const sole = (...lines: string[]) => soleAuthorOf(Buffer.from(lines.map((line) => `${line}\r\n`).join('')));
    expect(sole('From: Ann <ann@example.net>')).to.deep.include({ address: 'ann@example.net', name: 'Ann' });
    for (const lines of [
      [],
      ['From: a@b.test, c@b.test'],
      ['From: a@b.test', 'From: a@b.test'],
      ['From: a@b.test <c@d.test>'],
      ['From: =?utf-8?q?x?=:<a@b.test>'],
    ])
      expect(sole(...lines), lines.join()).to.have.property('unclear');
  });
});
