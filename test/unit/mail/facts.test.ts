import { expect } from 'chai';
import { factsOfMessage } from '../../../src/mail/facts/facts.ts';
import { DISPLAYED } from '../../support/displayed.ts';

const of = (html: string, subject = '', fromName: string | null = null) =>
  factsOfMessage({ subject, text: undefined, html }, fromName);
const page = (body: string, css = '') => `<!doctype html><style>${css}</style><body>${body}`;
const tags = (text: string) => [...text].map((one) => String.fromCodePoint(0xe0000 + one.charCodeAt(0))).join('');

describe('the visible text of a message', () => {
  for (const [name, html] of Object.entries(DISPLAYED)) {
    it(`is what a browser displays: ${name}`, () => {
      const { visible_text: visible, hidden, cut } = of(html);
      const written = html.replace(/<(?:style|title|script)>.*?<\/(?:style|title|script)>|<style>.*/g, '');
      const shown = /seen|one|two|three|four/g;
      const markup = /<!--.*?-->|<[^>]*>/g;
      expect(visible.match(shown)).to.deep.equal(written.replace(markup, '').match(shown));
      expect(visible).to.not.include('lost');
      for (const { why, text } of hidden) if (why !== 'not-outlook') expect(text).to.not.match(shown);
      expect(cut).to.equal(false);
    });
  }

  it('puts blocks on separate lines, tabs between cells, and list markers', () => {
    const list = '<ul><li>a<li>b<ol start=4><li>c<li value=9>d</ol></ul><ul style="list-style:none"><li>e</ul>';
    const table = '<table><tr><td>1<td>2<tr><td>3<td>4</table>';
    expect(of(`<p>x\n y</p>z<br>w${list}${table}`).visible_text).to.equal(
      'x y\n\nz\nw\n\n\u2022 a\n\u2022 b\n4. c\n9. d\n\ne\n\n1\t2\n3\t4',
    );
  });

  it('is the text of a message without HTML, as it is', () => {
    const facts = factsOfMessage({ subject: '', text: 'a  <b>\n\nc\n', html: undefined }, null);
    expect(facts).to.deep.equal({
      visible_text: 'a  <b>\n\nc\n',
      ...{ hidden: [], invisible: [], links: [] },
      counts: { hidden: 0, invisible: 0, links: 0 },
      cut: false,
    });
    expect(factsOfMessage({ subject: '', text: undefined, html: undefined }, null).visible_text).to.equal('');
  });

  it('excludes alternatives of pictures and the contents of forms', () => {
    expect(of('a<img alt="not seen"><input value="nor this"> b').visible_text).to.equal('a b');
  });
});

describe('the hidden text of a message', () => {
  const lost = (style: string) => page(`seen<div style="${style}">lost  <b>text</b></div>`);
  for (const [why, html] of [
    ['display', lost('display:none')],
    ['display', page('<p hidden>lost <b>text</b></p>')],
    ['display', page('<p class="x">lost <i>text', '.x{display:none}')],
    ['visibility', lost('visibility:hidden')],
    ['opacity', lost('opacity:0')],
    ['opacity', lost('filter:alpha(opacity=50) opacity(0)')],
    ['size', lost('font-size:0')],
    ['size', lost('font-size:1px')],
    ['color', lost('color:#fff')],
    ['color', page('<font color="#fefefe">lost text</font>')],
    ['color', page('<table bgcolor=navy><tr><td><font color="#000080">lost text')],
    ['off-screen', lost('position:absolute;left:-9999px')],
    ['off-screen', lost('text-indent:-9999px')],
    ['clipped', lost('max-height:0;overflow:hidden')],
    ['clipped', lost('position:absolute;clip:rect(1px,1px,1px,1px)')],
    ['clipped', lost('transform:scale(0)')],
    ['element', page('<template><p>lost <b>text</b></p></template>')],
    ['element', page('<noscript>lost text</noscript>')],
    ['details', page('<details><summary>seen</summary>lost <b>text</b></details>')],
    ['comment', page('<!-- lost text -->')],
    ['comment', page('<!-- <p>lost</p><p>text</p><style>x</style> -->')],
    ['outlook-only', page('<!--[if gte mso 9]><table><tr><td>lost</td><td>text</td></tr></table><![endif]-->')],
  ] as const) {
    it(`is listed with its reason: ${why}, ${html.slice(22)}`, () => {
      expect(of(html).hidden).to.deep.equal([{ why, text: 'lost text' }]);
      expect(of(html).visible_text).to.not.include('lost');
    });
  }

  it('excludes text that only Outlook hides', () => {
    const facts = of(page('<p style="mso-hide:all">Hello</p>'));
    expect(facts).to.deep.include({ visible_text: 'Hello', hidden: [{ why: 'not-outlook', text: 'Hello' }] });
  });

  it('has one entry for each hiding element, in order', () => {
    const html = page(
      '<p hidden>a<p hidden>b<div style="visibility:hidden">c<p>d</p><b style="visibility:visible">e</b>f',
    );
    expect(of(html)).to.deep.include({
      visible_text: 'e',
      hidden: [
        { why: 'display', text: 'a' },
        { why: 'display', text: 'b' },
        { why: 'visibility', text: 'c d f' },
      ],
    });
  });

  it('excludes preview padding, and comments for Outlook', () => {
    expect(of(page('<div hidden>&zwnj;&nbsp;&#847;&#8199;&shy;</div><!-- -->')).hidden).to.deep.equal([]);
    const office = '<!--[if mso]><xml><o:PixelsPerInch>96</o:PixelsPerInch></xml><style>p{}</style><![endif]-->';
    expect(of(`${office}<!--[if !mso]><!-->x<!--<![endif]-->`)).to.deep.include({ visible_text: 'x', hidden: [] });
  });

  it('is listed up to limits, and counted beyond them', () => {
    const many = of('<p hidden>x'.repeat(300));
    expect(many.hidden).to.have.length(100);
    expect(many).to.deep.include({ cut: true, counts: { hidden: 300, invisible: 0, links: 0 } });
    const long = of(`<p hidden>${'x '.repeat(20_000)}</p>seen`);
    expect(long.hidden[0]?.text).to.have.length(10_000);
    expect(long).to.include({ cut: true, visible_text: 'seen' });
    const all = of(`<p hidden>${'x'.repeat(9000)}`.repeat(10));
    expect(all.hidden).to.have.length(7);
    expect(all).to.deep.include({ cut: true, counts: { hidden: 10, invisible: 0, links: 0 } });
  });
});

