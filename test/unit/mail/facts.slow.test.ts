import { expect } from 'chai';
import { factsOfMessage } from '../../../src/mail/facts/facts.ts';
import { DISPLAYED } from '../../support/displayed.ts';
import { growth, repeated } from '../../support/growth.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';
import { size } from '../../support/sizes.ts';

const find = (html: string) => factsOfMessage({ subject: '', text: undefined, html }, null);

/** What stands in front, and what is repeated. */
const UNITS: readonly (readonly [string, string])[] = [
  ...[
    '<div>',
    '<b>',
    '<p><b>',
    '<b><div></b>',
    '<i><br>',
    '<table>',
    '<table><tr><td>',
    '<ul><li>x',
    '<dl><dt>x',
    '<a href=//a.b>x',
    '<a href="http://evil.test">http://bank.example</a>',
    '</p>',
    '</b>',
    '<h1>x',
    '<svg>',
    '<select><option>x',
    '<object>x</p>',
    '<details>x<summary>y',
    '<p hidden>x<p>y',
    '<span style="color:red">x</span>',
    '<!--x-->',
    '<!--[if ',
    '<!',
    '<',
    '&amp;',
    '&#8203;',
    '\u200b',
    'a\u200b',
    '\u{1f468}\u200d',
    '\u{e0041}',
    'a\ufe01',
    ' ',
    'x ',
    '\n',
    'a.',
    'a@',
    '</foo>',
  ].map((unit) => ['', unit] as const),
  ['<table>', '<td>x'],
  ['<table>', '<p>x'],
  ['<pre>', 'x\n'],
  ['<p hidden>', 'x&amp; '],
  ['<p style="mso-hide:all">', 'a<br>b'],
  ['<p style="text-indent:-9999px">', 'a<br>'],
  ['<a href=http://a.test>', 'a.'],
  ['<a href="http://', 'a@'],
  ['<!--', '<p>x'],
  [`${'<b>'.repeat(1000)}`, '<p>x'],
  [`<foo><div>${'<span>'.repeat(1000)}`, '</foo>'],
  ['<p style="', 'display:none;'],
  ['<p style="background:', 'a('],
  ['<p style="clip-path:polygon(', '0 '],
  ['<p style="font:', '1 '],
  ['<p class="', 'a '],
  ['<p ', 'a=b '],
  ['<style>', '.a{display:none}'],
  ['<style>', '@media all{'],
  ['<style>', 'a,'],
  ['<style>', ':not('],
  ['<style>x{a:url(', ';'],
  ['<style>x{color:a', ' '],
  ['<style>', '"\\'],
  ['<style>', '/*'],
  ['', '</style'],
  ['', '<style></style'],
];

describe('the facts of a hostile message', () => {
  it('are found in time proportional to the message', function () {
    this.timeout(240_000);
    for (const [lead, unit] of UNITS)
      expect(
        growth(
          (length) => {
            find(lead + repeated(unit, length));
          },
          size(20_000, 12_000),
        ),
        lead + unit,
      ).to.be.below(128);
  });

  it('omit what would take too long, and report it', () => {
    const rules = (rule: string, count: number) => `<style>${rule.repeat(count)}</style>`;
    for (const html of [
      rules('.a b i{display:none}', 20_000) + '<i class=a><i>x'.repeat(30_000),
      rules('*{color:red}', 20_000) + '<i>x'.repeat(50_000),
      rules(`${'div '.repeat(50)} .z span{display:none}`, 100) + '<div>'.repeat(2000) + '<span>x</span>'.repeat(20_000),
      rules(`b{${'display:none;'.repeat(50_000)}}`, 1) + '<b>x</b>'.repeat(20_000),
      '<div>'.repeat(100_000),
      '<b>x</b>'.repeat(1_000_000),
      'x '.repeat(200_000),
      '\u200b'.repeat(4_000_000),
      '<a href=x>y</a>'.repeat(6000),
    ])
      expect(find(html).cut, html.slice(0, 60)).to.equal(true);
  });

  it('are found in random combinations of page fragments', function () {
    this.timeout(120_000);
    const pieces = Object.values(DISPLAYED).flatMap((html) => html.split(/(?=<)|(?<=>)/));
    const random = randomFrom(59);
    for (let i = 0; i < size(3000, 1000); i++) {
      const html = randomText(random, pieces, 60);
      for (const text of [html, html.slice(0, Math.floor(random() * html.length))]) {
        const facts = find(text);
        expect(find(text), text).to.deep.equal(facts);
        expect(JSON.parse(JSON.stringify(facts)), text).to.deep.equal(facts);
      }
    }
  });
});
