import { expect } from 'chai';
import { rewriteHtml, rewriteText } from '../../../src/mail/links.ts';
import { RenderedTooLong } from '../../../src/mail/template-errors.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const MOST = 10_000_000;
const boxed = (url: string) => `[${url}]`;
const html = (text: string) => rewriteHtml(text, { relink: boxed }, MOST);
const plain = (text: string) => rewriteText(text, boxed, MOST);

/** The links that were asked for. */
function asked(text: string): string[] {
  const urls: string[] = [];
  rewriteHtml(
    text,
    {
      relink: (url) => {
        urls.push(url);
        return undefined;
      },
    },
    MOST,
  );
  return urls;
}

describe('links of an HTML text', () => {
  const cases: readonly (readonly [name: string, before: string, after: string])[] = [
    ['in double quotes', '<a href="http://x.example/">x</a>', '<a href="[http://x.example/]">x</a>'],
    ['in single quotes', "<a href='http://x.example/'>x</a>", "<a href='[http://x.example/]'>x</a>"],
    [
      'without quotes, which get some',
      '<a href=http://x.example/ id=b>x</a>',
      '<a href="[http://x.example/]" id=b>x</a>',
    ],
    ['of https, in any case', '<A HREF="HTTPS://X.example/">x</A>', '<A HREF="[HTTPS://X.example/]">x</A>'],
    [
      'with white space around everything',
      '<a\n href = " http://x.example/ "\tid=b >x</a>',
      '<a\n href = "[http://x.example/]"\tid=b >x</a>',
    ],
    [
      'with line breaks inside, as browsers read them',
      '<a href="http://x.example/\r\n path">x</a>',
      '<a href="[http://x.example/ path]">x</a>',
    ],
    ['of an area', '<area href="http://x.example/">', '<area href="[http://x.example/]">'],
    ['of a tag that closes itself', '<a href="http://x.example/"/>', '<a href="[http://x.example/]"/>'],
    [
      'that come twice: the first counts',
      '<a href="http://x.example/" href="http://y.example/">x</a>',
      '<a href="[http://x.example/]" href="http://y.example/">x</a>',
    ],
  ];
  for (const [name, before, after] of cases)
    it(`are changed ${name}`, () => {
      expect(html(before)).to.equal(after);
    });

  it('are reported with decoded entities, as in an attribute', () => {
    expect(asked('<a href="http://x.example/?a=1&amp;b=2&#38;c=&#x41;&eacute;">x</a>')).to.deep.equal([
      'http://x.example/?a=1&b=2&c=Aé',
    ]);
    expect(asked('<a href="http://x.example/?a=1&copy=2&reg;">x</a>')).to.deep.equal(['http://x.example/?a=1&copy=2®']);
    expect(asked('<a href="&#104;ttp://x.example/">x</a>')).to.deep.equal(['http://x.example/']);
  });

  it('are escaped correctly', () => {
    const nasty = `http://t.example/?a&b"c'd<e>f&amp;`;
    for (const quote of ['"', "'", '']) {
      const changed = rewriteHtml(`<a href=${quote}http://x.example/${quote}>x</a>`, { relink: () => nasty }, MOST);
      expect(asked(changed)).to.deep.equal([nasty]);
      expect(asked(`${changed}<a href="http://y.example">`)).to.have.length(2);
    }
  });

  it('stay if they are no web links, or their author opts out', () => {
    const kept = [
      '<a href="mailto:x@x.example">x</a>',
      '<a href="tel:+49">x</a>',
      '<a href="#top">x</a>',
      '<a href="/path">x</a>',
      '<a href="//x.example/">x</a>',
      '<a href="">x</a>',
      '<a href>x</a>',
      '<a href="javascript:alert(1)">x</a>',
      '<a href="http:">x</a>',
      '<a href="http://">x</a>',
      '<a name="http://x.example/">x</a>',
      '<a data-href="http://x.example/">x</a>',
      '<a mc:disable-tracking href="http://x.example/">x</a>',
      '<a href="http://x.example/" MC:Disable-Tracking="1">x</a>',
      '<link href="http://x.example/">',
      '<img src="http://x.example/">',
      '<abbr href="http://x.example/">x</abbr>',
      '<!-- <a href="http://x.example/">x</a> -->',
      '<script>"<a href=\'http://x.example/\'>"</script>',
      '<style><a href="http://x.example/"></style>',
      '<title><a href="http://x.example/"></title>',
      '<a href="http://x.example/',
      '<a href="http://x.example/"',
      'http://x.example/',
      '<p title=\'<a href="http://x.example/">\'>',
    ];
    for (const text of kept) expect(html(text)).to.equal(text);
  });

  it('change nothing else: with the old links the text is the same', () => {
    const random = randomFrom(1);
    const pieces = [
      '<a href="http://x.example/">',
      "<a href='https://y.example/?a&amp;b'>",
      '<a ',
      'href=',
      'http://z.example/',
      '"',
      "'",
      '>',
      '<',
      '</a>',
      '<!--',
      '-->',
      '<script>',
      '</script>',
      '&amp;',
      '&',
      ' ',
      '\n',
      'text',
      '<p title="',
      '</body>',
    ];
    for (let round = 0; round < 3000; round++) {
      const text = randomText(random, pieces, 40);
      expect(rewriteHtml(text, { relink: () => undefined }, MOST)).to.equal(text);
      const changed = rewriteHtml(text, { relink: () => '\u{1f517}' }, MOST);
      if (!text.includes('\u{1f517}')) expect(changed.split('\u{1f517}').length - 1).to.equal(asked(text).length);
      expect(changed.replace(/(["'])\u{1f517}\1/gu, '').length).to.be.at.most(text.length);
    }
  });

  it('leave the end of the body for additions', () => {
    const added = (text: string) => rewriteHtml(text, { atEnd: '[+]' }, MOST);
    expect(added('<html><body>x</body></html>')).to.equal('<html><body>x[+]</body></html>');
    expect(added('<html>x</BODY >\n</html>\n')).to.equal('<html>x[+]</BODY >\n</html>\n');
    expect(added('<html>x</html>')).to.equal('<html>x[+]</html>');
    expect(added('x')).to.equal('x[+]');
    expect(added('')).to.equal('[+]');
    expect(added('<!-- </body> -->x<body>y</body>z</body>')).to.equal('<!-- </body> -->x<body>y</body>z[+]</body>');
    expect(
      rewriteHtml(
        '<body><a href="http://x.example/">x</a></body><a href="http://y.example/">',
        { relink: boxed, atEnd: '[+]' },
        MOST,
      ),
    ).to.equal('<body><a href="[http://x.example/]">x</a>[+]</body><a href="[http://y.example/]">');
  });

  it('keep the text within its limit', () => {
    const text = '<a href="http://x.example/">x</a>'.repeat(100);
    expect(() => rewriteHtml(text, { relink: () => 'http://longer.example/'.repeat(3) }, text.length + 1000)).to.throw(
      RenderedTooLong,
    );
    expect(() => rewriteHtml('x', { atEnd: 'y'.repeat(10) }, 10)).to.throw(RenderedTooLong);
  });
});

describe('links of a plain text', () => {
  const cases: readonly (readonly [before: string, after: string])[] = [
    ['see http://x.example/a?b=c#d now', 'see [http://x.example/a?b=c#d] now'],
    ['http://x.example/. Next', '[http://x.example/]. Next'],
    ['(http://x.example/)', '([http://x.example/])'],
    ['http://x.example/a_(b)', '[http://x.example/a_(b)]'],
    ['(see http://x.example/a_(b)).', '(see [http://x.example/a_(b)]).'],
    ['<http://x.example/>, "https://y.example"', '<[http://x.example/]>, "[https://y.example]"'],
    ['*http://x.example/*!?', '*[http://x.example/]*!?'],
    ['見て「http://x.example/」。', '見て「[http://x.example/]」。'],
    ['http://x.example/ä', '[http://x.example/ä]'],
    ['line\r\nhttp://x.example/\r\nline', 'line\r\n[http://x.example/]\r\nline'],
    ['HTTP://X.example', '[HTTP://X.example]'],
  ];
  for (const [before, after] of cases)
    it(`are found in ${JSON.stringify(before)}`, () => {
      expect(plain(before)).to.equal(after);
    });

  it('are not found in other text', () => {
    for (const text of [
      'http:// x',
      'http://',
      'https://...',
      'xhttp://x.example/',
      'ftp://x.example/',
      'www.x.example',
      'mailto:x@x.example',
      '',
    ])
      expect(plain(text)).to.equal(text);
  });
});

describe('links in a hostile text', () => {
  // Linear work on these is some hundred milliseconds; the square of it would be hours, and the limit of the test ends
  // it.
  const most = 2_000_000;
  const filled = (piece: string) => piece.repeat(Math.floor(most / piece.length));
  const hostile = [
    '<',
    '<a ',
    '<a href=',
    '<a href="',
    '<a href="http://x.example/',
    "<a href='&",
    '<a href=http://x&amp',
    '</',
    '</body',
    '<!--',
    '<script>',
    '&',
    '&amp',
    '&#1',
    '<a mc:disable-tracking ',
    '<a href= ',
    '<p ',
    '" ',
    '<a href="http://x.example/">',
    '<div>',
    'http://',
    'http://x)',
    'http://x(',
    'https://x.example/). ',
    'http://x.example,',
    'h',
    '((',
    '\t\r\n',
  ];
  for (const piece of hostile) {
    it(`take linear time: ${JSON.stringify(piece)} repeated`, () => {
      const text = filled(piece);
      expect(rewriteHtml(text, { relink: () => undefined, atEnd: '' }, MOST)).to.equal(text);
      expect(rewriteText(text, () => undefined, MOST)).to.equal(text);
    }).timeout(20_000);
  }

  it('take linear time: one value that never ends', () => {
    for (const start of ['<a href="http://x.example/', '<a href= ', 'http://x.example/', '<a href="&#', '<!']) {
      for (const filler of ['a', ')', '(', ' ', '&', '.', '1']) {
        const text = start + filler.repeat(500_000);
        expect(rewriteHtml(text, { relink: () => undefined }, MOST)).to.equal(text);
        expect(rewriteText(text, () => undefined, MOST)).to.equal(text);
      }
    }
  }).timeout(60_000);
});
