import { expect } from 'chai';
import { createEncoding } from '../../../src/webhooks/render/form.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const PIECES = [
  'a',
  'words of it',
  ' ',
  '+',
  '%',
  '&',
  '"',
  '\\',
  '\r\n',
  '\r',
  '\n',
  '\r\r\n',
  '\t',
  '\b',
  '\f',
  '\0',
  '\x01',
  '\x1f',
  '\x7f',
  'é',
  'ß',
  '\u2028',
  '語',
  '😀',
  '/',
  '~',
  '*',
];
const NOTHING = new Uint8Array(0);
const inJson = (text: string) => JSON.stringify(text).slice(1, -1);

describe('text in a form', () => {
  it('is escaped as JSON.stringify does it, and encoded as forms are, for 2,000 generated texts', () => {
    const encoding = createEncoding();
    for (let seed = 1; seed <= 2000; seed++) {
      const text = randomText(randomFrom(seed), PIECES, 60).toWellFormed();
      const toLf = seed % 2 === 0;
      encoding.begin(Buffer.from('x='));
      encoding.add('"');
      encoding.add({ text: seed % 3 === 0 ? text : Buffer.from(text), toLf });
      encoding.add(`",${JSON.stringify(text)}`);
      const expected = `"${inJson(toLf ? text.replaceAll('\r\n', '\n') : text)}",${JSON.stringify(text)}`;
      expect(Buffer.from(encoding.value()).toString(), `seed ${seed}`).to.equal(expected);
      const form = Buffer.from(encoding.form()).toString('latin1');
      expect(form).to.match(/^x=(?:[\w.+-]|%[0-9A-F]{2})*$/);
      expect(new URLSearchParams(form).get('x')).to.equal(expected);
    }
  });

  it('finds room for what becomes eight times as long, and for what is large', () => {
    const encoding = createEncoding();
    for (const text of ['\x1f'.repeat(200_000), 'é'.repeat(300_000), 'a'.repeat(3_000_000), '"'.repeat(10)]) {
      encoding.begin(NOTHING);
      for (const part of [text, text]) {
        encoding.add({ text: part, toLf: false });
        encoding.add(inJson(part));
      }
      const expected = Buffer.from(inJson(text).repeat(4));
      expect(expected.equals(encoding.value())).to.equal(true);
      expect(
        new URLSearchParams(`x=${Buffer.from(encoding.form()).toString('latin1')}`).get('x') === expected.toString(),
      ).to.equal(true);
    }
  });

  it('cuts no line end in two, wherever it stands in a long text', () => {
    const encoding = createEncoding();
    for (const start of ['', 'a', 'ab']) {
      const text = `${start}${'a\r\n'.repeat(30_000)}`;
      encoding.begin(NOTHING);
      encoding.add({ text, toLf: true });
      expect(Buffer.from(encoding.value()).toString() === inJson(text.replaceAll('\r\n', '\n'))).to.equal(true);
    }
  });
});
