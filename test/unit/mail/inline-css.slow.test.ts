import { expect } from 'chai';
import { createInliner } from '../../../src/mail/compose/inline-css.ts';

const inline = createInliner();
const page = (css: string, body: string) =>
  `<!DOCTYPE html><html><head><style>${css}</style></head><body>${body}</body></html>`;
const many = (count: number, piece: (n: number) => string) =>
  Array.from({ length: count }, (_, n) => piece(n)).join('');

describe('inlined style sheets', () => {
  it('are applied by specificity, below inline styles, and stay in the page', () => {
    const css =
      'p{color:red;margin:0} .big{font-size:20px} #one{color:blue} a:hover{color:green} @media (max-width:300px){p{color:black}}';
    expect(inline(page(css, '<p class="big" id=one>x</p><p style="margin:3px">y</p><a>z</a>'))).to.equal(
      page(
        css,
        '<p class="big" id=one style="margin: 0; font-size: 20px; color: blue;">x</p><p style="color: red; margin: 3px;">y</p><a>z</a>',
      ),
    );
  });

  it('leave template tags, entities and links as they are', () => {
    const body =
      '<p>*|NAME|* {{#if x}}{{/if}} <%= 1 %> &eacute;&nbsp; <a href="*|UNSUB:http://a.b/?x=1&amp;y=2|*">l</a> *|IF:A > 3|* x *|END:IF|*</p>';
    expect(inline(page('p{a:b}', body))).to.equal(page('p{a:b}', body.replace('<p>', '<p style="a: b;">')));
  });

  it('yield to !important, and keep repeated values of one rule for different programs', () => {
    const css =
      'p{color:red !important;color:blue} .a{color:green;width:1px;width:calc(1px + 1em)} #x{width:2px!important}';
    expect(inline(page(css, '<p class=a style="color:pink">x</p><p id=x style="width:3px!important;height:1px">y')))
      .to.contain('<p class=a style="width: 1px; width: calc(1px + 1em); color: red;">')
      .and.to.contain('<p id=x style="height: 1px; color: red; width: 3px !important;">'.replace('color: blue; ', ''));
  });

  it('are ignored where browsers ignore them', () => {
    const css =
      'p,:focus{a:1} p,:nope(]{b:1} p::before{c:1} p{d} p{;e:;f:1} @font-face{p{g:1}} @media all{p{h:1}} p{i{j:1} k:1}';
    const sheets = `<style media=print>p{l:1}</style><style>${css}</style><style media="Screen">p{m:1}</style>`;
    expect(inline(`${sheets}<p>x`)).to.equal(`${sheets}<p style="a: 1; f: 1; k: 1; m: 1;">x`);
  });

  it('change only tags: neither text in tables nor the notation of a tag', () => {
    const css = 'td{font-family:"A B";background:url(data:image/png;base64,x)} *{c:1}';
    const html = `<style>${css}</style><TABLE >*|LOOP|*<tr\n><td CLASS='y' Style=a:b >&amp<td style><br/></table>`;
    const style = 'font-family: &quot;A B&quot;; background: url(data:image/png;base64,x);';
    expect(inline(html)).to.equal(
      `<style>${css}</style><TABLE style="c: 1;" >*|LOOP|*<tr style="c: 1;"\n><td CLASS='y' Style="c: 1; ${style} a: b;" >&amp` +
        `<td style="c: 1; ${style}"><br style="c: 1;"/></table>`,
    );
  });

  for (const html of [
    '',
    'text',
    '<p>no <b>style',
    '<p style="a:b">',
    '<link rel="stylesheet" href="http://127.0.0.1:1/x.css"><p class=x>',
  ]) {
    it(`change nothing without style sheets: ${html}`, () => expect(inline(html)).to.equal(html));
  }

  it('are never fetched, nor read from files', () => {
    const css =
      '@import url("http://127.0.0.1:1/a.css"); @import "file:///etc/passwd"; p{background:url(file:///etc/passwd)}';
    const body = '<link rel="stylesheet" href="file:///etc/passwd"><img src="file:///etc/passwd"><p>x</p>';
    expect(inline(page(css, body))).to.equal(
      page(css, body.replace('<p>', '<p style="background: url(file:///etc/passwd);">')),
    );
  });

  it('are not inlined in a page above 256 KB', () => {
    const html = (bytes: number) => `<style>p{a:b}</style><p>${'é'.repeat((bytes - 25) / 2)}`;
    expect(inline(html(262_145))).to.equal(html(262_145));
    expect(inline(html(262_141))).to.contain('<p style="a: b;">');
  });

  it('are inlined in a page of a thousand rows', () => {
    const html = page(
      many(40, (n) => `.c${n} td, table.c${n} a{color:red;padding:${n}px;margin:0}\n`),
      `<table>${many(1000, (n) => `<tr class="c${n % 50}"><td><a href="http://x.example/${n}">x</a></td></tr>\n`)}</table>`,
    );
    expect(inline(html)).to.contain('<tr class="c7"><td style="color: red; padding: 7px; margin: 0;">');
  });

  // Each of these would take minutes, or more memory than there is.
  const nested = (open: string, depth: number) =>
    page(`${open.repeat(depth)}x:y${'}'.repeat(depth)}`, '<b>'.repeat(300));
  for (const [name, html] of [
    ['a rule for everything', page(`*{${many(2000, (n) => `p${n}:1;`)}}`, '<b>x</b>'.repeat(20_000))],
    [
      'many rules and many elements',
      page(
        many(8000, (n) => `a b c${n}{x:y}`),
        '<b>x</b>'.repeat(3000),
      ),
    ],
    ['elements inside one another', page('a{x:y}', '<a>'.repeat(50_000))],
    ['rules inside one another', nested('a,b{', 40)],
    ['rules inside one another, each naming the outer one', nested('a &,b &{', 12)],
    ['a long value for everything', page(`*{x:${'y'.repeat(100_000)}}`, '<b>x</b>'.repeat(20_000))],
    ['a selector inside of itself', page(`${':not('.repeat(20_000)}b${')'.repeat(20_000)}{x:y}`, '<b>')],
    ['elements inside one another, of any name', page('a{x:y}', '<div>'.repeat(40_000))],
    [
      'what holds what',
      page(
        many(2000, () => `:has(${'b '.repeat(10)}){x:y}`),
        '<b>x</b>'.repeat(3000),
      ),
    ],
    [
      'positions from the end',
      page(
        many(900, (n) => `:nth-last-child(${n}){x:y}`),
        '<b>x</b>'.repeat(3000),
      ),
    ],
    ['brackets without an end', page(`b{x:${'('.repeat(100_000)}${';'.repeat(100_000)}`, '<b>')],
    ['strings without an end', page(`b{x:${'"\\n'.repeat(60_000)}`, '<b>')],
    ['attributes without an end', `<style>b{x:y}</style><b ${many(30_000, (n) => `a${n} `)}>`],
    ['a selector without an end', page(':not('.repeat(40_000), '<b>')],
    ['selectors without an end', page(`${'b,'.repeat(90_000)}b{x:y}`, '<b>')],
    ['braces', page('{'.repeat(200_000), '<b>')],
    ['style elements inside one another', '<style>'.repeat(35_000)],
    ['comments without an end', page('/*'.repeat(100_000), '<b>')],
    ['tags of templates without an end', page('p{x:y}', '{{'.repeat(100_000))],
    ['closing tags of what was never opened', page('p{x:y}', '<a></b>'.repeat(30_000))],
    [
      'variables made of variables',
      page(`:root{--v0:x}${many(40, (n) => `:root{--v${n + 1}:var(--v${n}) var(--v${n})}`)}b{x:var(--v40)}`, '<b>'),
    ],
    ['descendants of descendants', page(`q ${'div '.repeat(20)}b{x:y}`, `${'<div>'.repeat(300)}<b>`)],
    [
      'attributes of everything',
      page(
        many(900, (n) => `[a*="${n}"][b~="x"]{x:y}`),
        '<b a=1>x</b>'.repeat(3000),
      ),
    ],
  ] as const) {
    it(`are safe: ${name}`, () => {
      const started = performance.now();
      expect(inline(html).length).to.be.lessThan(1_000_000);
      // It is given up after a second; the rest is for a machine that is busy.
      expect(performance.now() - started).to.be.lessThan(8000);
    }).timeout(20_000);
  }
});
