import { expect } from 'chai';
import { readReturnMailbox, readToken } from '../../../src/mail/addresses/return-address.ts';
import { decodeWords } from '../../../src/mail/mime/headers.ts';
import { ACCOUNT, ID, linksOf, OUTGOING, SECRET, sendDraft, valuesOf } from '../../support/compose.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const base64 = (text: string) => Buffer.from(text).toString('base64');
const TRACKED = { trackOpens: true, trackClicks: 'all' } as const;
const textOf = (text: string | false | undefined) => (text || '').replace(/\r\n/g, '\n').trimEnd();

describe('a composed draft', () => {
  it('has its sender, recipient, subject, both texts, a date and an id', async () => {
    const seen = await sendDraft(
      {
        html: '<p>Grüße</p>',
        text: 'Grüße',
        to: [{ email: 'Bob@example.net', name: 'Bob, "the" Büilder', type: 'to' }],
      },
      { outgoing: { fromName: 'Änn', subject: 'Schöne Grüße – 日本' } },
    );
    expect(seen.mail.from?.value).to.deep.equal([{ name: 'Änn', address: 'ann@example.com' }]);
    expect(seen.mail.to).to.deep.include({ value: [{ name: 'Bob, "the" Büilder', address: 'bob@example.net' }] });
    expect(seen.mail).to.deep.include({
      subject: 'Schöne Grüße – 日本',
      messageId: `<${ID}@mx.postern.test>`,
      date: new Date('2026-01-05T12:00:00Z'),
    });
    expect([textOf(seen.mail.html), textOf(seen.mail.text)]).to.deep.equal(['<p>Grüße</p>', 'Grüße']);
    expect(seen.raw.toString('latin1'))
      .to.match(/^[\x09\x0d\x0a\x20-\x7e]*$/)
      .and.not.match(/[^\r]\n|\r[^\n]/);
  });

  it('has the same bytes each time it is composed', async () => {
    const draft = {
      html: '<p>x</p>',
      text: 'x',
      attachments: [{ name: 'a', type: 'text/plain', content: base64('a') }],
    };
    expect((await sendDraft(draft)).raw.equals((await sendDraft(draft)).raw)).to.equal(true);
  });

  it('is one part with one text, and an empty text with none', async () => {
    const [html, text, none] = [
      await sendDraft({ html: '<p>x</p>' }),
      await sendDraft({ text: 'x' }),
      await sendDraft({}),
    ];
    expect(valuesOf(html, 'Content-Type')).to.deep.equal(['text/html; charset=utf-8']);
    expect(valuesOf(text, 'Content-Type')[0]).to.match(/^text\/plain; charset=utf-8/);
    expect(
      [html, text, none].map(({ raw }) =>
        raw
          .toString()
          .slice(raw.indexOf('\r\n\r\n') + 4)
          .trimEnd(),
      ),
    ).to.deep.equal(['<p>x</p>', 'x', '']);
  });

  it('has a text generated from its HTML if requested and missing', async () => {
    const html =
      '<html><head><title>no</title><style>p{}</style></head><body><h1>News &amp; more</h1><p>One\n  two<br>three <a href="https://x.example/?a&amp;b">here</a>now.</p><ul><li>a<li>b</ul><img alt="logo"><script>no()</script></body></html>';
    const seen = await sendDraft({ html }, { outgoing: { autoText: true } });
    expect(textOf(seen.mail.text)).to.equal(
      'News & more\n\nOne two\nthree here <https://x.example/?a&b> now.\n\n* a\n* b\n\nlogo',
    );
    expect(textOf((await sendDraft({ html, text: 'own' }, { outgoing: { autoText: true } })).mail.text)).to.equal(
      'own',
    );
    expect((await sendDraft({ html })).raw.toString()).to.not.contain('text/plain');
  });

  it('shows each recipient only their own address', async () => {
    const to = [
      { email: 'a@example.net', name: 'A', type: 'to' },
      { email: 'bob@example.net', name: 'Bob', type: 'cc' },
      { email: 'c@example.net', name: null, type: 'bcc' },
    ] as const;
    const seen = await sendDraft({ text: 'x', to });
    expect(valuesOf(seen, 'To')).to.deep.equal(['Bob <bob@example.net>']);
    expect(seen.raw.toString()).to.not.match(/a@example\.net|c@example\.net|^(?:cc|bcc):/im);
  });

  it('shows all recipients with preserve_recipients, except those of type bcc', async () => {
    const to = [
      { email: 'a@example.net', name: 'A', type: 'to' },
      { email: 'bob@example.net', name: null, type: 'to' },
      { email: 'd@example.net', name: null, type: 'cc' },
      { email: 'c@example.net', name: null, type: 'bcc' },
    ] as const;
    const seen = await sendDraft({ text: 'x', to }, { outgoing: { preserveRecipients: true } });
    expect([valuesOf(seen, 'To'), valuesOf(seen, 'Cc')]).to.deep.equal([
      ['A <a@example.net>, bob@example.net'],
      ['d@example.net'],
    ]);
    expect(seen.raw.toString()).to.not.match(/c@example\.net|^bcc:/im);
    const hidden = await sendDraft(
      { text: 'x', to: [{ email: 'bob@example.net', name: null, type: 'bcc' }] },
      { outgoing: { preserveRecipients: true } },
    );
    expect(valuesOf(hidden, 'To')[0]).to.match(/^"?undisclosed-recipients"?:;$/);
    expect(hidden.raw.toString()).to.not.contain('bob@example.net');
  });

  it('has its attachments with safe names and the same bytes, and its inline images', async () => {
    const bytes = Buffer.from(Uint8Array.from({ length: 5000 }, (_, n) => n * 7));
    const seen = await sendDraft({
      html: '<img src="cid:logo.png">',
      attachments: [
        { name: '../../etc/Übersicht "1".pdf', type: 'application/pdf', content: bytes.toString('base64') },
        { name: 'a\r\nBcc: x@example.com', type: 'text/plain\r\nX-Evil: 1', content: base64('x') },
        { name: 'mail.eml', type: 'message/rfc822', content: base64('From: x\r\n\r\ny') },
        { name: 'm', type: 'multipart/mixed; boundary=x', content: base64('--x') },
        { name: 'a.txt', type: 'text/plain', content: base64('1\n2') },
        { name: 'a.txt', type: 'text/plain', content: '' },
      ],
      images: [{ name: 'logo.png', type: 'image/png', content: PNG.toString('base64') }],
    });
    const found = seen.mail.attachments.map(({ filename, related = false, cid }) => ({ filename, related, cid }));
    const file = (filename: string) => ({ filename, related: false, cid: undefined });
    expect(found).to.have.deep.members([
      { filename: 'logo.png', related: true, cid: 'logo.png' },
      file('Übersicht "1".pdf'),
      file('aBcc: x@example.com'),
      file('mail.eml'),
      file('m'),
      file('a.txt'),
      file('a (2).txt'),
    ]);
    expect(seen.mail.attachments.map(({ content }) => content)).to.deep.include.members([
      bytes,
      PNG,
      Buffer.from('1\n2'),
      Buffer.from('From: x\r\n\r\ny'),
    ]);
    const types = [...seen.raw.toString().matchAll(/^Content-Type: ([\w/-]+)/gm)].map(([, type]) => type);
    expect(types).to.have.members([
      'multipart/mixed',
      'multipart/related',
      'text/html',
      'image/png',
      'application/pdf',
      'text/plain',
      'text/plain',
      ...Array<string>(3).fill('application/octet-stream'),
    ]);
    expect(seen.raw.toString()).to.not.match(/^(?:Bcc|X-Evil):/m);
  });

  it('keeps header fields of an author, and drops structural and trace fields', async () => {
    const seen = await sendDraft({
      text: 'x',
      headers: [
        ['X-MyApp-ID', '7'],
        ['Reply-To', 'Desk <desk@example.com>'],
        ['In-Reply-To', '<a@b.example>'],
        ['Precedence', 'bulk'],
        ['X-Umlaut', 'Grüße'],
        ['Received', 'by x'],
        ['Return-Path', '<x@example.com>'],
        ['DKIM-Signature', 'v=1'],
        ['ARC-Seal', 'x'],
        ['Content-Type', 'text/html'],
        ['content-transfer-encoding', 'base64'],
        ['MIME-Version', '2.0'],
        ['Bcc', 'x@example.com'],
        ['X-MC-Tags', 'x'],
        ['From', 'x@example.com'],
        ['To', 'x@example.com'],
        ['Subject', 'other'],
        ['Authentication-Results', 'x'],
        ['Resent-To', 'x@example.com'],
        ['X-Break', 'a\r\nBcc: y@example.com'],
        ['X-Bad name', 'x'],
        ['X:Colon', 'x'],
        ['X-New\r\nBcc', 'y@example.com'],
        ['', 'x'],
        ['X-Empty', ' '],
      ],
    });
    const names = seen.fields.map((field) => field.split(':', 1)[0]);
    expect(names).to.have.members([
      'X-MyApp-ID',
      'Reply-To',
      'In-Reply-To',
      'Precedence',
      'X-Umlaut',
      'X-Break',
      'List-Unsubscribe',
      'List-Unsubscribe-Post',
      'From',
      'To',
      'Subject',
      'Message-ID',
      'Date',
      'MIME-Version',
      'Content-Type',
      'Content-Transfer-Encoding',
    ]);
    expect(valuesOf(seen, 'X-Break')).to.deep.equal(['a Bcc: y@example.com']);
    expect(valuesOf(seen, 'Reply-To')).to.deep.equal(['Desk <desk@example.com>']);
    expect(decodeWords(valuesOf(seen, 'X-Umlaut')[0] ?? '')).to.equal('Grüße');
  });

  it('keeps a valid Message-ID and Date', async () => {
    const own = await sendDraft({
      text: 'x',
      headers: [
        ['message-id', '<own@example.com>'],
        ['DATE', 'Tue, 06 Jan 2026 10:00:00 +0100'],
      ],
    });
    expect([valuesOf(own, 'Message-ID'), valuesOf(own, 'Date')]).to.deep.equal([
      ['<own@example.com>'],
      ['Tue, 06 Jan 2026 10:00:00 +0100'],
    ]);
    const wrong = await sendDraft({
      text: 'x',
      headers: [
        ['Message-ID', 'own'],
        ['Date', 'tomorrow'],
      ],
    });
    expect([valuesOf(wrong, 'Message-ID'), valuesOf(wrong, 'Date')]).to.deep.equal([
      [`<${ID}@mx.postern.test>`],
      ['Mon, 05 Jan 2026 12:00:00 +0000'],
    ]);
  });

  it('offers one-click unsubscribe and unsubscribe by mail, with links that name the message', async () => {
    const seen = await sendDraft({ text: 'x' });
    const [, link = '', mailbox = ''] =
      /^<https:\/\/postern\.test\/unsubscribe\/([\w-]+)>, <mailto:([\w-]+)@return\.postern\.test>$/.exec(
        valuesOf(seen, 'List-Unsubscribe')[0] ?? '',
      ) ?? [];
    expect(readToken(SECRET, 'unsub', link)).to.deep.equal({ account: ACCOUNT, message: ID });
    expect(readReturnMailbox(SECRET, mailbox)).to.deep.equal({ kind: 'unsub', account: ACCOUNT, message: ID });
    expect(valuesOf(seen, 'List-Unsubscribe-Post')).to.deep.equal(['List-Unsubscribe=One-Click']);
  });

  it('keeps the unsubscribe fields of a message', async () => {
    const own = await sendDraft({ text: 'x', headers: [['list-unsubscribe', '<https://example.com/u>']] });
    expect([valuesOf(own, 'List-Unsubscribe'), valuesOf(own, 'List-Unsubscribe-Post')]).to.deep.equal([
      ['<https://example.com/u>'],
      [],
    ]);
    const post = await sendDraft({ text: 'x', headers: [['List-Unsubscribe-Post', 'nonsense']] });
    expect(valuesOf(post, 'List-Unsubscribe-Post')).to.deep.equal(['List-Unsubscribe=One-Click']);
  });

  it('has a return path that names the message', async () => {
    const { mailFrom } = await sendDraft({ text: 'x' });
    expect(mailFrom).to.match(/^[a-z0-9-]{1,64}@return\.postern\.test$/);
    expect(readReturnMailbox(SECRET, mailFrom.split('@')[0] ?? '')).to.deep.equal({
      kind: 'bounce',
      account: ACCOUNT,
      message: ID,
    });
  });
});

