import { expect } from 'chai';
import { capture, isExact, literals, matches, patternNames } from '../../../src/inbound/patterns.ts';

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
    ['reply-{ticket}', 'reply-4711', true],
    ['reply-{ticket}', 'reply-', false],
    ['{list}-{user}', 'a-b', true],
    ['{list}-{user}', 'a-', false],
    ['{Not a name}', 'x', false],
    ['{Not a name}', '{Not a name}', true],
  ];
  for (const [pattern, mailbox, hit] of cases) {
    it(`${JSON.stringify(pattern)} ${hit ? 'matches' : 'does not match'} ${JSON.stringify(mailbox)}`, () => {
      expect(matches(pattern, mailbox)).to.equal(hit);
    });
  }

  it('answers at once for a slow pattern', () => {
    // With backtracking over every star this would take longer than the universe has.
    expect(matches('*a'.repeat(120) + 'b', 'a'.repeat(2000))).to.equal(false);
  });

  it('recognises exact patterns and counts literal characters', () => {
    expect([isExact('a.b'), isExact('a*'), isExact('a?')]).to.deep.equal([true, false, false]);
    expect([literals('a*b?c'), literals('*'), literals('😀*')]).to.deep.equal([3, 0, 1]);
  });

  it('returns the values of its names as written', () => {
    expect(capture('reply-{ticket}', 'REPLY-Ab7')).to.deep.equal({ ticket: 'Ab7' });
    expect(capture('{list}-{user}', 'a-b-c')).to.deep.equal({ list: 'a', user: 'b-c' });
    expect(capture('*+{tag}', 'x+y+z')).to.deep.equal({ tag: 'y+z' });
    expect(capture('t{id}?.{end_2}', 't12x.😀')).to.deep.equal({ id: '12', end_2: '😀' });
    expect([isExact('{a}'), isExact('{A}'), literals('a{b}c')]).to.deep.equal([false, true, 2]);
    expect(patternNames('{a}-{b_1}-{}')).to.deep.equal(['a', 'b_1']);
  });

  it('returns the same as a non-greedy regular expression', () => {
    const pieces = ['a', 'b', '?', '*', '{x}', '{y}'];
    const grow = (words: readonly string[][]) => words.flatMap((word) => pieces.map((piece) => [...word, piece]));
    const mailboxes = Array.from({ length: 126 }, (_, i) =>
      (i + 2).toString(2).slice(1).replaceAll('0', 'a').replaceAll('1', 'b'),
    );
    const isRun = (piece = '') => /^[*{]/.test(piece);
    let found = 0;
    const wrong: string[] = [];
    for (const word of [1, 2, 3, 4, 5].reduce<string[][]>((all) => [...all, ...grow(all.slice(-1296))], [[]])) {
      const pattern = word.join('');
      if (
        word.some((piece, i) => isRun(piece) && isRun(word[i + 1])) ||
        new Set(patternNames(pattern)).size < patternNames(pattern).length
      )
        continue;
      const source = word.map((piece) =>
        piece
          .replace('?', '.')
          .replace('*', '.*?')
          .replace(/\{(.)\}/, '(?<$1>.+?)'),
      );
      const expression = new RegExp(`^${source.join('')}$`);
      for (const mailbox of mailboxes) {
        const hit = expression.exec(mailbox);
        if (hit) found++;
        const right = hit ? JSON.stringify({ ...hit.groups }) : 'no match';
        const given = matches(pattern, mailbox) ? JSON.stringify(capture(pattern, mailbox)) : 'no match';
        if (given !== right) wrong.push(`${pattern} ${mailbox}: ${given}, not ${right}`);
      }
    }
    expect(wrong).to.deep.equal([]);
    expect(found).to.be.above(1000);
  });

  it('finds its names in time proportional to pattern and mailbox', () => {
    expect(capture(`${'*a'.repeat(100)}{x}`, 'a'.repeat(2000)).x).to.have.length(1900);
  });
});
