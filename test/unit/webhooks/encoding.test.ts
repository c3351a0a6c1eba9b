import { expect } from 'chai';
import { createEncoding } from '../../../src/webhooks/render/form.ts';
import type { Piece } from '../../../src/webhooks/render/pieces.ts';
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
const inJson = (text: string) => JSON.stringify(text).slice(1, -1);

/** What no line of ours has made: the form of a value, by the serializer of Node. Forms of Mandrill encode the star. */
const formOf = (value: string) => new URLSearchParams({ mandrill_events: value }).toString().replaceAll('*', '%2A');

const encoding = createEncoding();

function encoded(...pieces: readonly Piece[]): { readonly value: string; readonly form: string } {
  const values: Buffer[] = [];
  const forms: Buffer[] = [];
  encoding.begin((value, form) => {
    values.push(Buffer.from(value));
    forms.push(Buffer.from(form));
  });
  for (const piece of pieces) encoding.add(piece);
  encoding.end();
  return { value: Buffer.concat(values).toString(), form: Buffer.concat(forms).toString('latin1') };
}

/** Compared in one go: a difference of a megabyte is not for printing. */
function expectValue(pieces: readonly Piece[], value: string, what: string): void {
  const made = encoded(...pieces);
  expect(made.value === value, `value of ${what}`).to.equal(true);
  expect(made.form === formOf(value), `form of ${what}`).to.equal(true);
}

describe('text in a form post', () => {
  it('is escaped like JSON.stringify, and form-encoded, for 2,000 generated texts', () => {
    for (let seed = 1; seed <= 2000; seed++) {
      const text = randomText(randomFrom(seed), PIECES, seed % 50 === 0 ? 20_000 : 60).toWellFormed();
      const toLf = seed % 2 === 0;
      const piece = { text: seed % 3 === 0 ? text : Buffer.from(text), toLf };
      const made = `"${inJson(toLf ? text.replaceAll('\r\n', '\n') : text)}",${JSON.stringify(text)}`;
      expectValue(['"', piece, `",${JSON.stringify(text)}`], made, `seed ${seed}`);
    }
  });

  it('is correct for every byte and every pair of bytes, at any position', () => {
    for (let byte = 0; byte < 128; byte++) {
      const char = String.fromCharCode(byte);
      for (const other of ['', 'a', ' ', '"', '\n', '\r', '\x1f']) {
        let text = '';
        for (let before = 0; before < 70; before++) text += `${'p'.repeat(before)}${char}${other}`;
        expectValue([{ text: Buffer.from(text), toLf: false }], inJson(text), JSON.stringify(char + other));
        expectValue([{ text, toLf: true }], inJson(text.replaceAll('\r\n', '\n')), JSON.stringify(char + other));
        expectValue([inJson(text)], inJson(text), JSON.stringify(char + other));
      }
    }
  });

  it('has space for text that grows eightfold, and for large text', () => {
    for (const text of [
      '\x1f'.repeat(200_000),
      'é'.repeat(300_000),
      '😀'.repeat(100_000),
      'a'.repeat(3_000_000),
      '"'.repeat(10),
    ])
      expectValue(
        [{ text, toLf: false }, inJson(text), { text: Buffer.from(text), toLf: true }],
        inJson(text).repeat(3),
        `${text.length} of ${text.slice(0, 2)}`,
      );
  });

  it('splits no line end, at any position in a long text', () => {
    for (const start of ['', 'a', 'ab']) {
      const text = `${start}${'a\r\n'.repeat(30_000)}\r`;
      const value = inJson(text.replaceAll('\r\n', '\n'));
      expectValue([{ text, toLf: true }], value, 'a text');
      expectValue([{ text: Buffer.from(text), toLf: true }], value, 'bytes');
    }
  });

  it('has lines without their ends', () => {
    for (const width of [1, 4, 76, 998]) {
      const text = Buffer.from(Array.from({ length: 100_000 }, (_, n) => n % 251)).toString('base64');
      const lines = Buffer.from(text.replace(new RegExp(`.{${width}}`, 'g'), '$&\r\n'));
      expectValue(['"', { lines }, '"'], `"${text}"`, `lines of ${width}`);
    }
  });

  it('starts anew after an unfinished text', () => {
    encoding.begin(() => expect.fail('nobody waits for this any more'));
    encoding.add('left over');
    expectValue(['[]'], '[]', 'the next one');
  });
});
