import { expect } from 'chai';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { fillingRegions } from '../../../src/mail/merge/regions.ts';
import { RenderedTooLong } from '../../../src/mail/template-errors.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const fillRegions = (...args: Parameters<typeof fillingRegions>) => runToEnd(fillingRegions(...args));

const fill = (code: string, contents: Record<string, string> = { x: 'NEW' }) =>
  fillRegions(code, new Map(Object.entries(contents)));

/** What is filled: what it was, what it becomes with NEW for x and, where there is a y, NEWER for that. */
const FILLED: Readonly<Record<string, readonly [string, string]>> = {
  'an element': ['<div mc:edit="x">old</div>', '<div>NEW</div>'],
  'an empty element': ['<div mc:edit="x"></div>', '<div>NEW</div>'],
  'one in single quotes': ["<div mc:edit='x'>old</div>", '<div>NEW</div>'],
  'one without quotes': ['<div mc:edit=x>old</div>', '<div>NEW</div>'],
  'one with spaces around': ['<div  mc:edit = "x" >old</div >', '<div >NEW</div >'],
  'one over several lines': [
    '<div\n\tclass="a"\r\n\tmc:edit="x"\n\tid=b\n>old\n</div\n>',
    '<div\n\tclass="a"\n\tid=b\n>NEW</div\n>',
  ],
  'upper case': ['<DIV CLASS=A MC:EDIT="x">old</DIV>', '<DIV CLASS=A>NEW</DIV>'],
  'tags in different cases': ['<Div Mc:Edit="x">old<B>bold</b></dIV>after', '<Div>NEW</dIV>after'],
  'the first of two marks': ['<div mc:edit="x" mc:edit="y">old</div>', '<div mc:edit="y">NEW</div>'],
  'an attribute glued to the one before': [
    '<div class="a"mc:edit="x"id="b">old</div>',
    '<div class="a"id="b">NEW</div>',
  ],
  'all regions of one name': ['<b mc:edit="x">1</b>-<i mc:edit="x">2</i>', '<b>NEW</b>-<i>NEW</i>'],
  'elements inside, of the same name too': [
    '<div mc:edit="x"><div>a</div><div><div>b</div></div></div>c',
    '<div>NEW</div>c',
  ],
  'the outer of two': [
    '<div mc:edit="x"><p mc:edit="y">old</p></div><p mc:edit="y">old</p>',
    '<div>NEW</div><p>NEWER</p>',
  ],
  'the inner one when there is nothing for the outer': [
    '<div mc:edit="z">a<p mc:edit="x">old</p>b</div>',
    '<div mc:edit="z">a<p>NEW</p>b</div>',
  ],
  'one inside of one that was closed': ['<div><p mc:edit="x">old</p></div>', '<div><p>NEW</p></div>'],
  'an element that is never closed': ['<div><p mc:edit="x">old', '<div><p>NEW'],
  'an element that its parent closes': ['<div><span mc:edit="x">old</div>after', '<div><span>NEW</div>after'],
  'a paragraph that a block ends': ['<p mc:edit="x">old<div>b</div>', '<p>NEW<div>b</div>'],
  'a list item that the next one ends': ['<ul><li mc:edit="x">a<li>b</ul>', '<ul><li>NEW<li>b</ul>'],
  'cells and rows that the next one ends': [
    '<table><tr><td mc:edit="x">a<td mc:edit="y">b<tr><td>c</table>',
    '<table><tr><td>NEW<td>NEWER<tr><td>c</table>',
  ],
  'an element with stray ends inside': ['<div mc:edit="x">a</b></p></td>b</div>c', '<div>NEW</div>c'],
  'void elements inside': ['<div mc:edit="x">a<br>b<img src=c><hr/></div>d', '<div>NEW</div>d'],
  'an element with a comment that ends it in vain': ['<div mc:edit="x"><!-- </div> --></div>b', '<div>NEW</div>b'],
  'an element with a script that ends it in vain': [
    '<div mc:edit="x"><script>"</div>"</script></div>b',
    '<div>NEW</div>b',
  ],
  'title, textarea and style by their own mark': [
    '<title mc:edit="x"><b></title><textarea mc:edit="x"></div></textarea><style mc:edit="x">p{}</style>',
    '<title>NEW</title><textarea>NEW</textarea><style>NEW</style>',
  ],
  'one beside a quoted >': ['<a title="a > b" mc:edit="x" alt=\'>\'>old</a>', '<a title="a > b" alt=\'>\'>NEW</a>'],
  'one with a doctype and entities around': [
    '<!DOCTYPE html>&nbsp;&amp<p mc:edit="x">&lt;</p>&copy',
    '<!DOCTYPE html>&nbsp;&amp<p>NEW</p>&copy',
  ],
};

/** What has no region in it, or none that can be filled. */
const LEFT: Readonly<Record<string, string>> = {
  'a region without content': '<div mc:edit="z" >old</div>',
  'a name in another case': '<div mc:edit="X">old</div>',
  'a mark without value': '<div mc:edit>old</div><div mc:edit=>old</div><div mc:edit="">old</div>',
  'a void element': '<img mc:edit="x" src="a.png"><br mc:edit="x"/>text',
  'an element written as empty': '<div mc:edit="x"/>text<p>more</p>',
  'a comment': '<!-- <div mc:edit="x">old</div> -->',
  'a conditional comment': '<!--[if mso]><td mc:edit="x">old</td><![endif]-->',
  'a comment that never ends': '<!-- <div mc:edit="x">old</div>',
  'a script': '<script>var a = \'<div mc:edit="x">old</div>\'</script>',
  'a style': '<style>/* <div mc:edit="x">old</div> */</style>',
  'a textarea': '<textarea><div mc:edit="x">old</div></textarea>',
  'a bogus comment': '<!mc:edit="x"><?mc:edit="x"></ mc:edit="x">',
  'a value of another attribute': '<div title=\'mc:edit="x"\'>old</div>',
  text: 'mc:edit="x"> < div mc:edit="x">old</div>',
  'a tag that never ends': '<div mc:edit="x"',
  'a closing tag': '<div></div mc:edit="x">old',
  'another attribute': '<div amc:edit="x" mc:edits="x" data-mc:edit="x">old</div>',
};