describe('merge tags in a draft', () => {
  const merged = {
    globalVars: [
      { name: 'City', content: 'Köln' },
      { name: 'name', content: 'friend' },
    ],
    rcptVars: {
      'bob@example.net': [{ name: 'NAME', content: 'Bob' }],
      'carl@example.net': [{ name: 'NAME', content: 'Carl' }],
    },
  };

  it('use global values, overridden by those of the recipient', async () => {
    const draft = { html: '<p>*|NAME|*, *|CITY|**|NONE|*</p>', text: '*|name|* in *|city|* on *|DATE:Y-m-d|*' };
    const subject = { ...OUTGOING, ...merged, subject: 'Dear *|NAME|*', fromName: 'Ann of *|CITY|*' };
    const [bob, dora] = [
      await sendDraft(draft, { outgoing: subject }),
      await sendDraft(draft, { outgoing: subject, recipient: 'dora@example.net' }),
    ];
    expect([
      textOf(bob.mail.html),
      textOf(bob.mail.text),
      bob.mail.subject,
      bob.mail.from?.value[0]?.name,
    ]).to.deep.equal(['<p>Bob, Köln</p>', 'Bob in Köln on 2026-01-05', 'Dear Bob', 'Ann of Köln']);
    expect([textOf(dora.mail.text), dora.mail.subject]).to.deep.equal(['friend in Köln on 2026-01-05', 'Dear friend']);
  });

  it('are found by the address of the recipient in any case', async () => {
    expect(
      (await sendDraft({ text: '*|NAME|*' }, { outgoing: merged, recipient: 'BOB@Example.net' })).mail.text?.trim(),
    ).to.equal('Bob');
  });

  it('stay when nothing is merged', async () => {
    const seen = await sendDraft(
      { html: '*|NAME|* *|UNSUB:http://x.example|*', text: '*|NAME|*' },
      { outgoing: { subject: '*|NAME|*' } },
    );
    expect([textOf(seen.mail.html), textOf(seen.mail.text), seen.mail.subject]).to.deep.equal([
      '*|NAME|* *|UNSUB:http://x.example|*',
      '*|NAME|*',
      '*|NAME|*',
    ]);
  });

  it('have the recipient, the subject and the unsubscribe link', async () => {
    const seen = await sendDraft(
      { text: '*|EMAIL|* *|SUBJECT|* *|UNSUB:https://x.example/bye|* *|UNSUB|*' },
      { outgoing: { ...merged, subject: 'Dear *|NAME|*' } },
    );
    expect(textOf(seen.mail.text)).to.match(
      /^bob@example\.net Dear Bob (https:\/\/postern\.test\/unsubscribe\/[\w-]+) \1$/,
    );
    const own = {
      globalVars: [
        { name: 'email', content: 'own' },
        { name: 'SUBJECT', content: 'mine' },
      ],
    };
    expect(textOf((await sendDraft({ text: '*|EMAIL|* *|SUBJECT|*' }, { outgoing: own })).mail.text)).to.equal(
      'own mine',
    );
  });

  it('add no line to the header', async () => {
    const evil = 'x\r\nBcc: evil@example.com\n\tY: 1\u2028Z: 2\0';
    const seen = await sendDraft(
      { text: '*|EVIL|*', to: [{ email: 'bob@example.net', name: 'Bob\r\nBcc: evil@example.com', type: 'to' }] },
      { outgoing: { globalVars: [{ name: 'EVIL', content: evil }], subject: 'a *|EVIL|* b', fromName: '*|EVIL|*' } },
    );
    expect(seen.mail.subject).to.equal('a x Bcc: evil@example.com Y: 1 Z: 2  b');
    expect(seen.mail.from?.value).to.deep.equal([
      { name: 'x Bcc: evil@example.com Y: 1 Z: 2', address: 'ann@example.com' },
    ]);
    expect(seen.fields.map((field) => field.split(':', 1)[0])).to.not.include.members(['Bcc', 'Y', 'Z']);
    expect(valuesOf(seen, 'Bcc')).to.deep.equal([]);
  });

  it('insert values into the HTML as they are', async () => {
    expect(
      textOf(
        (
          await sendDraft(
            { html: '*|X|*' },
            { outgoing: { globalVars: [{ name: 'X', content: '<b>&amp; *|Y|*</b>' }] } },
          )
        ).mail.html,
      ),
    ).to.equal('<b>&amp; *|Y|*</b>');
  });
});

