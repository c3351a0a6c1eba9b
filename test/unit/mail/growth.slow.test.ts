import { expect } from 'chai';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { merging, toVars } from '../../../src/mail/merge/merge.ts';
import { fillingRegions } from '../../../src/mail/merge/regions.ts';
import { sanitizePage } from '../../../src/mail/sanitize/html.ts';
import { growth, repeated } from '../../support/growth.ts';

// What anybody may write must not cost more than in proportion: sixteen times the text, some sixteen times the time.

const merge = (...args: Parameters<typeof merging>) => runToEnd(merging(...args));
const fillRegions = (...args: Parameters<typeof fillingRegions>) => runToEnd(fillingRegions(...args));
const now = new Date('2026-01-05T14:07:09Z');
const run = (text: string, values: Record<string, string>) =>
  merge(text, toVars(Object.entries(values).map(([name, content]) => ({ name, content }))), { now });
const fill = (code: string, contents: Record<string, string> = { x: 'NEW' }) =>
  fillRegions(code, new Map(Object.entries(contents)));

describe('editable regions', () => {
  const units = [
    '<div mc:edit=x>',
    '<div mc:edit=y>',
    '<',
    '<div>',
    '</div>',
    '<a',
    '<a b="',
    "<a mc:edit='",
    '<!--',
    '<p mc:edit=x>',
    '<p mc:edit=x></p>',
    '<b></i>',
    '<li>',
    '<td>',
    '<script>',
    '<title>',
    ' mc:edit=x',
    '<p mc:edit=x mc:edit=x',
    '&',
    '</',
    '<x/>',
    '<a/mc:edit=x/>',
  ];
  it('takes linear time', function () {
    this.timeout(120_000);
    for (const unit of units) {
      expect(
        growth((size) => {
          fill('<br mc:edit=x>' + repeated(unit, size), { x: 'N', y: 'N' });
        }, 40_000),
        unit,
      ).to.be.below(128);
    }
    const pairs: readonly (readonly [string, string])[] = [
      ['<div>', '</span>'],
      ['<b>', '<li></li>'],
      ['<i>', '</b>'],
      ['<ul><b>', '<li>'],
      ['<p mc:edit=x', ' '],
    ];
    for (const [first, second] of pairs) {
      expect(
        growth((size) => {
          fill('<p mc:edit=y>' + repeated(first, size / 2) + repeated(second, size / 2));
        }, 40_000),
        first + second,
      ).to.be.below(128);
    }
  });
});

describe('merge tags', () => {
  const units = [
    '*|IF:',
    '*|',
    '|*',
    '*|IF:|*',
    '*|IF:NAME|*',
    '*|IF:NOPE|*',
    '*|IFNOT:NAME=1|*',
    '*|NAME|*',
    '*|NAME',
    '*',
    '|',
    '*|IF:NAME|*x*|END:IF|*',
    '*|ELSE:|*',
    '*|ELSEIF:NAME|*',
    '*|END:IF|*',
    '*|IF:BIG>5|*',
    '*|IF:BIG=5|*',
    '*|DATE:YYYY|*',
    '*|\n|*',
    '*|IF:NAME>    ',
    '*|NAME:',
    '*|UPPER:',
  ];
  it('take linear time', function () {
    this.timeout(120_000);
    const values = { name: 'Ann', big: '5'.repeat(500_000) };
    for (const unit of units)
      expect(
        growth((size) => {
          run(repeated(unit, size), values);
        }, 40_000),
        unit,
      ).to.be.below(128);
    for (const end of ['|*', ' x|*'])
      expect(
        growth((size) => {
          run(`*|IF:NAME${' '.repeat(size)}${end}`, values);
        }, 40_000),
        end,
      ).to.be.below(128);
  });
});

describe('the displayed page of a mail', () => {
  it('takes linear time, for any repetition', () => {
    const pieces = [
      '<',
      '<p ',
      '<p a="',
      '<style>',
      '</style>',
      '<!--',
      '&',
      '<svg>',
      '<div style="a:(((',
      '/*',
      '<a href=x>',
    ];
    pieces.push(
      '<style>p{',
      '<style>@media x{',
      "<style>'",
      '<style>a(',
      'a-',
      '<p style="a:b;',
      '(',
      '<td>',
      'cid:',
      '<img src="',
    );
    for (const piece of pieces)
      for (const start of ['', '<style>p{a:', '<p style="a:']) {
        const show = (size: number) => {
          sanitizePage(start + repeated(piece, size), () => undefined, { maxLength: 5_000_000 });
        };
        expect(growth(show, 10_000), start + piece).to.be.below(128);
      }
  });
});
