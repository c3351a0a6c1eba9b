import { expect } from 'chai';
import { slicesOf } from '../../../src/base/characters.ts';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { jsonBytes } from '../../../src/base/json.ts';

describe('JSON written in steps', () => {
  for (const [name, value] of [
    ['of small values', { a: [1, 'x', null, true, { b: undefined, c: [undefined] }], '"': '\n' }],
    ['of nothing', {}],
    ['of a text of megabytes', { html: 'ä🦊"\\\n\u2028'.repeat(300_000), text: null }],
    ['of characters on every boundary', { a: `${'a'.repeat(65_535)}🦊`.repeat(4), b: `${'a'.repeat(65_534)}🦊🦊` }],
    ['of many texts', { a: Array.from({ length: 1000 }, (_, n) => 'x'.repeat(n)) }],
  ] as const)
    it(`has the bytes of JSON.stringify, ${name}`, () => {
      expect(runToEnd(jsonBytes(value)).equals(Buffer.from(JSON.stringify(value)))).to.equal(true);
    });

  it('takes many steps for a text of megabytes', () => {
    expect([...jsonBytes({ html: 'x'.repeat(2_000_000) })].length).to.be.above(20);
  });

  it('splits no character', () => {
    expect([...slicesOf('ab🦊cd🦊', 3)]).to.deep.equal(['ab🦊', 'cd🦊']);
  });
});
