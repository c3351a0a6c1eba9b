import { expect } from 'chai';
import { contentIds, withContentIds } from '../../../src/mail/compose/content-ids.ts';
import { ID, sendDraft } from '../../support/compose.ts';
import { createPython } from '../../support/python.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const image = (name: string, text = name) => ({
  name,
  type: 'image/png',
  content: Buffer.from(text).toString('base64'),
});

/** The content of the part that each reference of the HTML names, as Python's email and urllib find it; null: none. */
const referred = createPython(`
import email, re, html, urllib.parse
def answer(raw):
    m = email.message_from_bytes(raw)
    parts = {}
    for p in m.walk():
        if p['Content-ID']:
            assert p['Content-ID'] not in parts, 'two parts with one id'
            parts[p['Content-ID'].strip()] = p.get_payload(decode=True).decode()
    text = [p for p in m.walk() if p.get_content_type() == 'text/html'][0].get_payload(decode=True).decode()
    return [parts.get('<' + urllib.parse.unquote(html.unescape(c)) + '>') for c in re.findall(r'(?i)cid:([^"\\')\\s>,&]*)', text)]
`);

const shown = async (names: readonly string[], html: string) =>
  referred((await sendDraft({ html, images: names.map((name) => image(name)) })).raw);

describe('inline images of a draft', () => {
  it('keep valid names as ids', async () => {
    const names = [
      'logo.png',
      'image001.png@01D9.4F',
      'a(1).png',
      'A+b~c.png',
      ' edge.png ',
      '<bracket.png>',
      'x'.repeat(900),
    ];
    const seen = await sendDraft({
      html: names.map((name) => `<img src="cid:${name}">`).join(''),
      images: names.map((name) => image(name)),
    });
    expect(seen.mail.attachments.map(({ cid }) => cid)).to.deep.equal([
      'logo.png',
      'image001.png@01D9.4F',
      'a(1).png',
      'A+b~c.png',
      'edge.png',
      'bracket.png',
      'x'.repeat(900),
    ]);
  });

  it('are found by a name with a blank, and the reference is rewritten', async () => {
    const seen = await sendDraft({ html: '<img src="cid:my logo.png">', images: [image('my logo.png')] });
    expect(seen.mail.attachments.map(({ cid }) => cid)).to.deep.equal(['mylogo.png']);
    expect(seen.mail.html).to.equal('<img src="cid:mylogo.png">');
  });

  it('are found by any name', async () => {
    const names = [
      'my logo.png',
      'größe.png',
      '日本 語.png',
      '🎉.png',
      '[1] a<b>.png',
      'say "hi".png',
      "it's.png",
      '100%.png',
      'a%20b.png',
      'back\\slash.png',
      'tab\there.png',
      'nbsp\u00a0x.png',
      'two  blanks.png',
      'a&b c.png',
      `${'long '.repeat(300)}.png`,
      'x'.repeat(901),
    ];
    const html = names
      .map((name) => `<img src="cid:${name.replaceAll('&', '&amp;').replaceAll('"', '&quot;')}">`)
      .join('\n');
    expect(await shown(names, html)).to.deep.equal(names);
    const encoded = names
      .map((name) => `<img src='cid:${encodeURIComponent(name).replaceAll("'", '%27')}'>`)
      .join('\n');
    expect(await shown(names, encoded)).to.deep.equal(names);
  });

  it('are found wherever HTML and CSS may refer to them', async () => {
    const name = 'my logo (1).png';
    const forms = [
      '<img src="cid:my logo (1).png">',
      "<img src='CID:my logo (1).png'>",
      '<img src="cid:my%20logo%20(1).png">',
      '<img src="cid:my&#32;logo&#x20;(1).png">',
      '<td background="cid:my logo (1).png">',
      '<img srcset="cid:my logo (1).png 2x">',
      '<td style="background: url(cid:my logo (1).png)">',
      '<td style="background: url(\'cid:my logo (1).png\')">',
      '<td style="background: url(&quot;cid:my logo (1).png&quot;)">',
      '<style>p { background: url("cid:my\\ logo\\ (1).png") }</style>',
      '<style>p { background: url( cid:my\\20 logo\\20\\(1\\).png ) }</style>',
      '<!--[if mso]><v:fill src="cid:my logo (1).png"/><![endif]-->',
      '<img src=cid:mylogo(1).png>',
    ];
    for (const form of forms) {
      const { raw } = await sendDraft({ html: form, images: [image(name)] });
      expect(await referred(raw), form).to.deep.equal([name]);
    }
    expect(await shown(['a b.png', 'c, d.png'], '<img srcset="cid:a b.png 1x, cid:c, d.png 2x">')).to.deep.equal([
      'a b.png',
      'c, d.png',
    ]);
    expect(await shown(['gr\u00f6\u00dfe.png'], '<img src="cid:gro\u0308\u00dfe.png">')).to.deep.equal([
      'gr\u00f6\u00dfe.png',
    ]);
  });

  it('have unique ids, for names that differ by blanks, and for equal names', async () => {
    const names = ['my logo.png', 'mylogo.png', 'my  logo.png'];
    const html = names.map((name) => `<img src="cid:${name}">`).join('');
    expect(await shown(names, html)).to.deep.equal(names);
    const seen = await sendDraft({
      html: '<img src="cid:a.png">',
      images: [image('a.png', 'first'), image('a.png', 'second')],
    });
    expect(seen.mail.attachments.map(({ cid }) => cid)).to.deep.equal(['a.png', `image2.${ID}@mx.postern.test`]);
    expect(await referred(seen.raw)).to.deep.equal(['first']);
  });

  it('leave everything else in the HTML unchanged', () => {
    const html =
      'placid: x <a href="https://x.test/?cid:my logo.png">cid:unknown "cid:other.png" cid:</a><img src="cid:logo.png">';
    expect(withContentIds(html, ['logo.png'], ['logo.png'])).to.equal(html);
    expect(withContentIds(html, [], [])).to.equal(html);
  });

  it('take linear time for any references', () => {
    const names = Array.from({ length: 500 }, (_, at) => `picture ${'x'.repeat(at)} .png`);
    const ids = contentIds(names, (at) => `image${at}@x`);
    for (const piece of [
      'cid:',
      '"cid:',
      '(cid:',
      'cid:picture x',
      "'cid:picture ,x 2x,",
      '(cid:(cid:)',
      'cid:%E2%82',
      'cid:&#32;',
      'cid:\\20 ',
    ])
      expect(withContentIds(piece.repeat(100_000), names, ids).length).to.be.above(1000);
  });

  it('match for random names and references', () => {
    const random = randomFrom(56);
    const pieces = ['a', 'b', ' ', '.png', '%20', '&', '"', "'", '(', ')', ',', 'ö', '\\', '<', '>', '2x'];
    for (let round = 0; round < 500; round++) {
      const names = Array.from({ length: 3 }, () => randomText(random, pieces, 8).toWellFormed()).filter(
        (name) => name.trim() !== '',
      );
      const ids = contentIds(names, (at) => `image${at}@x`);
      const given = ids.filter((id) => id !== undefined);
      expect(new Set(given).size).to.equal(given.length);
      for (const [at, name] of names.entries()) {
        const id = ids[at];
        if (id === undefined || names.indexOf(name) !== at) continue;
        const html = `<img src="cid:${encodeURIComponent(name)}">`;
        const written = /cid:([^"]*)/.exec(withContentIds(html, names, ids))?.[1] ?? '';
        expect(decodeURIComponent(written), JSON.stringify({ names, name })).to.equal(id);
      }
    }
  });
});
