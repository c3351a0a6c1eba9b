import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { Webhook } from 'standardwebhooks';
import { MANDRILL } from '../../../src/inbound/formats.ts';
import { mandrillSignature, toSigningSecret } from '../../../src/webhooks/signing.ts';
import type { Mail, RenderJob } from '../../../src/webhooks/types.ts';
import {
  bytesOf,
  crlf,
  eventOf,
  formValue,
  KEY,
  multipart,
  renderJob,
  spooled,
  TRACE,
  VERDICTS,
} from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';

/** The keys of `msg` behind `headers` and the texts, in their order. */
const REST = [
  'attachments',
  'images',
  'from_email',
  'from_name',
  'to',
  'cc',
  'subject',
  'spam_report',
  'dkim',
  'spf',
  'dmarc',
  'arc',
  'email',
  'tags',
  'sender',
  'template',
];
/** Ours, behind those that the format has. */
const OURS = [
  'id',
  'envelope',
  'sender_auth',
  'reply_text',
  'quoted_text',
  'reply_data',
  'captures',
  'automated',
  'thread',
];

describe('the payload of an inbound message', () => {
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer());
  });
  after(() => renderer.stop());

  const render = (raw: Buffer, change?: Partial<RenderJob & Mail>) => renderer.render(renderJob(raw, change));
  const msgOf = async (raw: Buffer, change?: Partial<RenderJob & Mail>) =>
    (await eventOf((await render(raw, change)).body)).msg;
  const sample = (name: string) => msgOf(CORPUS[name]?.bytes ?? Buffer.alloc(0));

  it('has the keys of the captured posts, in their order', async () => {
    const { body } = await render(
      multipart(
        'alternative',
        ['From: Jane <jane@example.com>', 'To: in@example.net', 'Cc: c@example.net', 'Subject: Hi'],
        ['', 'text'],
        ['Content-Type: text/html', '', '<p>'],
        ['Content-Type: application/pdf; name=a.pdf', '', 'x'],
        ['Content-Type: image/png', 'Content-ID: <i>', '', 'x'],
      ),
    );
    const event = await eventOf(body);
    expect(Object.keys(event)).to.deep.equal(['event', 'ts', '_id', 'msg']);
    expect(Object.keys(event.msg)).to.deep.equal([
      'raw_msg',
      'headers',
      'text',
      'text_flowed',
      'html',
      ...REST,
      ...OURS,
    ]);
  });

  it('has exactly the fields of docs/payload.md, in its order', async () => {
    const page = readFileSync('docs/payload.md', 'utf8').split('## Fields')[1]?.split('\n## ')[0] ?? '';
    const rows = [...page.matchAll(/^\| (`[^|]*) \|/gm)].map(([, names = '']) => names);
    const documented = rows.flatMap((names) => [...names.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name));
    const scan = { spam: 'ham', virus: 'unknown', name: null, score: null, by: [], reason: null, rules: [] } as const;
    const head = ['From: jane@example.com', 'Subject: Hi'];
    const texts = multipart('alternative', head, ['', 'text'], ['Content-Type: text/html', '', '<p>']);
    const quote = crlf(
      ...head,
      '',
      'Yes.',
      '',
      'On 5 Jan 2026, at 12:00, Bob wrote:',
      ...Array(9000).fill('> 12345678'),
    );
    const messages = [
      await msgOf(texts, { message: spooled({ scan }), style: { ...MANDRILL, facts: true } }),
      await msgOf(quote),
      await msgOf(Buffer.from('From: a@b.test\r\n\r\n\xe4', 'latin1'), { answers: null }),
      await msgOf(crlf(...head, ...Array(1100).fill('X: y'), '', 'x')),
    ];
    for (const msg of messages)
      expect(Object.keys(msg)).to.deep.equal(documented.filter((name) => Object.hasOwn(msg, name)));
    const seen = new Set(messages.flatMap((msg) => Object.keys(msg)));
    expect(documented.filter((name) => !seen.has(name))).to.deep.equal([]);
  });

  it('has the sender, time and verdicts', async () => {
    const event = await eventOf(
      (
        await render(
          crlf('From: "Doe, Jane" <jane@example.com>', 'To: A <a@example.net>, b@example.net', 'Subject: Hi', '', 'x'),
        )
      ).body,
    );
    expect(event).to.include({ event: 'inbound', ts: Date.UTC(2026, 0, 5, 12, 0, 0) / 1000 });
    const { from_email, from_name, to, subject, email, tags, sender, template, dkim, spf, dmarc, arc } = event.msg;
    expect({ from_email, from_name, to, subject, email, tags, sender, template }).to.deep.equal({
      from_email: 'jane@example.com',
      from_name: 'Doe, Jane',
      to: [
        ['a@example.net', 'A'],
        ['b@example.net', null],
      ],
      subject: 'Hi',
      email: 'in@example.net',
      tags: [],
      sender: null,
      template: null,
    });
    expect({ dkim, spf, dmarc, arc }).to.deep.equal(VERDICTS);
  });

  it('has the client, and whether the sender is authenticated', async () => {
    const message = crlf('From: Jane <jane@example.com>', 'Subject: Hi', '', 'x');
    const evidence = {
      spf: 'bounce.example.com',
      dkim: [{ domain: 'example.com', selector: 's1', result: 'pass', aligned: true }],
      arc: { sealers: [], trusted: false },
    };
    const { id, envelope, sender_auth } = await msgOf(message, {
      message: spooled({ verdicts: { ...VERDICTS, evidence } }),
    });
    expect({ id, envelope, sender_auth }).to.deep.equal({
      id: 'm1',
      envelope: {
        from: 'bounce@example.com',
        to: 'in@example.net',
        helo: 'mail.example.com',
        ip: '192.0.2.1',
        tls: 'TLSv1.3',
      },
      sender_auth: {
        authenticated: true,
        domain: 'example.com',
        by: 'dmarc',
        dmarc: { result: 'pass', policy: 'none', domain: 'example.com', aligned: true },
        spf: { result: 'pass', domain: 'bounce.example.com' },
        dkim: evidence.dkim,
        arc: { result: 'none', sealers: [], trusted: false },
      },
    });
  });

  it('authenticates an author by DMARC, or by a trusted sealer if DMARC fails', async () => {
    const authOf = async (result: string, trusted: boolean, ...from: string[]) => {
      const evidence = { spf: null, dkim: [], arc: { sealers: ['fwd.example'], trusted } };
      const verdicts = { ...VERDICTS, dmarc: { ...VERDICTS.dmarc, result }, evidence };
      const { sender_auth } = await msgOf(crlf(...from, 'Subject: Hi', '', 'x'), { message: spooled({ verdicts }) });
      return [sender_auth.authenticated, sender_auth.by, sender_auth.domain];
    };
    const jane = 'From: jane@example.com';
    expect(await authOf('pass', false, jane)).to.deep.equal([true, 'dmarc', 'example.com']);
    expect(await authOf('fail', true, jane)).to.deep.equal([true, 'arc', 'example.com']);
    expect(await authOf('fail', false, jane)).to.deep.equal([false, null, 'example.com']);
    for (const result of ['none', 'temperror', 'permerror'])
      expect(await authOf(result, true, jane), result).to.deep.equal([false, null, 'example.com']);
    expect(await authOf('pass', true, jane, 'From: boss@victim.example')).to.deep.equal([false, null, null]);
    expect(await authOf('pass', true, 'To: x@example.net')).to.deep.equal([false, null, null]);
  });

  it('marks automated mail at the end, also for unparsed mail and per recipient', async () => {
    const { envelope } = spooled();
    const scan = { spam: 'ham', virus: 'unknown', name: null, score: null, by: [], reason: null, rules: [] } as const;
    const header = ['From: a@b.test', 'Auto-Submitted: auto-replied'];
    const listed = await msgOf(crlf(...header, '', 'x'), { message: spooled({ scan }) });
    expect(Object.keys(listed).slice(-3)).to.deep.equal(['scan', 'automated', 'thread']);
    expect(listed.automated).to.deep.equal({ is: true, why: 'auto-submitted' });
    const broken = await msgOf(crlf(...header, ...Array(1100).fill('X: y'), '', 'x'));
    expect(broken).to.have.property('parse_error');
    expect(broken.automated).to.deep.equal({ is: true, why: 'auto-submitted' });
    const marked = await msgOf(crlf('From: a@b.test', '', 'x'), {
      message: spooled({ envelope: { ...envelope, loops: ['in@example.net'] } }),
    });
    expect(marked.automated).to.deep.equal({ is: true, why: 'loop' });
    const other = await msgOf(crlf('From: a@b.test', '', 'x'), {
      message: spooled({ envelope: { ...envelope, loops: ['other@example.net'] } }),
    });
    expect(other.automated).to.deep.equal({ is: false, why: null });
  });

  it('has every key in every event, because public consumers read them without checking', async () => {
    const always = ['raw_msg', 'headers', ...REST, ...OURS];
    const unread = {
      attachments: {},
      images: {},
      from_name: null,
      to: [],
      cc: [],
      subject: '',
      spam_report: { score: 0, matched_rules: [] },
      tags: [],
      sender: null,
      template: null,
      reply_text: null,
      quoted_text: null,
      reply_data: null,
      captures: {},
    };
    const events = {
      'a file alone': crlf('From: jane@example.com', 'Content-Type: application/pdf; name=a.pdf', '', 'x'),
      'an image alone': crlf(
        'From: jane@example.com',
        'Content-Type: image/png',
        'Content-ID: <i>',
        'Content-Disposition: inline',
        '',
        'x',
      ),
      'what cannot be parsed': Buffer.from(`From: jane@example.com\r\n${'X: y\r\n'.repeat(2000)}\r\nx`),
    };
    for (const [name, raw] of Object.entries(events)) {
      const { parse_error: _, ...msg } = await msgOf(raw);
      expect(msg, name).to.have.all.keys(always);
      for (const [key, value] of Object.entries(unread))
        if (!(name.startsWith('a') && /^(?:attachments|images)$/.test(key)))
          expect(msg, name).to.deep.include({ [key]: value });
    }
    expect(await msgOf(crlf('From: jane@example.com', '', 'x')), 'a text').to.have.all.keys([
      ...always,
      'text',
      'text_flowed',
    ]);
    expect((await msgOf(events['what cannot be parsed'])).parse_error, 'the sample is what it says').to.be.a('string');
  });

  it('omits missing bodies, because consumers check their keys', async () => {
    const msg = await msgOf(crlf('From: jane@example.com', 'Content-Type: application/pdf', '', 'x'));
    expect(msg).not.to.have.any.keys('text', 'text_flowed', 'html', 'raw_msg_base64', 'parse_error');
    expect(await msgOf(crlf('From: jane@example.com', '', 'x'))).not.to.have.any.keys('html');
  });

  it('has the reply and its quote apart, if there is a quote or only HTML', async () => {
    const head = ['From: jane@example.com', 'Subject: Re: Hi'];
    const own = ['Yes.', '', 'Jane', ''];
    const quote = ['On 5 Jan 2026, at 12:00, Bob wrote:', '> Does it?'];
    const answer = await msgOf(crlf(...head, '', ...own, ...quote));
    expect(answer).to.deep.include({ reply_text: 'Yes.\n\nJane\n', quoted_text: `\n${quote.join('\n')}\n` });
    expect(`${answer.reply_text}${answer.quoted_text}`).to.equal(answer.text);
    expect(await msgOf(crlf(...head, '', ...own))).to.include({ reply_text: null, quoted_text: null });
    expect(await msgOf(crlf('From: jane@example.com', 'Subject: Fwd: Hi', '', ...own, ...quote))).to.include({
      reply_text: null,
    });
    const html = await msgOf(
      crlf(...head, 'Content-Type: text/html', '', '<p>Yes.</p><blockquote type="cite">Does it?</blockquote>'),
    );
    expect(html).to.include({ reply_text: 'Yes.\n', quoted_text: 'Does it?\n' }).and.not.to.have.property('text');
    const page = await msgOf(crlf(...head, 'Content-Type: text/html', '', '<p>Yes.</p>'));
    expect(page).to.include({ reply_text: 'Yes.\n', quoted_text: '' });
  });

  it('marks a truncated reply, so that the text is not repeated', async () => {
    const long = Array.from({ length: 20_000 }, () => '> some line');
    const msg = await msgOf(crlf('From: jane@example.com', '', 'Yes.', ...long));
    expect(msg).to.include({ reply_text: 'Yes.\n', reply_text_cut: true });
    expect(msg.quoted_text?.length).to.equal(64 * 1024);
    expect(msg.text?.length).to.be.above(200_000);
    expect(await msgOf(crlf('From: jane@example.com', '', 'Yes.', '> Hm'))).not.to.have.property('reply_text_cut');
  });

  it('uses the envelope sender if the header has none', async () => {
    expect((await msgOf(crlf('Subject: x', '', 'x'))).from_email).to.equal('bounce@example.com');
  });

  it('begins the raw message with our Received line and has LF line ends', async () => {
    const { raw_msg } = await msgOf(crlf('From: jane@example.com', '', 'one', 'two'));
    expect(raw_msg).to.equal(`${TRACE.replaceAll('\r\n', '\n')}From: jane@example.com\n\none\ntwo\n`);
  });

  it('adds the exact bytes if the raw message is not UTF-8', async () => {
    const raw = Buffer.from(
      'From: jane@example.com\r\nContent-Type: text/plain; charset=latin1\r\n\r\nGr\xfc\xdfe\r\n',
      'latin1',
    );
    const msg = await msgOf(raw);
    expect(Buffer.from(msg.raw_msg_base64 ?? '', 'base64').equals(Buffer.concat([Buffer.from(TRACE), raw]))).to.equal(
      true,
    );
    expect(msg.raw_msg).to.match(/\nContent-Transfer-Encoding: base64\n[^]*\n\nR3L832UNCg==$/);
    expect(msg.text).to.equal('Grüße\n');
  });

  it('has headers by name in title case, once as text and repeated as a list, ours first', async () => {
    const { headers } = await msgOf(
      crlf(
        'Received: from b',
        '\tby c',
        'DKIM-Signature: v=1;',
        ' b=x',
        'received: from d',
        'X-Google-DKIM-Signature: y',
        'MIME-Version: 1.0',
        'message-ID: <1@x>',
        '',
        'x',
      ),
    );
    expect(headers).to.deep.equal({
      Received: [
        'from mail.example.com ([192.0.2.1]) by mx.example.net (Postern) with ESMTPS id m1 for <in@example.net>; Mon, 05 Jan 2026 12:00:00 +0000',
        'from b by c',
        'from d',
      ],
      'Dkim-Signature': 'v=1; b=x',
      'X-Google-Dkim-Signature': 'y',
      'Mime-Version': '1.0',
      'Message-Id': '<1@x>',
    });
  });

  it('keeps the order of headers, even with numeric names or names of object properties', async () => {
    const { body } = await render(
      crlf('Zebra: 1', '7: digits', '__proto__: polluted', 'Constructor: c', 'Alpha: 2', '', 'x'),
    );
    const value = formValue(await bytesOf(body));
    expect(value).to.include('"Zebra":"1","7":"digits","__proto__":"polluted","Constructor":"c","Alpha":"2"}');
    expect(Object.getOwnPropertyDescriptor((await eventOf(body)).msg.headers, '__proto__')?.value).to.equal('polluted');
  });

  it('writes [] for no headers, as PHP would', async () => {
    const { body } = await render(Buffer.from('\r\nx'), { message: spooled({ trace: '' }) });
    expect(formValue(await bytesOf(body))).to.include('"headers":[]');
  });

  it('has text files as text and all others as base64', async () => {
    const { attachments } = await msgOf(
      multipart(
        'mixed',
        ['From: a@example.com'],
        ['Content-Type: text/csv', 'Content-Disposition: attachment; filename=ä.csv', '', 'a;ä'],
        [
          'Content-Type: text/plain',
          'Content-Disposition: attachment; filename=b.txt',
          'Content-Transfer-Encoding: base64',
          '',
          Buffer.from('d\xe9j\xe0', 'latin1').toString('base64'),
        ],
        [
          'Content-Type: text/plain',
          'Content-Disposition: attachment; filename=c.txt',
          'Content-Transfer-Encoding: base64',
          '',
          'VGhpcyBpcyAK',
          'YSBzYW1wbGUK',
        ],
        [
          'Content-Type: application/pdf',
          'Content-Disposition: attachment; filename=d.pdf',
          'Content-Transfer-Encoding: base64',
          '',
          'JVBE',
          'Ri0=',
        ],
        [
          'Content-Type: application/x-bin',
          'Content-Disposition: attachment; filename=e',
          'Content-Transfer-Encoding: quoted-printable',
          '',
          '=00=FF',
        ],
      ),
    );
    expect(attachments).to.deep.equal({
      'ä.csv': { name: 'ä.csv', type: 'text/csv', content: 'a;ä', base64: false },
      'b.txt': { name: 'b.txt', type: 'text/plain', content: 'ZOlq4A==', base64: true },
      'c.txt': { name: 'c.txt', type: 'text/plain', content: 'This is \na sample\n', base64: false },
      'd.pdf': { name: 'd.pdf', type: 'application/pdf', content: 'JVBERi0=', base64: true },
      e: { name: 'e', type: 'application/x-bin', content: 'AP8=', base64: true },
    });
  });

  it('gives every file a safe, unique name', async () => {
    const file = (name: string) => [
      'Content-Type: application/pdf',
      `Content-Disposition: attachment; filename="${name}"`,
      '',
      name,
    ];
    const { attachments = {} } = await msgOf(
      multipart('mixed', ['From: a@example.com'], file('a.pdf'), file('../a.pdf'), file('x\u202efdp.exe'), file(''), [
        'Content-Type: message/rfc822',
        '',
        'Subject: x',
      ]),
    );
    expect(Object.keys(attachments)).to.deep.equal([
      'a.pdf',
      'a (2).pdf',
      'xfdp.exe',
      'attachment.pdf',
      'attachment.eml',
    ]);
    expect(Object.values(attachments).map(({ name }) => name)).to.deep.equal(Object.keys(attachments));
  });

  it('has inline images by Content-Id, otherwise by name, without a flag', async () => {
    const { images, attachments } = await msgOf(
      multipart(
        'related',
        ['From: a@example.com'],
        [
          'Content-Type: image/png; name=logo.png',
          'Content-Disposition: inline',
          'Content-ID: <logo@x>',
          'Content-Transfer-Encoding: base64',
          '',
          'iVBORw==',
        ],
        ['Content-Type: image/gif', 'Content-ID: <dot>', '', 'x'],
        ['Content-Type: image/jpeg', 'Content-Disposition: inline; filename=photo.jpg', '', 'y'],
        [
          'Content-Type: image/jpeg',
          'Content-Disposition: attachment; filename=holiday.jpg',
          'Content-ID: <f_1>',
          '',
          'z',
        ],
        ['Content-Type: image/jpeg; name=plain.jpg', '', 'w'],
      ),
    );
    expect(images).to.deep.equal({
      'logo@x': { name: 'logo.png', type: 'image/png', content: 'iVBORw==' },
      dot: { name: 'dot', type: 'image/gif', content: 'eA==' },
      'photo.jpg': { name: 'photo.jpg', type: 'image/jpeg', content: 'eQ==' },
    });
    expect(Object.keys(attachments ?? {})).to.deep.equal(['holiday.jpg', 'plain.jpg']);
  });

  it('decodes the header and the parts', async () => {
    expect(await sample('iso-2022-jp')).to.include({
      subject: 'こんにちは',
      from_name: 'こんにちは',
      text: 'こんにちは\n',
    });
    expect(await sample('encoded words')).to.include({ subject: 'Café and more🎉' });
    expect(Object.keys((await sample('file names in pieces (RFC 2231)')).attachments ?? {})).to.deep.equal([
      'Übersicht 2026.pdf',
      'Übersicht.pdf',
    ]);
  });

  it('leaves header values as they were written', async () => {
    expect((await sample('encoded words')).headers['To']).to.equal('=?iso-8859-1?Q?Andr=E9_P?= <a@example.net>');
  });

  for (const [name, { bytes }] of Object.entries(CORPUS)) {
    it(`of ${name} is valid JSON that contains the raw message`, async () => {
      const { body, parseError } = await render(bytes);
      const { msg } = await eventOf(body);
      expect(parseError).to.equal(null);
      if (isUtf8(bytes)) expect(msg.raw_msg).to.equal((TRACE + bytes.toString('utf8')).replaceAll('\r\n', '\n'));
      else
        expect(
          Buffer.from(msg.raw_msg_base64 ?? '', 'base64').equals(Buffer.concat([Buffer.from(TRACE), bytes])),
        ).to.equal(true);
    });
  }

  it('is a form-encoded form of one field', async () => {
    const { body, headers } = await render(crlf('Subject: a b+c&d=e%f~*', '', 'ü 🎉 "\\ \u0001'));
    const form = (await bytesOf(body)).toString('latin1');
    expect(form).to.match(/^mandrill_events=(?:[A-Za-z0-9._+-]|%[0-9A-F]{2})+$/);
    expect(headers['Content-Type']).to.equal('application/x-www-form-urlencoded');
    const { msg } = await eventOf(body);
    expect([msg.subject, msg.text]).to.deep.equal(['a b+c&d=e%f~*', 'ü 🎉 "\\ \u0001\n']);
  });

  it('is signed over URL and decoded value for consumers of X-Mandrill-Signature', async () => {
    const { body, headers } = await render(crlf('Subject: ü 🎉', '', 'x'));
    const value = formValue(await bytesOf(body));
    expect(headers['X-Mandrill-Signature']).to.equal(
      mandrillSignature(KEY, 'https://example.com/hook?x=1', { mandrill_events: value }),
    );
  });

  it('is signed over the exact bytes for Standard Webhooks, with every key', async () => {
    const other = 'another-key-another-key-another-';
    const { body, headers } = await render(crlf('Subject: x', '', 'x'), { keys: [KEY, other] });
    expect(headers['webhook-id']).to.equal('m1-abc');
    for (const key of [KEY, other]) {
      const webhook = new Webhook(toSigningSecret(key));
      expect(() =>
        webhook.verify(Buffer.from(body.kind === 'memory' ? body.bytes : []), headers, { jsonParse: false }),
      ).not.to.throw();
    }
    expect(headers['X-Mandrill-Signature']).to.equal(
      mandrillSignature(KEY, 'https://example.com/hook?x=1', { mandrill_events: formValue(await bytesOf(body)) }),
    );
  });
});
