import { expect } from 'chai';
import { readToken, sentId, type TokenKind, toToken } from '../../../src/mail/addresses/return-address.ts';

const SECRET = 'a secret of the tests';
const ID = sentId('a delivery');
const KINDS: readonly TokenKind[] = ['open', 'click', 'unsub', 'bounce'];

describe('a token', () => {
  for (const kind of KINDS) {
    it(`of the kind ${kind} names its account and message`, () => {
      expect(readToken(SECRET, kind, toToken(SECRET, kind, 1234, ID, 'about'), 'about')).to.deep.equal({
        account: 1234,
        message: ID,
      });
    });

    it(`of the kind ${kind} is not valid as another kind`, () => {
      const token = toToken(SECRET, kind, 1234, ID);
      for (const other of KINDS) if (other !== kind) expect(readToken(SECRET, other, token), other).to.equal(undefined);
    });

    it(`of the kind ${kind} is invalid with one character changed`, () => {
      const token = toToken(SECRET, kind, 1234, ID);
      for (let at = 0; at < token.length; at++) {
        const other = token.charAt(at) === 'a' ? 'b' : 'a';
        expect(readToken(SECRET, kind, token.slice(0, at) + other + token.slice(at + 1)), String(at)).to.equal(
          undefined,
        );
      }
    });
  }

  it('is invalid with another secret, or for another object', () => {
    const token = toToken(SECRET, 'click', 1, ID, 'https://example.com/');
    expect(readToken('another', 'click', token, 'https://example.com/')).to.equal(undefined);
    expect(readToken(SECRET, 'click', token, 'https://example.org/')).to.equal(undefined);
    expect(readToken(SECRET, 'click', token)).to.equal(undefined);
  });

  it('is invalid when truncated, extended or malformed', () => {
    const token = toToken(SECRET, 'open', 1, ID);
    const wrong = [
      token.slice(0, -1),
      `${token}A`,
      `${token}\n`,
      ` ${token}`,
      token.slice(token.indexOf('-') + 1),
      '',
      '--',
      '-'.repeat(10_000),
      `1-${ID}-`,
      `1-${ID}-${'é'.repeat(22)}`,
      `1-${ID}-${'x'.repeat(100_000)}`,
    ];
    for (const text of wrong) expect(readToken(SECRET, 'open', text), text.slice(0, 60)).to.equal(undefined);
  });

  it('of an address fits into a local part with its prefix, for any account, without capitals', () => {
    const largest = Number.parseInt('zzzzzzzz', 36);
    for (const kind of ['unsub', 'bounce'] as const) {
      const token = toToken(SECRET, kind, largest, ID);
      expect(`unsub-${token}`).to.match(/^[a-z0-9-]{1,64}$/);
      expect(readToken(SECRET, kind, token)).to.deep.equal({ account: largest, message: ID });
    }
  });

  it('of an address is read in any case, as servers on the way may change it', () => {
    for (const kind of ['unsub', 'bounce'] as const)
      expect(readToken(SECRET, kind, toToken(SECRET, kind, 35, ID).toUpperCase())).to.deep.equal({
        account: 35,
        message: ID,
      });
    expect(readToken(SECRET, 'open', toToken(SECRET, 'open', 35, ID).toUpperCase())).to.equal(undefined);
  });

  it('of an address is signed with 80 bits, all of which count', () => {
    const signatures = Array.from({ length: 200 }, (_, n) => toToken(SECRET, 'bounce', n, ID).split('-')[2] ?? '');
    for (const signature of signatures) expect(signature).to.match(/^[0-9a-v]{16}$/);
    for (let index = 0; index < 16; index++)
      expect(new Set(signatures.map((signature) => signature.charAt(index))).size, String(index)).to.be.greaterThan(16);
  });

  it('names a message by 32 hex digits, the same again for each delivery', () => {
    expect(ID).to.match(/^[0-9a-f]{32}$/);
    expect(sentId('a delivery')).to.equal(ID);
    expect(sentId('another')).to.not.equal(ID);
  });
});
