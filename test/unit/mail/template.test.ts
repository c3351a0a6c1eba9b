import { expect } from 'chai';
import { nameFault, slugOf } from '../../../src/mail/merge/language.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

describe('slugs', () => {
  it('are lower case with hyphens', () => {
    const slugs: Readonly<Record<string, string>> = {
      'Example Template': 'example-template',
      '3F2504E0-4f89-41d3-9a0c-0305e82c3301': '3f2504e0-4f89-41d3-9a0c-0305e82c3301',
      'example-template': 'example-template',
      ' a  b_c.d/e ': 'a-b-c-d-e',
      '--a--': 'a',
      'Grüße & Küsse': 'grüße-küsse',
      Ünïcödé: 'ünïcödé',
      ＦＵＬＬ: 'full',
      ご注文: 'ご注文',
      हिन्दी: 'हिन्दी',
      '!!!': '',
      '': '',
    };
    for (const [name, slug] of Object.entries(slugs)) expect(slugOf(name), name).to.equal(slug);
  });

  it('are their own slugs, for any character, so that no name can be the slug of another', () => {
    for (let point = 0; point <= 0x10ffff; point++) {
      if (point >= 0xd800 && point <= 0xdfff) continue;
      const slug = slugOf(`A${String.fromCodePoint(point)}b`);
      if (slugOf(slug) !== slug) expect.fail(`${point.toString(16)}: ${slug} becomes ${slugOf(slug)}`);
    }
  }).timeout(30_000);

  it('are their own slugs, for any sequence of characters', () => {
    const random = randomFrom(5);
    const pieces = [
      'a',
      'Σ',
      'ς',
      'İ',
      'I',
      '\u0307',
      '\u0301',
      '\u0308',
      '-',
      ' ',
      'ﬁ',
      'K',
      'ϓ',
      'ゞ',
      '\u3099',
      'Ǆ',
      '가',
      '\u11a8',
      '½',
      '\u0345',
      'ͅ',
    ];
    for (let round = 0; round < 20_000; round++) {
      const name = randomText(random, pieces, 8).toWellFormed();
      expect(slugOf(slugOf(name)), JSON.stringify(name)).to.equal(slugOf(name));
    }
  });
});

describe('template names', () => {
  it('are anything readable', () => {
    for (const name of ['Example Template', 'a', '7', 'Grüße!', 'ご注文', '<b>', 'a"b\'c', 'a/b', ' a '])
      expect(nameFault(name), name).to.equal(undefined);
  });

  it('have no line ends, control characters or invisible characters', () => {
    for (const name of [
      'a\nb',
      'a\0',
      'a\u007fb',
      'a\u202eb',
      'a\u200bb',
      'a\u2028b',
      'a\ufeff',
      'a\ue000',
      'a\u00adb',
    ])
      expect(nameFault(name), JSON.stringify(name)).to.contain('invisible');
  });

  it('have a letter or a digit', () => {
    for (const name of [' ', '---', '!?', '☃'])
      expect(nameFault(name), name).to.contain('at least one letter or digit');
  });
});
