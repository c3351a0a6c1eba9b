import { expect } from 'chai';
import { isExact, literals, matches } from '../../../src/inbound/routing.ts';

describe('a route pattern', () => {
  const cases: [pattern: string, mailbox: string, hit: boolean][] = [
    ['*', '', true],
    ['*', 'anything', true],
    ['', '', true],
    ['', 'a', false],
    ['support', 'support', true],
    ['support', 'Support', true],
    ['SUPPORT', 'support', true],
    ['support', 'support2', false],
    ['mailbox-*', 'mailbox-', true],
    ['mailbox-*', 'mailbox-12', true],
    ['mailbox-*', 'xmailbox-12', false],
    ['*-in', 'a-in', true],
    ['*-in', 'a-in-b', false],
    ['a*b*c', 'aXbYc', true],
    ['a*b*c', 'abc', true],
    ['a*b*c', 'acb', false],
    ['?', 'a', true],
    ['?', '', false],
    ['?', 'ab', false],
    ['a?c', 'abc', true],
    ['a?c', 'ac', false],
    ['?', '😀', true],
    ['a.b+c', 'a.b+c', true],
    ['a.b', 'axb', false],
    ['[a-z]', 'b', false],
    ['.*', 'abc', false],
    ['.*', '.abc', true],
    ['MÜLLER', 'müller', true],
    ['müller', 'mu\u0308ller', true],
    ['**', 'ab', true],
    ['*?', '', false],
  ];
  for (const [pattern, mailbox, hit] of cases) {
    it(`${JSON.stringify(pattern)} ${hit ? 'matches' : 'does not match'} ${JSON.stringify(mailbox)}`, () => {
      expect(matches(pattern, mailbox)).to.equal(hit);
    });
  }

  it('answers at once for a pattern made to take long', () => {
    // With backtracking over every star this would take longer than the universe has.
    expect(matches('*a'.repeat(120) + 'b', 'a'.repeat(2000))).to.equal(false);
  });

  it('knows exact patterns and counts literal characters', () => {
    expect([isExact('a.b'), isExact('a*'), isExact('a?')]).to.deep.equal([true, false, false]);
    expect([literals('a*b?c'), literals('*'), literals('😀*')]).to.deep.equal([3, 0, 1]);
  });
});