describe('editable regions', () => {
  for (const [what, [code, expected]] of Object.entries(FILLED)) {
    it(`fill ${what}`, () => {
      expect(fill(code, { x: 'NEW', y: 'NEWER' })).to.equal(expected);
    });
  }

  for (const [what, code] of Object.entries(LEFT)) {
    it(`leave ${what} as it is`, () => {
      expect(fill(code)).to.equal(code);
      const around = `<b mc:edit="ok">1</b>${code}`;
      expect(fill(around, { x: 'NEW', ok: '2' }), 'beside one that is filled').to.equal(`<b>2</b>${code}`);
    });
  }

  it('insert content as it is, including replacement patterns and regions', () => {
    for (const content of ['$& $1 $$', '<p mc:edit="x">y</p>', '</div>', '\ud800', '', '*|A|*']) {
      expect(fill('a<div mc:edit="x">old</div>b', { x: content })).to.equal(`a<div>${content}</div>b`);
    }
  });

  it('find quoted names, with entities, and names of object properties', () => {
    expect(
      fill(
        `<b mc:edit='say "x"'>1</b><b mc:edit="it's">2</b><b mc:edit="say &quot;x&quot;">3</b><b mc:edit="a&amp;b&#39;&#x41;&nope;">4</b>`,
        { 'say "x"': 'A', "it's": 'B', "a&b'A&nope;": 'C' },
      ),
    ).to.equal('<b>A</b><b>B</b><b>A</b><b>C</b>');
    expect(fill('<b mc:edit="__proto__">1</b><b mc:edit="constructor">2</b>', { x: 'NEW' })).to.equal(
      '<b mc:edit="__proto__">1</b><b mc:edit="constructor">2</b>',
    );
    expect(fillRegions('<b mc:edit="__proto__">1</b>', new Map([['__proto__', '2']]))).to.equal('<b>2</b>');
  });

  it('give the same result for any slices', () => {
    const region = '<td CLASS="a>b" mc:edit="x" id=c>old<b>er</b><!-- </td> --></td>';
    for (let shift = 0; shift <= region.length; shift++) {
      const before = '<i>' + ' '.repeat(32_768 - 3 - shift);
      expect(fill(before + region + region), `cut at ${shift}`).to.equal(
        before + '<td CLASS="a>b" id=c>NEW</td>'.repeat(2),
      );
    }
  });

  it('leave text unchanged when there is nothing to fill', () => {
    const random = randomFrom(1);
    const pieces = [
      '<',
      '>',
      '/',
      '<div',
      ' mc:edit',
      '=',
      '"x"',
      "'x'",
      '<p mc:edit=x>',
      '</p>',
      '<!--',
      '-->',
      '<script>',
      '</script>',
      '<br/>',
      '&amp;',
      '\r\n',
      '\0',
      '\ud800',
      '\udc00',
      'ä',
      '<li>',
      '<td>',
      '</table>',
    ];
    for (let round = 0; round < 500; round++) {
      const text = randomText(random, pieces, 60);
      expect(fill(text, {})).to.equal(text);
      expect(fill(text, { other: 'NEW' })).to.equal(text);
    }
  });

  it('leave text around a closed region unchanged', () => {
    const random = randomFrom(2);
    const pieces = [
      '<div>',
      '</div>',
      '<p>',
      '</p>',
      'text',
      '<br/>',
      '<!-- a -->',
      '<script>a</script>',
      '&amp;',
      '\r\n',
      '\0',
      '\ud800',
      'ä',
      '<li>',
      '</ul>',
      '> ',
      '<a b="c">',
      '</a>',
    ];
    const letters = /[<&"'`=a-z/!?-]/gi; // a random character must not begin a tag that swallows the region
    for (let round = 0; round < 500; round++) {
      const [before, after] = [randomText(random, pieces, 20), randomText(random, pieces, 20)].map((text) =>
        text
          .split(/(<[^>]*>)/)
          .map((part) => (part.startsWith('<') ? part : part.replace(letters, '')))
          .join(''),
      );
      expect(fill(`${before}<h1 mc:edit="x">old</h1>${after}`)).to.equal(`${before}<h1>NEW</h1>${after}`);
    }
  });

  it('reject a result above the limit', () => {
    const contents = new Map([['x', 'N'.repeat(100)]]);
    const code = '<b mc:edit=x></b>'.repeat(10);
    expect(fillRegions(code, contents, 1070)).to.have.length(1070);
    expect(() => fillRegions(code, contents, 1069)).to.throw(RenderedTooLong);
    expect(
      () => fillRegions('<b mc:edit=x></b>'.repeat(50_000), new Map([['x', 'N'.repeat(500_000)]])),
      'which would be 25 GB',
    ).to.throw(RenderedTooLong);
    expect(
      fillRegions(`<b mc:edit=x>${'o'.repeat(2000)}</b>`, contents, 1000),
      'what is replaced does not count',
    ).to.have.length(107);
  });
});
