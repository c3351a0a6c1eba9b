import { expect } from 'chai';
import { type Part, scanStructure } from '../../../src/mail/mime/structure.ts';
import { ID, linksOf, type Seen, sendDocument } from '../../support/compose.ts';

const HEAD = [
  'From: Ann <ann@example.com>',
  'To: bob@example.net',
  'Subject: Hello',
  'Date: Tue, 06 Jan 2026 10:00:00 +0100',
  'Message-ID: <own@example.com>',
  'List-Unsubscribe: <https://example.com/u>',
  'MIME-Version: 1.0',
];
const HTML = '<p>Hi *|NAME|* &amp; Co</p><a href="https://x.example/">x</a>';
const ASKED = { autoText: true, globalVars: [{ name: 'name', content: 'Bøb' }] } as const;
const send = (lines: readonly string[], outgoing: object = ASKED) => sendDocument([...HEAD, ...lines], { outgoing });

/** The types of a message's parts, as they are nested. */
function shapeOf({ raw }: Seen): string {
  const scan = scanStructure(raw);
  if (scan.breach !== undefined) throw new Error(scan.breach);
  const shape = ({ type, children }: Part): string =>
    children.length === 0 ? type.value : `${type.value}(${children.map(shape).join(' ')})`;
  return shape(scan.root);
}

describe('the generated text of an HTML document', () => {
  it('has the same content, merged and with its links', async () => {
    const seen = await send(
      ['Content-Type: text/html; charset=iso-8859-1', 'Content-Transfer-Encoding: 7bit', '', HTML],
      { ...ASKED, trackOpens: true, trackClicks: 'all' },
    );
    expect(shapeOf(seen)).to.equal('multipart/alternative(text/plain text/html)');
    expect(seen.mail.text).to.match(/^Hi Bøb & Co\s+x <https:\/\/postern\.test\/track\/click\/[^>]+>\s*$/);
    expect(linksOf(seen.mail.text ?? '')).to.deep.equal({ clicks: ['https://x.example/'], opens: 0, unsubs: 0 });
    expect(seen.mail.html).to.contain('<p>Hi Bøb &amp; Co</p>');
    expect(linksOf(seen.mail.html || '')).to.deep.equal({ clicks: ['https://x.example/'], opens: 1, unsubs: 0 });
    expect(seen.fields.filter((field) => /^(?:content-|mime-version)/i.test(field))).to.deep.equal([
      'MIME-Version: 1.0',
      `Content-Type: multipart/alternative; boundary="=_${ID}-text"`,
    ]);
  });

  it('leaves the HTML byte for byte without other options', async () => {
    const body = '<p>caf=E9</p>  <br>';
    const seen = await send(
      ['Content-Type: text/html; charset=iso-8859-1', 'Content-Transfer-Encoding: quoted-printable', '', body],
      { autoText: true },
    );
    expect(seen.raw.toString('latin1')).to.contain(
      `Content-Type: text/html; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n${body}\r\n`,
    );
    expect(seen.mail.text?.trim()).to.equal('café');
  });

  it('is added only if requested, missing and not empty', async () => {
    const html = ['Content-Type: text/html', '', HTML];
    for (const [lines, outgoing] of [
      [html, { ...ASKED, autoText: false }],
      [['Content-Type: text/plain', '', 'x'], ASKED],
      [['Content-Type: text/html', '', '<img src="x">'], ASKED],
      [
        [
          'Content-Type: multipart/mixed; boundary=b',
          '',
          '--b',
          ...html,
          '--b',
          'Content-Type: text/plain',
          '',
          'x',
          '--b--',
        ],
        ASKED,
      ],
    ] as const) {
      const seen = await send(lines, outgoing);
      expect(shapeOf(seen)).to.not.contain('alternative');
    }
  });

  it('is placed beside the HTML, wherever that is, and files do not count as text', async () => {
    const html = ['Content-Type: text/html; charset=utf-8', '', HTML];
    const image = ['Content-Type: image/png', 'Content-ID: <i>', 'Content-Transfer-Encoding: base64', '', 'AAEC'];
    const file = ['Content-Type: text/plain', 'Content-Disposition: attachment; filename=a.txt', '', 'file *|NAME|*'];
    const related = ['Content-Type: multipart/related; boundary=r', '', '--r', ...html, '--r', ...image, '--r--'];
    const seen = await send([
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b',
      ...related,
      '--b',
      ...file,
      '--b--',
    ]);
    expect(shapeOf(seen)).to.equal(
      'multipart/mixed(multipart/related(multipart/alternative(text/plain text/html) image/png) text/plain)',
    );
    expect(seen.mail.text).to.contain('Hi Bøb & Co');
    expect(seen.mail.attachments.map(({ content }) => content.toString('latin1'))).to.include('file *|NAME|*');
  });

  it('is not added to a signed document', async () => {
    const signed = [
      'Content-Type: multipart/signed; boundary=s',
      '',
      '--s',
      'Content-Type: text/html',
      '',
      HTML,
      '--s',
      'Content-Type: application/pkcs7-signature',
      '',
      'x',
      '--s--',
    ];
    const seen = await send(signed);
    expect(seen.raw.toString()).to.contain(signed.join('\r\n'));
  });

  it('is merged once with handlebars: values are not templates', async () => {
    const seen = await send(['Content-Type: text/html', '', '<p>{{v}}</p>{{#if v}}<b>yes</b>{{/if}}'], {
      autoText: true,
      mergeLanguage: 'handlebars',
      globalVars: [{ name: 'v', content: '{{v}} <i>' }],
    });
    expect(seen.mail.text?.trim()).to.equal('{{v}} <i>\n\nyes');
    expect(seen.mail.html).to.contain('<p>{{v}} &lt;i&gt;</p><b>yes</b>');
  });
});
