import { expect } from 'chai';
import { MANDRILL } from '../../../src/inbound/formats.ts';
import { bytesOf, crlf, eventOf, multipart, renderJob } from '../../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';

const FROM = ['From: a@example.com'];
const html = (text: string) => ['Content-Type: text/html; charset=utf-8', '', text];
const png = (...header: readonly string[]) => ['Content-Type: image/png', ...header, '', 'PNG'];
const ATTACHED = 'Content-Disposition: attachment; filename=logo.png';

describe('inline images of the HTML', () => {
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer());
  });
  after(() => renderer.stop());

  async function filesOf(raw: Buffer) {
    const { msg } = await eventOf((await renderer.render(renderJob(raw))).body);
    const style = { ...MANDRILL, format: 'json' as const };
    const { body } = await renderer.render(renderJob(raw, { style }));
    const { attachments } = JSON.parse((await bytesOf(body)).toString());
    expect(attachments.length, 'nothing is there twice').to.equal(
      Object.keys(msg.images ?? {}).length + Object.keys(msg.attachments ?? {}).length,
    );
    return { images: Object.keys(msg.images ?? {}), attachments: Object.keys(msg.attachments ?? {}) };
  }

  for (const [name, raw, images] of [
    [
      'stand in multipart/related under their Content-ID, whatever their disposition is (RFC 2387 section 4)',
      multipart('related', FROM, html('<img src="cid:logo@x">'), png('Content-ID: <logo@x>', ATTACHED)),
      ['logo@x'],
    ],
    [
      'stand there also if the HTML does not refer to them',
      multipart('related', FROM, html('<p>'), png('Content-ID: <logo@x>', ATTACHED)),
      ['logo@x'],
    ],
    ...(
      [
        ['by their id', '<img src="cid:logo@x">', '<logo@x>'],
        ['in other case', '<IMG SRC="CID:LOGO@X">', '<logo@x>'],
        ['encoded for URLs', '<img src="cid:logo%40x%2B">', '<logo@x+>'],
        ['encoded for HTML', '<img src="cid:a&amp;b&#64;x">', '<a&b@x>'],
        ['with blanks', '<img src=" cid: my%20logo@x ">', ' < my logo@x > '],
        ['without quotes', '<img src=cid:logo@x width=9>', '<logo@x>'],
        ['in a style', '<p style="background: url(cid:logo@x)">', '<logo@x>'],
        ['by an id without brackets', '<img src="cid:logo@x">', 'logo@x'],
        ['by an id with brackets of its own', '<img src="cid:logo(1).png">', '<logo(1).png>'],
        ['far down in a large text', `${'<p>text</p>'.repeat(60_000)}<img src="cid:logo@x">`, '<logo@x>'],
      ] as const
    ).map(
      ([how, text, id]) =>
        [
          `are those in multipart/mixed to which the HTML refers ${how}`,
          multipart('mixed', FROM, html(text), png(`Content-ID: ${id}`, ATTACHED)),
          [id.replace(/[<>]/g, '').trim()],
        ] as const,
    ),
    [
      'are those to whose Content-Location the HTML refers (RFC 2557)',
      multipart(
        'related',
        FROM,
        html('<img src="https://x.example/a.png">'),
        png('Content-Location: https://x.example/a.png'),
      ),
      ['a.png'],
    ],
    [
      'are those whose type only their name tells',
      multipart('related', FROM, html('<img src="cid:l">'), [
        ...[
          'Content-Type: application/octet-stream; name=l.JPG',
          'Content-ID: <l>',
          ATTACHED.replace('logo.png', 'l.JPG'),
        ],
        ...['', 'JPG'],
      ]),
      ['l'],
    ],
  ] as const) {
    it(name, async () => {
      expect(await filesOf(raw)).to.deep.equal({ images, attachments: [] });
    });
  }

  for (const [name, raw, attachments] of [
    [
      'attached to a message whose HTML does not refer to them',
      multipart('mixed', FROM, html('<p>cid:other'), png('Content-ID: <f_1>', ATTACHED)),
      ['logo.png'],
    ],
    [
      'attached to a message without HTML',
      multipart('related', FROM, ['', 'cid:f_1'], png('Content-ID: <f_1>', ATTACHED)),
      ['logo.png'],
    ],
    ['in multipart/related without an id', multipart('related', FROM, html('<p>'), png(ATTACHED)), ['logo.png']],
    [
      'that are none',
      multipart('related', FROM, html('<a href="cid:d">'), [
        ...[
          'Content-Type: application/pdf; name=d.pdf',
          'Content-ID: <d>',
          'Content-Disposition: attachment',
          '',
          'PDF',
        ],
      ]),
      ['d.pdf'],
    ],
    ['without anything around them', crlf(...FROM, ...png('Content-ID: <f_1>', ATTACHED)), ['logo.png']],
  ] as const) {
    it(`are not those ${name}`, async () => {
      expect(await filesOf(raw)).to.deep.equal({ images: [], attachments });
    });
  }

  it('are found in linear time', async () => {
    const pictures = Array.from({ length: 900 }, (_, i) => png(`Content-ID: <p${i}@x>`, ATTACHED));
    for (const piece of ['cid:', 'src=', '<img src="cid:p0@x">', 'url(', '&#x', '%41', 'src=   '])
      expect(
        (await filesOf(multipart('mixed', FROM, html(piece.repeat(100_000)), ...pictures))).images.length,
      ).to.be.below(2);
  });
});
