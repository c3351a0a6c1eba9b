import { expect } from 'chai';
import { createBodyCheck } from '../../../src/api/requests/body-check.ts';
import { createChance } from '../../support/attacks/chance.ts';

/** Checks a text in chunks of these sizes, over and over. */
function check(text: string, maxValues: number, sizes: readonly number[] = [65_536]) {
  const bytes = Buffer.from(text);
  const checked = createBodyCheck(maxValues);
  for (let at = 0, n = 0; at < bytes.length; n++) {
    const size = sizes[n % sizes.length] ?? 1;
    const fault = checked.faultOf(bytes.subarray(at, at + size));
    if (fault) return fault.message;
    at += size;
  }
  return checked.faultOf(undefined)?.message ?? checked.count();
}

/** What the check counts, by the parsed value: each struct and list, and each comma between items. */
function countOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const inner = Object.values(value);
  return 1 + Math.max(0, inner.length - 1) + inner.reduce<number>((sum, one) => sum + countOf(one), 0);
}

describe('the check of an incoming body', () => {
  it('counts JSON values, however chunks are split', () => {
    const chance = createChance(31);
    const TEXTS = ['', '"', '\\', '\\"', '\\\\', '{[,', 'x'.repeat(70), `${'y'.repeat(64)}\\`, '"'.repeat(100), 'ä€🦊'];
    const pick = <T>(all: readonly T[]) => all[Math.floor(chance() * all.length)] as T;
    const make = (depth: number): unknown => {
      const kind = Math.floor(chance() * (depth > 4 ? 2 : 4));
      if (kind === 0) return pick(TEXTS) + pick(TEXTS);
      if (kind === 1) return pick([1, null, true, -1e10]);
      const items = Array.from({ length: Math.floor(chance() * 5) }, () => make(depth + 1));
      return kind === 2 ? items : Object.fromEntries(items.map((item, n) => [pick(TEXTS) + n, item]));
    };
    for (let round = 0; round < 3000; round++) {
      const value = { a: make(0), b: make(0) };
      const text = JSON.stringify(value, undefined, pick([0, 1]));
      const sizes = Array.from({ length: 5 }, () => 1 + Math.floor(chance() * 90));
      expect(check(text, 1e9, sizes), text).to.equal(countOf(value));
    }
  });

  it('rejects JSON with too many values at the first excess value', () => {
    expect(check('[1,2,3]', 3)).to.equal(3);
    expect(check('[1,2,3,4]', 3)).to.contain('The JSON holds more than 3 values');
    expect(check(`[${'1,'.repeat(1e6)}`, 1000)).to.contain('more than 1000 values');
    expect(check(`{"a":"${','.repeat(1000)}"}`, 3), 'in a text').to.equal(1);
  });

  it('rejects a form with too many fields, including empty ones', () => {
    expect(check('a=1&b=2', 0)).to.equal(1);
    for (const pair of ['&', 'a&', 'a=&', '=&']) expect(check(pair.repeat(20_001), 0)).to.contain('20000 fields');
  });
});
