import { expect } from 'chai';
import { readToken } from '../../../src/mail/addresses/return-address.ts';
import type { Extras, Outgoing } from '../../../src/mail/outgoing.ts';
import { ACCOUNT, ID, linksOf, SECRET, type Seen, sendDocument, sendDraft, valuesOf } from '../../support/compose.ts';

const HEAD = [
  'From: Ann <ann@example.com>',
  'To: bob@example.net',
  'Subject: Hello',
  'Date: Tue, 06 Jan 2026 10:00:00 +0100',
  'Message-ID: <own@example.com>',
  'List-Unsubscribe: <https://example.com/u>',
];
const UTM = 'utm_source=transactional&utm_medium=email&utm_campaign=ann%40example.com';
const textOf = (text: string | false | undefined) => (text || '').replace(/\r\n/g, '\n').trimEnd();
const asked = (extras: Extras, more: Partial<Outgoing> = {}) => ({ outgoing: { extras, ...more } });
/** The same content as a draft and as a document. */
async function both(html: string, changes: ReturnType<typeof asked>): Promise<readonly Seen[]> {
  return [
    await sendDraft({ html }, changes),
    await sendDocument([...HEAD, 'MIME-Version: 1.0', 'Content-Type: text/html; charset=utf-8', '', html], changes),
  ];
}