describe('tracking of a draft', () => {
  const draft = {
    html: '<html><body><a href="https://x.example/?a=1&amp;b=2">x</a> <a href="mailto:a@x.example">m</a></body></html>',
    text: 'See https://x.example/text.',
  };

  it('is off by default', async () => {
    const { mail } = await sendDraft(draft);
    expect([textOf(mail.html), textOf(mail.text)]).to.deep.equal([draft.html, draft.text]);
  });

  it('adds a pixel at the end of the body', async () => {
    const html = textOf((await sendDraft(draft, { outgoing: { trackOpens: true } })).mail.html);
    const [, token = ''] =
      /<img src="https:\/\/postern\.test\/track\/open\/([\w-]+)" height="1" width="1" alt=""><\/body><\/html>$/.exec(
        html,
      ) ?? [];
    expect(readToken(SECRET, 'open', token)).to.deep.equal({ account: ACCOUNT, message: ID });
    expect(html.replace(/<img[^>]*>/, '')).to.equal(draft.html);
  });

  it('makes tracked links in the requested parts, each signed', async () => {
    const seen = async (trackClicks: 'html' | 'text' | 'all') => {
      const { mail } = await sendDraft(draft, { outgoing: { trackClicks } });
      return [linksOf(textOf(mail.html)).clicks, linksOf(textOf(mail.text)).clicks];
    };
    expect(await seen('html')).to.deep.equal([['https://x.example/?a=1&b=2'], []]);
    expect(await seen('text')).to.deep.equal([[], ['https://x.example/text']]);
    expect(await seen('all')).to.deep.equal([['https://x.example/?a=1&b=2'], ['https://x.example/text']]);
    const html = textOf((await sendDraft(draft, { outgoing: TRACKED })).mail.html);
    const [, token = ''] = /track\/click\/([\w-]+)\?u=https%3A%2F%2Fx\.example%2F%3Fa%3D1%26b%3D2"/.exec(html) ?? [];
    expect(readToken(SECRET, 'click', token, 'https://x.example/?a=1&b=2')).to.deep.equal({
      account: ACCOUNT,
      message: ID,
    });
  });

  it('leaves our own links alone', async () => {
    const html =
      '<a href="*|UNSUB:https://x.example|*">u</a><a href="https://postern.test/track/click/x?u=y">c</a><a href="https://postern.test/other">o</a>';
    const seen = linksOf(
      textOf((await sendDraft({ html }, { outgoing: { trackClicks: 'all', globalVars: [] } })).mail.html),
    );
    expect(seen).to.deep.equal({ clicks: ['y', 'https://postern.test/other'], opens: 0, unsubs: 1 });
  });

  it('leaves invalid URLs alone', async () => {
    const html = `<a href="http://[x">x</a><a href="http://x.example/${'a'.repeat(9000)}">y</a>`;
    expect(textOf((await sendDraft({ html }, { outgoing: { trackClicks: 'all' } })).mail.html)).to.equal(html);
  });

  it('signs each link for any URL', async () => {
    const random = randomFrom(3);
    const pieces = [
      '?',
      '#',
      '&',
      '&amp;',
      '=',
      '+',
      '%',
      '%20',
      '%zz',
      ' ',
      '/',
      "'",
      '(',
      ')',
      '"',
      'é',
      '日',
      '\u{1f517}',
      '*',
      '!',
      '~',
      'a',
      '&#1;',
      '&#xd800;',
      ';',
      '\\',
    ];
    const html = Array.from(
      { length: 2000 },
      () => `<a href='http://x.example/${randomText(random, pieces, 20).replaceAll("'", '')}'>x</a>`,
    ).join('\n');
    const seen = textOf((await sendDraft({ html }, { outgoing: { trackClicks: 'html' } })).mail.html);
    const links = [...seen.matchAll(/\/track\/click\/([\w-]+)\?([^']*)'/g)];
    expect(links.length).to.be.greaterThan(500);
    for (const [, token = '', query = ''] of links) {
      const urls = new URLSearchParams(query).getAll('u');
      expect(urls).to.have.length(1);
      expect(readToken(SECRET, 'click', token, urls[0]), query).to.deep.equal({ account: ACCOUNT, message: ID });
      expect(urls[0]).to.match(/^http:\/\/x\.example\/\P{Cc}*$/u);
    }
  });

  it('includes links of values and of the text generated from the HTML', async () => {
    const { mail } = await sendDraft(
      { html: '<a href="*|LINK|*">x</a>' },
      {
        outgoing: { ...TRACKED, autoText: true, globalVars: [{ name: 'LINK', content: "https://x.example/it's(1)" }] },
      },
    );
    expect([linksOf(textOf(mail.html)).clicks, linksOf(textOf(mail.text)).clicks]).to.deep.equal([
      ["https://x.example/it's(1)"],
      ["https://x.example/it's(1)"],
    ]);
  });
});
