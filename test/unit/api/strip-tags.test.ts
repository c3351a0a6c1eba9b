import { expect } from 'chai';
import { stripTags } from '../../../src/api/operations/fields.ts';

describe('strip_tags', () => {
  for (const [text, stripped] of [
    ['example.com', 'example.com'],
    ['<b>example</b>.com', 'example.com'],
    ['<a href="x>y">example.com</a>', 'example.com'],
    ["<a title='>'>a</a>", 'a'],
    ['a<!-- <b> > -->b', 'ab'],
    ['a<br/>b', 'ab'],
    ['1 < 2', '1 < 2'],
    ['a<', 'a'],
    ['a<b', 'a'],
    ['<<b>>x', '>x'],
    ['a>b', 'a>b'],
    ['', ''],
    ['a<!-- b', 'a'],
  ] as const) {
    it(`turns ${JSON.stringify(text)} into ${JSON.stringify(stripped)}`, () =>
      expect(stripTags(text)).to.equal(stripped));
  }

  it('handles five megabytes of worst-case input', () => {
    for (const worst of ['<', '< ', '<!--', '<"', "<a '", '<a>', '\u0000<']) {
      const text = worst.repeat(5_000_000 / worst.length);
      expect(stripTags(text).length).to.be.at.most(text.length);
    }
  });
});
