import { expect } from 'chai';
import { formPairs } from '../../../src/base/form-pairs.ts';
import { createChance } from '../../support/attacks/chance.ts';

/** Pieces that a form is made of, and what is nearly one. */
const PIECES = ['a', 'key', '=', '=', '&', '&', '&&', '+', ' ', '%', '%4', '%41', '%zz', '%e4', '%C3%A4', '%ff', '%00']
  .concat(['%EF%BB%BF', '\ufeff', '%ED%A0%80', '\ud800', 'ä', '🦊', '[', ']', '[0]', '?', '#', ';', '\r\n', '%F0%9F'])
  .concat(['%u0041', '__proto__', '"', '%26', '%3D', '%2B', '%25']);

/** URLSearchParams of Node loses letters beyond ASCII behind a malformed escape, which the standard does not. */
const inAscii = (text: string) => text.toWellFormed().replace(/[\u0080-\uffff]+/g, encodeURIComponent);

describe('the pairs of a form', () => {
  it('match those of URLSearchParams, for 20,000 random texts', () => {
    const chance = createChance(24);
    for (let round = 0; round < 20_000; round++) {
      const length = Math.floor(chance() * 14);
      // Behind `&`, because URLSearchParams drops a leading question mark.
      const text = `&${Array.from({ length }, () => PIECES[Math.floor(chance() * PIECES.length)]).join('')}`;
      expect([...formPairs(text)], JSON.stringify(text)).to.deep.equal([...new URLSearchParams(inAscii(text))]);
    }
  });

  for (const [name, text, count] of [
    ['without =', 'a&'.repeat(500_000), 500_000],
    ['that are empty', '&'.repeat(1_000_000), 0],
    ['with a malformed escape in the last position', `a=${'%41'.repeat(300_000)}%`, 1],
    ['with nothing but =', '=&'.repeat(500_000), 500_000],
  ] as const)
    it(`take linear time: a megabyte of pairs ${name}`, () => {
      // URLSearchParams takes 3 to 12 seconds for the first of them.
      expect([...formPairs(text)].length).to.equal(count);
    });
});