describe('rare options of messages', () => {
  it('do nothing by default', async () => {
    const html = '<style>p{a:b}</style><p><a href="https://shop.example/?a=1">x</a></p>';
    for (const seen of await both(html, asked({}))) expect(textOf(seen.mail.html)).to.equal(html);
  });

  describe('inline_css', () => {
    it('inlines style sheets, after merging and before tracking', async () => {
      const html = '<style>p{color:*|COLOUR|*}</style><p><a href="https://shop.example/">x</a></p>';
      for (const seen of await both(
        html,
        asked({ inlineCss: true }, { globalVars: [{ name: 'colour', content: 'red' }], trackClicks: 'all' }),
      )) {
        expect(seen.mail.html).to.contain(
          '<style>p{color:red}</style><p style="color: red;"><a href="https://postern.test/track/click/',
        );
        expect(linksOf(String(seen.mail.html)).clicks).to.deep.equal(['https://shop.example/']);
      }
    });

    it('affects HTML only', async () => {
      const text = '<style>p{a:b}</style><p>';
      expect(textOf((await sendDraft({ text }, asked({ inlineCss: true }))).mail.text)).to.equal(text);
      expect(textOf((await sendDocument([...HEAD, '', text], asked({ inlineCss: true }))).mail.text)).to.equal(text);
    });
  });

  describe('google_analytics_domains', () => {
    it('adds parameters for the listed sites, with and without click tracking, in all texts', async () => {
      const draft = {
        html: '<a href="https://shop.example/?a=1&amp;b#c">x</a><a href="https://else.example/">y</a><a mc:disable-tracking href="https://shop.example/">z</a>',
        text: 'https://shop.example/ https://else.example/',
      };
      const analytics = { domains: ['shop.example'], campaign: null };
      const plain = await sendDraft(draft, asked({ analytics }));
      expect(textOf(plain.mail.html)).to.equal(
        `<a href="https://shop.example/?a=1&amp;b&amp;${UTM.replaceAll('&', '&amp;')}#c">x</a><a href="https://else.example/">y</a><a mc:disable-tracking href="https://shop.example/">z</a>`,
      );
      expect(textOf(plain.mail.text)).to.equal(`https://shop.example/?${UTM} https://else.example/`);
      const tracked = await sendDraft(
        draft,
        asked({ analytics: { ...analytics, campaign: 'spring' } }, { trackClicks: 'html' }),
      );
      const spring = UTM.replace('ann%40example.com', 'spring');
      expect(linksOf(String(tracked.mail.html)).clicks).to.deep.equal([
        `https://shop.example/?a=1&b&${spring}#c`,
        'https://else.example/',
      ]);
      expect(textOf(tracked.mail.text)).to.equal(`https://shop.example/?${spring} https://else.example/`);
    });

    it('never changes our own links', async () => {
      const seen = await sendDraft(
        { text: '*|UNSUB|*' },
        asked({ analytics: { domains: ['postern.test'], campaign: null } }, { globalVars: [] }),
      );
      expect(seen.mail.text).to.match(/^https:\/\/postern\.test\/unsubscribe\/[\w-]+\s*$/);
    });
  });

  it('url_strip_qs marks links as reported without their query, with the same target', async () => {
    const url = 'https://shop.example/a?b=1#c';
    for (const stripQuery of [true, false]) {
      const seen = await sendDraft({ html: `<a href="${url}">x</a>` }, asked({ stripQuery }, { trackClicks: 'all' }));
      expect(linksOf(String(seen.mail.html)).clicks).to.deep.equal([url]);
      const token = /click\/([\w-]+)/.exec(String(seen.mail.html))?.[1] ?? '';
      const named = [readToken(SECRET, 'bare-click', token, url), readToken(SECRET, 'click', token, url)];
      expect(named).to.deep.equal(
        stripQuery ? [{ account: ACCOUNT, message: ID }, undefined] : [undefined, { account: ACCOUNT, message: ID }],
      );
    }
  });

  it('a tracking domain is the host of links, and neither it nor ours is tracked again', async () => {
    const text =
      'https://shop.example/ https://postern.test/track/click/x https://clicks.shop.example/unsubscribe/x *|UNSUB|*';
    const settings = {
      publicUrl: 'https://clicks.shop.example',
      ownUrl: 'https://postern.test',
      returnDomain: 'bounces.shop.example',
    };
    const seen = await sendDraft(
      { text, html: '<p>' },
      { settings, outgoing: { trackOpens: true, trackClicks: 'all', globalVars: [] } },
    );
    expect(textOf(seen.mail.text)).to.match(
      /^https:\/\/clicks\.shop\.example\/track\/click\/\S+ https:\/\/postern\.test\/track\/click\/x https:\/\/clicks\.shop\.example\/unsubscribe\/x https:\/\/clicks\.shop\.example\/unsubscribe\/\S+$/,
    );
    expect(seen.mail.html).to.contain('<img src="https://clicks.shop.example/track/open/');
    expect(valuesOf(seen, 'List-Unsubscribe')[0]).to.match(
      /^<https:\/\/clicks\.shop\.example\/unsubscribe\/[\w-]+>, <mailto:unsub-[\w-]+@bounces\.shop\.example>$/,
    );
    expect(seen.mailFrom).to.match(/@bounces\.shop\.example$/);
  });

  describe('auto_html', () => {
    const AUTO = asked(
      { autoHtml: true },
      { trackOpens: true, trackClicks: 'html', globalVars: [{ name: 'name', content: '<Bøb>' }] },
    );
    const TEXT = 'Dear *|NAME|*,\n\nsee https://shop.example/';
    const shows = ({ mail }: Seen) => {
      expect(textOf(mail.text)).to.equal('Dear <Bøb>,\n\nsee https://shop.example/');
      expect(textOf(mail.html)).to.match(
        /<p>Dear &lt;Bøb&gt;,<\/p>\n<p>see <a href="https:\/\/postern\.test\/track\/click\/[^"]+">https:\/\/shop\.example\/<\/a><\/p>\n<img [^>]+><\/body>/,
      );
    };

    it('makes the HTML of a draft with text only', async () => {
      shows(await sendDraft({ text: TEXT }, AUTO));
      expect((await sendDraft({ text: TEXT, html: '<p>own' }, AUTO)).mail.html).to.match(/^<p>own/);
      for (const text of ['', ' \n']) expect((await sendDraft({ text }, AUTO)).mail.html).to.equal(false);
    });

    it('makes a text document an alternative, in any encoding', async () => {
      for (const head of [
        [],
        ['Content-Type: text/plain; charset=utf-8', 'Content-Transfer-Encoding: 8bit', 'MIME-Version: 1.0'],
        [
          'mime-version: 1.0',
          'Content-Transfer-Encoding: quoted-printable',
          'Content-Disposition: inline',
          'Content-Type: text/plain;',
          '\tcharset=us-ascii',
        ],
      ]) {
        const seen = await sendDocument([...head, ...HEAD, '', ...TEXT.split('\n')], AUTO);
        shows(seen);
        expect(valuesOf(seen, 'Content-Type')).to.deep.equal([`multipart/alternative; boundary="=_${ID}-html"`]);
        expect(valuesOf(seen, 'MIME-Version')).to.deep.equal(['1.0']);
        expect([
          ...valuesOf(seen, 'Content-Disposition'),
          ...valuesOf(seen, 'Content-Transfer-Encoding'),
        ]).to.deep.equal([]);
      }
    });

    it('moves the fields of the text to its part', async () => {
      const seen = await sendDocument(
        [
          ...HEAD,
          'MIME-Version: 1.0',
          'Content-Type: text/plain; charset=utf-8',
          'Content-Transfer-Encoding: 8bit',
          '',
          'Bøb',
        ],
        asked({ autoHtml: true }),
      );
      expect(valuesOf(seen, 'Content-Transfer-Encoding')).to.deep.equal(['8bit']);
      expect([textOf(seen.mail.text), textOf(seen.mail.html)]).to.deep.equal([
        'Bøb',
        '<!DOCTYPE html>\n<html>\n<head><meta charset="utf-8"></head>\n<body>\n<p>Bøb</p>\n</body>\n</html>',
      ]);
    });

    it('adds the HTML beside the text, and leaves the files', async () => {
      const mixed = [
        'MIME-Version: 1.0',
        'Content-Type: multipart/mixed; boundary=b',
        '',
        '--b',
        '',
        ...TEXT.split('\n'),
        '--b',
        'Content-Type: text/html',
        'Content-Disposition: attachment; filename=a.html',
        '',
        '<p>file',
        '--b--',
      ];
      const seen = await sendDocument([...HEAD, ...mixed], AUTO);
      shows(seen);
      expect(seen.mail.attachments.map(({ filename, content }) => [filename, content.toString()])).to.deep.equal([
        ['a.html', '<p>file'],
      ]);
    });

    for (const [name, lines] of [
      [
        'has HTML',
        [
          'Content-Type: multipart/alternative; boundary=b',
          '',
          '--b',
          '',
          'x',
          '--b',
          'Content-Type: text/html',
          '',
          '<p>own',
          '--b--',
        ],
      ],
      [
        'is signed',
        [
          'Content-Type: multipart/signed; boundary=b',
          '',
          '--b',
          '',
          'x',
          '--b',
          'Content-Type: application/pkcs7-signature',
          '',
          'AAAA',
          '--b--',
        ],
      ],
      ['is a file', ['Content-Type: text/plain', 'Content-Disposition: attachment', '', 'x']],
      ['cannot be read', ['Content-Type: text/plain; charset=no-such', '', 'x']],
      ['says nothing', ['Content-Type: text/plain', '', ' ']],
    ] as const) {
      it(`leaves a document that ${name} byte for byte`, async () => {
        const document = [...HEAD, 'MIME-Version: 1.0', ...lines];
        expect((await sendDocument(document, asked({ autoHtml: true }))).raw.toString()).to.equal(
          document.map((line) => `${line}\r\n`).join(''),
        );
      });
    }
  });
});
