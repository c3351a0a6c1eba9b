import { expect } from 'chai';
import { createGlobs, literals, matches } from '../../../src/inbound/patterns.ts';

import { growth } from '../../support/growth.ts';

const globsOf = (patterns: readonly string[]) =>
  createGlobs(patterns.map((pattern, i) => ({ pattern, value: `${i} ${pattern}` })));

/** What the table must answer, found by trying all: the most literal characters, then the first. */
function plainly(patterns: readonly string[], mailbox: string): string | undefined {
  const found = patterns
    .map((pattern, i) => ({ pattern, i }))
    .filter(({ pattern }) => matches(pattern, mailbox))
    .sort((a, b) => literals(b.pattern) - literals(a.pattern));
  return found[0] && `${found[0].i} ${found[0].pattern}`;
}

describe('the pattern table', () => {
  it('finds the same as trying every pattern in turn, for every short mailbox', () => {
    const letters = ['a', 'b', '-', '*', '?'];
    const words = (alphabet: readonly string[], length: number): string[] =>
      length === 0
        ? ['']
        : words(alphabet, length - 1).flatMap((word) => [
            ...new Set([word, ...alphabet.map((letter) => word + letter)]),
          ]);
    const patterns = [...new Set(words(letters, 4))]
      .filter((word) => /[*?]/.test(word))
      .toSorted((a, b) => ((a.length * 7 + a.charCodeAt(0)) % 11) - ((b.length * 7 + b.charCodeAt(0)) % 11));
    const globs = Array.from({ length: 40 }, (_, i) => patterns.filter((_, n) => n % 40 === i));
    let found = 0;
    for (const some of globs) {
      const table = globsOf(some);
      for (const mailbox of new Set(words(['a', 'b', '-'], 5))) {
        const wanted = plainly(some, mailbox);
        if (wanted !== undefined) found++;
        expect(table.find(mailbox), `${mailbox} among ${some.join(' ')}`).to.equal(wanted);
      }
    }
    expect(found).to.be.above(1000);
  });

  it('compares letters in any case and in composed form, at both ends', () => {
    const globs = globsOf(['GRÜ-*', '*-É', 'x?y']);
    expect(globs.find('gru\u0308-vip')).to.equal('0 GRÜ-*');
    expect(globs.find('any-e\u0301')).to.equal('1 *-É');
    expect(globs.find('X\u{1F600}Y')).to.equal('2 x?y');
    expect(globs.find('xy')).to.equal(undefined);
  });

  it('finds all matches up to the first final one, the highest priority first', () => {
    const globs = createGlobs([
      { pattern: '*', value: 'rest' },
      { pattern: 'a-*', value: 'a' },
      { pattern: '*-z', priority: 5, value: 'z' },
      { pattern: 'a-b*', value: 'ab' },
    ]);
    expect(globs.all('a-b-z', () => false)).to.deep.equal(['z', 'ab', 'a', 'rest']);
    expect(globs.all('a-b-z', (value) => value === 'a')).to.deep.equal(['z', 'ab', 'a']);
    expect(globs.all('q', () => false)).to.deep.equal(['rest']);
    expect(globs.find('a-b-z')).to.equal('z');
  });

  it('takes no longer among many patterns than among few', () => {
    const looks = (count: number) => {
      const table = globsOf([
        ...Array.from({ length: count }, (_, i) => (i % 2 === 0 ? `team-${i}-*` : `*-team-${i}`)),
        '*',
      ]);
      return () => {
        for (let i = 0; i < 3000; i++) {
          table.find(`somebody-${i}`);
          table.all(`somebody-${i}`, (value) => value.endsWith(' *'));
        }
      };
    };
    const few = looks(500);
    const many = looks(8000); // sixteen times as many
    expect(growth((size) => (size > 1 ? many() : few()), 1, 5)).to.be.below(5);
  });
});