describe('the invisible characters of a message', () => {
  const inText = (text: string) => of(page(text)).invisible.map(({ where: _, ...run }) => run);

  for (const [kind, run, text] of [
    ['tag', tags('Ignore this'), 'Ignore this'],
    ['zero-width', '\u200b\u200c\u2060\ufeff'],
    ['zero-width', '&zwj;&#xfeff;'],
    ['bidi', '\u202e\u2066'],
    ['soft-hyphen', '&shy;'],
    [
      'variation-selector',
      [...Buffer.from('run')].map((byte) => String.fromCodePoint(0xe0100 + byte - 16)).join(''),
      'run',
    ],
    ['variation-selector', '\ufe01'],
    ['filler', '\u3164\u115f'],
    ['blank', '\u2800\u2800'],
    ['operator', '\u2062'],
  ] as const) {
    it(`are found in runs: ${kind}, ${JSON.stringify(run)}`, () => {
      const length = [...run.replace(/&\w+;|&#\w+;/g, '\u200b')].length;
      expect(inText(`\u{1f600}ab${run}c`)).to.deep.equal([{ kind, at: 3, length, ...(text && { text }) }]);
    });
  }

  it('are not reported where scripts and emoji need them', () => {
    for (const text of [
      'می\u200cخواهم', // Persian
      'क्\u200dष क्\u200cष', // Hindi
      'ශ්\u200dරී', // Sinhala
      'ภาษา\u200bไทย', // Thai
      '\u{1f468}\u{1f3fd}\u200d\u{1f469}\u200d\u{1f467} \u2764\ufe0f\u200d\u{1f525} \u{1f3f3}\ufe0f\u200d\u{1f308}',
      '1\ufe0f\u20e3 #\ufe0f\u20e3 \u00a9\ufe0f \u2600\ufe0e',
      `\u{1f3f4}${tags('gbsct')}\u{e007f}`,
      '\u845b\u{e0100}', // a variant of a Han character
      '\u1820\u180b', // Mongolian
    ])
      expect(inText(text), JSON.stringify(text)).to.deep.equal([]);
  });

  it('are reported where nothing needs them', () => {
    expect(inText(`\u{1f3f4}${tags('abcdef')}\u{e007f}`)).to.have.length(1);
    expect(inText('pay\u200dpal')).to.have.length(1);
    expect(inText('1\ufe0f2\ufe0f3')).to.have.length(2);
    expect(inText('\u{1f600}\ufe01\ufe02\ufe03')).to.have.length(1);
  });

  it('are reported in the subject and in the sender name too', () => {
    expect(of('x', 'a\u200bb', 'Bob\u202egnp.exe').invisible).to.deep.equal([
      { kind: 'zero-width', where: 'subject', at: 1, length: 1 },
      { kind: 'bidi', where: 'from_name', at: 3, length: 1 },
    ]);
  });

  it('are listed up to a limit, and counted beyond it', () => {
    const { invisible, counts, cut } = of('a\u200b'.repeat(1000));
    expect(invisible).to.have.length(100);
    expect({ counts, cut }).to.deep.equal({ counts: { hidden: 0, invisible: 1000, links: 0 }, cut: true });
  });
});

describe('the links of a message', () => {
  const linked = (href: string, text: string) => of(page(`<a href="${href}">${text}</a>`)).links;

  for (const [href, text, named, host] of [
    ['https://evil.test/x', 'https://bank.example/login', 'bank.example', 'evil.test'],
    ['https://evil.test', 'Sign in at <b>www.bank.example</b> now', 'www.bank.example', 'evil.test'],
    ['http://evil.test', 'bank.co.uk', 'bank.co.uk', 'evil.test'],
    ['https://bank.example@evil.test/', 'https://bank.example/', 'bank.example', 'evil.test'],
    ['https://bank.example.evil.test/', 'bank.example', 'bank.example', 'bank.example.evil.test'],
    [' ht\ntps:\\\\evil.test', 'bank.example', 'bank.example', 'evil.test'],
    ['//evil.test', 'bank.example', 'bank.example', 'evil.test'],
    ['http://3232235777/', 'http://bank.example', 'bank.example', '192.168.1.1'],
    ['https://evil.test', 'b&#8203;ank.exa&shy;mple', 'bank.example', 'evil.test'],
    ['https://paypal.com', 'раура\u04cf.com', 'xn--80aa0cbo65f.com', 'paypal.com'],
    ['https://alice.github.io', 'bob.github.io', 'bob.github.io', 'alice.github.io'],
    ['mailto:help@evil.test?subject=x', 'help@bank.example', 'bank.example', 'evil.test'],
    ['https://evil.test', 'info@bank.example', 'bank.example', 'evil.test'],
    ['https://evil.test', 'HTTP://BANK.EXAMPLE:8080/?a=b.c', 'bank.example', 'evil.test'],
  ] as const) {
    it(`name another host: ${text} to ${JSON.stringify(href)}`, () => {
      const [found] = linked(href, text);
      expect(found).to.include({ why: 'other-host', text_host: named, host });
    });
  }

  for (const [href, text] of [
    ['https://bank.example/', 'https://bank.example/login'],
    ['https://www.bank.example/', 'bank.example'],
    ['https://shop.bank.co.uk/', 'www.bank.co.uk'],
    ['https://xn--bcher-kva.example/', 'bücher.example'],
    ['https://BANK.example./', 'Bank.Example.'],
    ['https://evil.test', 'Click here'],
    ['https://files.test', 'invoice.zip'],
    ['https://files.test', 'Version 1.2.3.4, e.g. node.js'],
    ['mailto:ann@bank.example', 'ann@bank.example'],
    ['tel:+4912345', 'bank.example'],
    ['javascript:alert(1)', 'bank.example'],
    ['#top', 'bank.example'],
    ['/login', 'bank.example'],
    ['http://[broken', 'bank.example'],
    ['https://bank.example', 'old.test is now bank.example'],
  ] as const) {
    it(`are not listed if they lead where their text says, or nowhere: ${text} to ${href}`, () => {
      expect(linked(href, text)).to.deep.equal([]);
    });
  }

  it('may disguise their host by a user name, or by similar letters', () => {
    expect(linked('https://bank.example:x@evil.test', 'Sign in')).to.deep.equal([
      {
        ...{ why: 'userinfo', text: 'Sign in', text_host: 'bank.example' },
        ...{ href: 'https://bank.example:x@evil.test', host: 'evil.test' },
      },
    ]);
    expect(linked('https://\u0430pple.com', 'Sign in')[0]).to.include({
      why: 'mixed-script',
      host: 'xn--pple-43d.com',
    });
    expect(linked('https://\u043f\u0440\u0438\u043c\u0435\u0440.com', 'x')).to.deep.equal([]);
  });

  it('resolve against the base of the page', () => {
    const { links } = of('<base href="https://evil.test/a/"><a href="b">bank.example</a>');
    expect(links[0]).to.include({ text_host: 'bank.example', host: 'evil.test' });
    const broken = of('<base href="nowhere"><a href="https://evil.test">bank.example</a>');
    expect(broken.links[0]).to.include({ text_host: 'bank.example', host: 'evil.test' });
  });

  it('have their visible text only', () => {
    expect(linked('https://evil.test', '<span hidden>bank.example</span>Go')).to.deep.equal([]);
    expect(linked('https://evil.test', '<span hidden>evil.test</span>bank.example')).to.have.length(1);
  });

  it('are listed up to a limit, and counted beyond it', () => {
    const { links, counts, cut } = of('<a href="https://evil.test">bank.example</a>'.repeat(150));
    expect(links).to.have.length(100);
    expect({ counts, cut }).to.deep.equal({ counts: { hidden: 0, invisible: 0, links: 150 }, cut: true });
  });
});
