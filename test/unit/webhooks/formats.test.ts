import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { FORMAT_NAMES, type FormatName, MANDRILL } from '../../../src/inbound/formats.ts';
import type { Scan } from '../../../src/mail/scan.ts';
import { standardSignature } from '../../../src/webhooks/signing.ts';
import type { Answered } from '../../../src/webhooks/types.ts';
import { bytesOf, crlf, KEY, multipart, renderJob, spooled, TRACE, VERDICTS } from '../../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';

const PNG = 'iVBORw0KGgo=';
const AUTH = {
  authenticated: true,
  domain: 'example.com',
  by: 'dmarc',
  dmarc: { result: 'pass', policy: 'none', domain: 'example.com', aligned: true },
  spf: { result: 'pass', domain: 'bounce.example.com' },
  dkim: [{ domain: 'example.com', selector: 's1', result: 'pass', aligned: true }],
  arc: { result: 'none', sealers: [], trusted: false },
};
const EVIDENCE = { spf: 'bounce.example.com', dkim: AUTH.dkim, arc: { sealers: [], trusted: false } };
const RESULTS =
  'Authentication-Results: mx.example.net;\r\n\tspf=pass smtp.mailfrom=bounce.example.com;\r\n' +
  '\tdkim=pass header.d=example.com header.s=s1;\r\n\tdmarc=pass header.from=example.com;\r\n\tarc=none\r\n';
const HEAD = `Return-Path: <bounce@example.com>\r\nX-Original-To: in@example.net\r\n${RESULTS}${TRACE}`;
const MAIL = multipart(
  'mixed',
  [
    'From: "Doe, Jane" <jane@example.com>',
    'To: A <a@example.net>, b+tag@example.net',
    'Cc: c@example.net',
    'Subject: Hi',
    'Date: Mon, 05 Jan 2026 12:00:00 +0000',
    'Message-ID: <m1@example.com>',
    'MIME-Version: 1.0',
  ],
  ['', 'text ü'],
  ['Content-Type: text/html', '', '<p>'],
  ['Content-Type: image/png; name=dot.png', 'Content-ID: <dot>', 'Content-Transfer-Encoding: base64', '', PNG],
  ['Content-Type: application/pdf; name="a\u0022b.pdf"', 'Content-Disposition: attachment', '', 'x\u0000y'],
);

const HAM: Scan = {
  ...{ spam: 'ham', virus: 'unknown', name: null, score: -0.7, by: ['rspamd'], reason: null },
  rules: [{ name: 'BAYES', score: -0.7, description: '' }],
};

/** Names of keys, with those of objects and lists in them behind a dot. */
function namesOf(value: unknown, before = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => namesOf(one, before));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => [before + name, ...namesOf(inner, `${before}${name}.`)]);
}

/**
 * What stands in posts that others captured from the services: the fixtures of multi_mail (2013), and for SendGrid those
 * of its client for Go too. Fields of the header that only those messages had are left out.
 */
const CAPTURED = {
  mandrill:
    'event ts msg msg.raw_msg msg.headers msg.headers.Received msg.headers.From msg.headers.Subject msg.text msg.html ' +
    'msg.from_email msg.from_name msg.to msg.subject msg.email msg.tags msg.sender',
  mailgun:
    'Content-Type Date From Message-Id Mime-Version Received Return-Path Subject To X-Mailgun-Incoming X-Mailgun-Sflag ' +
    'X-Mailgun-Spf X-Mailgun-Sscore attachment-count body-html body-plain from message-headers recipient sender signature ' +
    'stripped-html stripped-signature stripped-text subject timestamp token attachment-1 attachment-2',
  'mailgun-mime': 'recipient sender subject from timestamp token signature body-mime',
  postmark:
    'From FromFull FromFull.Email FromFull.Name To ToFull ToFull.Email ToFull.Name Cc CcFull ReplyTo Subject MessageID Date ' +
    'MailboxHash TextBody HtmlBody Tag Headers Headers.Name Headers.Value Attachments Attachments.Name Attachments.Content ' +
    'Attachments.ContentType Attachments.ContentLength',
  cloudmailin:
    'headers envelope envelope.to envelope.recipients envelope.from envelope.helo_domain envelope.remote_ip envelope.spf ' +
    'envelope.spf.result envelope.spf.domain plain html reply_plain attachments attachments.content attachments.file_name ' +
    'attachments.content_type attachments.size attachments.disposition',
  sendgrid:
    'headers dkim to html from text sender_ip spam_report envelope attachments subject spam_score attachment-info charsets SPF ' +
    'attachment1 attachment2',
  'sendgrid-raw': 'dkim email to from sender_ip envelope subject charsets SPF',
};

describe('payload formats', () => {
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer({ mxHosts: ['mx2.example.net', 'bücher.example.net'] }));
  });
  after(() => renderer.stop());

  async function post(format: FormatName, raw: Buffer = MAIL, withRaw = true, scan?: Scan, facts = false) {
    const message = spooled({ verdicts: { ...VERDICTS, evidence: EVIDENCE }, ...(scan && { scan }) });
    const { body, headers } = await renderer.render(
      renderJob(raw, { message, style: { ...MANDRILL, format, raw: withRaw, facts } }),
    );
    const bytes = await bytesOf(body);
    const type = headers['Content-Type'] ?? '';
    return { bytes, headers, type };
  }
  const jsonOf = async (format: FormatName, raw?: Buffer, withRaw?: boolean, scan?: Scan) =>
    JSON.parse((await post(format, raw, withRaw, scan)).bytes.toString());
  /** What a multipart parser of others reads: undici's. */
  async function form(format: FormatName, raw?: Buffer, scan?: Scan): Promise<FormData> {
    const { bytes, type } = await post(format, raw, true, scan);
    return new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
  }
  const fileOf = async (data: FormData, name: string) => {
    const file = data.get(name);
    if (!(file instanceof File)) throw new Error(`${name} is no file`);
    return { name: file.name, type: file.type, bytes: Buffer.from(await file.arrayBuffer()) };
  };

  it('include the conversation and the answered message, except formats of the message itself', async () => {
    const record = { _id: 'a'.repeat(32), tags: ['offer'], metadata: { ticket: 7 } };
    const KEYS: Readonly<Record<string, readonly [thread: string, answers: string]>> = {
      json: ['thread', 'answers'],
      postmark: ['Thread', 'Answers'],
      cloudmailin: ['thread', 'answers'],
      mailgun: ['thread', 'answers'],
      sendgrid: ['thread', 'answers'],
      'sendgrid-raw': ['thread', 'answers'],
    };
    const read = async (format: FormatName, answers: Answered | null | undefined, raw = MAIL) => {
      const style = { ...MANDRILL, format, raw: false };
      const { body, headers } = await renderer.render(renderJob(raw, { style, answers }));
      const bytes = await bytesOf(body);
      const type = headers['Content-Type'] ?? '';
      const [thread = '', key = ''] = KEYS[format] ?? [];
      if (type === 'application/json') {
        const post = JSON.parse(bytes.toString());
        return [post[thread], post[key]];
      }
      const data = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
      const text = data.get(key);
      return [data.get(thread), text === null ? undefined : JSON.parse(String(text))];
    };
    for (const format of FORMAT_NAMES.filter((name) => name in KEYS)) {
      expect(await read(format, { thread: 'of-the-sent-one', record }), format).to.deep.equal([
        'of-the-sent-one',
        record,
      ]);
      const [thread, answers] = await read(format, null);
      expect([thread?.length, answers], format).to.deep.equal([22, null]);
      expect((await read(format, undefined))[1], format).to.equal(undefined);
      expect(
        (await read(format, null, Buffer.from('Thread: forged\r\nAnswers: forged\r\n\r\nx\r\n')))[0],
        format,
      ).to.equal(null);
    }
  });

  for (const format of FORMAT_NAMES) {
    it(`${format} is signed as Standard Webhooks, and only that of Mandrill as Mandrill`, async () => {
      const { bytes, headers } = await post(format);
      const at = Number(headers['webhook-timestamp']);
      expect(headers['webhook-signature']).to.equal(standardSignature([KEY], 'm1-abc', at, bytes));
      expect('X-Mandrill-Signature' in headers).to.equal(format === 'mandrill');
    });
  }

  it('raw is the message after its trace, its envelope and the verdicts', async () => {
    const latin1 = Buffer.concat([crlf('From: a@example.com', '', 'x'), Buffer.from([0xfc])]);
    const { bytes, type } = await post('raw', latin1);
    expect(type).to.equal('message/rfc822');
    expect(bytes).to.deep.equal(Buffer.concat([Buffer.from(HEAD), latin1]));
  });

  for (const forged of [
    ['Authentication-Results: mx.example.net; dmarc=pass'],
    ['AUTHENTICATION-results:mx.EXAMPLE.net.;dmarc=pass'],
    ['Authentication-Results :', ' (c (n\\) ested)) "mx.example.net"', '\t1; dmarc=pass'],
    ['Authentication-Results', ' : mx.example.net; dmarc=pass'],
    ['Authentication-Results:', '\tmx.example.net (c);', ' dmarc=pass'],
  ]) {
    it(`remove forged results under our name: ${JSON.stringify(forged)}`, async () => {
      const rest = ['From: a@example.com', 'Authentication-Results: mx.example.net.evil.test; spf=pass', '', 'x'];
      const { bytes } = await post('raw', crlf('X-First: 1', ...forged, ...rest));
      expect(bytes.toString()).to.equal(HEAD + crlf('X-First: 1', ...rest).toString());
      const data = await form('sendgrid-raw', crlf(...forged, ...rest));
      expect(String(data.get('email')).match(/dmarc=pass/g)).to.have.length(1);
      const { Headers } = await jsonOf('postmark', crlf(...forged, ...rest));
      const ours = Headers.filter(({ Value }: { Value: string }) => /^mx\.example\.net;/i.test(Value));
      expect(ours).to.have.length(1);
    });
  }

  // What a sender writes so that consumers believe it is the receiver's.
  const FORGED_TRACE = [
    'Return-Path: <ceo@victim.example>',
    'return-path :',
    ' <ceo@victim.example>',
    'X-Original-To: admin@example.net',
    'X-ORIGINAL-TO',
    ' : admin@example.net',
    'Authentication-Results: mx2.example.net; dmarc=pass header.from=victim.example',
    `Authentication-Results${' '.repeat(300)}: "MX2.example.net." 1; dmarc=pass header.from=victim.example`,
    'authentication-results: (c)xn--bcher-kva.example.net; dmarc=pass header.from=victim.example',
    'Received-SPF: Pass (mx.example.net: domain of victim.example says so) client-ip=192.0.2.1',
    'received-spf: pass; receiver="MX2.example.net"; envelope-from=ceo@victim.example',
  ];
  const GENUINE = [
    'From: a@example.com',
    'Authentication-Results: mx3.example.net; spf=pass',
    'Received-SPF: pass receiver=mx.example.net.attacker.test',
    'Return-Path-X: y',
    '',
    'ü',
  ];

  it('remove results of sibling hosts, Return-Path and X-Original-To, where ours are in front', async () => {
    const raw = crlf('X-First: 1', ...FORGED_TRACE, ...GENUINE);
    const kept = HEAD + crlf('X-First: 1', ...GENUINE).toString();
    expect((await post('raw', raw)).bytes.toString()).to.equal(kept);
    expect((await form('sendgrid-raw', raw)).get('email')).to.equal(kept);
    expect((await form('mailgun-mime', raw)).get('body-mime')).to.equal(kept);
    expect((await jsonOf('postmark', raw)).RawEmail).to.equal(kept);
    expect((await jsonOf('json', raw)).raw).to.equal(kept);
    const latin1 = Buffer.from(raw.toString().replace('ü', '\xfc'), 'latin1');
    expect(String((await form('sendgrid-raw', latin1)).get('email'))).not.to.match(/victim|admin@/);
  });

  it('omit such fields in lists and maps of fields, in any spelling', async () => {
    const raw = crlf(
      'Return_Path: <ceo@victim.example>',
      'X_Original-To: admin@example.net',
      ...FORGED_TRACE,
      ...GENUINE,
    );
    const listed = [
      (await jsonOf('json', raw)).headers,
      (await jsonOf('postmark', raw)).Headers,
      (await jsonOf('cloudmailin', raw)).headers,
      (await form('mailgun', raw)).get('message-headers'),
      (await form('sendgrid', raw)).get('headers'),
    ];
    for (const list of listed) expect(JSON.stringify(list)).not.to.match(/victim|admin@/);
    expect(listed[2]).to.include({ return_path: '<bounce@example.com>', x_original_to: 'in@example.net' });
  });

  it('omit results under our names in the format of Mandrill, which has none of ours', async () => {
    for (const charset of ['utf8', 'latin1'] as const) {
      const raw = Buffer.from(crlf('X-First: 1', ...FORGED_TRACE, ...GENUINE).toString(), charset);
      const { msg } = JSON.parse(
        new URLSearchParams((await post('mandrill', raw)).bytes.toString()).get('mandrill_events') ?? '',
      )[0];
      const raws = [msg.raw_msg, Buffer.from(msg.raw_msg_base64 ?? '', 'base64').toString('latin1')];
      for (const text of raws) expect(text).not.to.match(/dmarc=pass/);
      expect(msg.raw_msg)
        .to.match(/^Received: /)
        .and.match(/mx3\.example\.net; spf=pass/);
      expect(msg.headers['Authentication-Results']).to.equal('mx3.example.net; spf=pass');
    }
  });

  it('omit scanner fields written by the sender in lists of fields, if the message was scanned', async () => {
    const raw = crlf(
      'X-Virus-Status: Clean',
      'x-spam-flag: NO',
      'X_Spam_Score: -9',
      'X-Rspamd-Action: no action',
      'X-Spam: No',
      ...GENUINE,
    );
    const scan: Scan = { ...HAM, spam: 'spam', virus: 'infected', name: 'Eicar' };
    const forged = /clean|x[_-]spam[_-]?(?:flag|score.{3,9}-9)|rspamd|"X-Spam"/i;
    for (const format of ['json', 'cloudmailin', 'postmark'] as const) {
      const { headers, Headers } = await jsonOf(format, raw, false, scan);
      expect(JSON.stringify(headers ?? Headers), format).not.to.match(forged);
    }
    for (const format of ['mailgun', 'sendgrid'] as const)
      for (const [name, value] of await form(format, raw, scan))
        if (!/^(?:scan|sender|body)/.test(name)) expect(`${name}: ${String(value)}`, format).not.to.match(forged);
    const event = new URLSearchParams((await post('mandrill', raw, false, scan)).bytes.toString()).get(
      'mandrill_events',
    );
    expect(JSON.stringify(JSON.parse(event ?? '')[0].msg.headers)).not.to.match(forged);
    // Without a scanner of ours they may be those of a filter in front.
    expect(JSON.stringify((await jsonOf('json', raw)).headers)).to.match(/X-Virus-Status.+Clean/);
  });

  it('keep names and subjects on one line, for any encoded words', async () => {
    const ends = '=?utf-8?q?Eve=0D=0ABcc=3A_x=0B=0C=C2=85=E2=80=A8y?=';
    const raw = crlf(`From: ${ends} <eve@attacker.test>`, `To: ${ends} <in@example.net>`, `Subject: ${ends}`, '', 'x');
    const { msg } = JSON.parse(
      new URLSearchParams((await post('mandrill', raw, false)).bytes.toString()).get('mandrill_events') ?? '',
    )[0];
    const { From, FromName, Subject } = await jsonOf('postmark', raw, false);
    const own = await jsonOf('json', raw, false);
    for (const text of [msg.from_name, msg.to[0][1], msg.subject, FromName, Subject, own.from.name, own.subject])
      expect(text).to.equal('Eve Bcc: x y');
    expect(From).to.equal('eve@attacker.test');
  });

  it('postmark has its fields, with MAIL FROM first among the headers', async () => {
    const got = await jsonOf('postmark');
    expect(got).to.deep.include({
      From: 'jane@example.com',
      FromName: 'Doe, Jane',
      FromFull: { Email: 'jane@example.com', Name: 'Doe, Jane', MailboxHash: '' },
      To: 'A <a@example.net>, b+tag@example.net',
      CcFull: [{ Email: 'c@example.net', Name: '', MailboxHash: '' }],
      BccFull: [],
      OriginalRecipient: 'in@example.net',
      Subject: 'Hi',
      MessageStream: 'inbound',
      TextBody: 'text ü\n',
      HtmlBody: '<p>\n',
      SenderAuth: AUTH,
    });
    expect(got.ToFull[1].MailboxHash).to.equal('tag');
    expect(got.MessageID).to.match(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-8[\da-f]{3}-[\da-f]{12}$/);
    expect(got.Headers[0]).to.deep.equal({ Name: 'Return-Path', Value: '<bounce@example.com>' });
    expect(got.Attachments[0]).to.deep.equal({
      Name: 'dot.png',
      Content: PNG,
      ContentType: 'image/png',
      ContentLength: 8,
      ContentID: 'dot',
    });
    expect(got.RawEmail).to.equal(HEAD + MAIL.toString());
    expect(await jsonOf('postmark', MAIL, false)).not.to.have.property('RawEmail');
  });

  it('cloudmailin has its fields', async () => {
    const got = await jsonOf('cloudmailin');
    expect(got.envelope).to.deep.include({
      to: 'in@example.net',
      recipients: ['in@example.net'],
      from: 'bounce@example.com',
      helo_domain: 'mail.example.com',
      remote_ip: '192.0.2.1',
      tls: true,
      spf: { result: 'pass', domain: 'bounce.example.com' },
    });
    expect(got.headers).to.deep.include({ subject: 'Hi', return_path: '<bounce@example.com>' });
    expect(got).to.deep.include({ plain: 'text ü\n', html: '<p>\n', sender_auth: AUTH });
    expect(got.attachments[0]).to.deep.include({
      file_name: 'dot.png',
      content_type: 'image/png',
      size: 8,
      content: PNG,
    });
  });

  it('json is ours: every key always exists', async () => {
    const [whole, empty] = [await jsonOf('json'), await jsonOf('json', crlf('', ''))];
    expect(Object.keys(empty)).to.deep.equal(Object.keys(whole));
    expect(whole).to.deep.include({
      id: 'm1-abc',
      message_id: 'm1',
      subject: 'Hi',
      sender_auth: AUTH,
      parse_error: null,
    });
    expect(whole.envelope).to.deep.equal({
      from: 'bounce@example.com',
      to: 'in@example.net',
      helo: 'mail.example.com',
      ip: '192.0.2.1',
      tls: 'TLSv1.3',
    });
    expect(empty).to.deep.include({ from: { address: 'bounce@example.com', name: null }, attachments: [] });
  });

  for (const format of ['mailgun', 'mailgun-mime'] as const) {
    it(`${format} is signed with the key of the route`, async () => {
      const data = await form(format);
      const signature = createHmac('sha256', KEY)
        .update(`${data.get('timestamp')}${data.get('token')}`)
        .digest('hex');
      expect(data.get('signature')).to.equal(signature);
      expect(data.get('token')).to.have.length(50);
      expect(Math.abs(Number(data.get('timestamp')) - Date.now() / 1000)).to.be.lessThan(60);
      expect(data.get('recipient')).to.equal('in@example.net');
      expect(data.get('sender')).to.equal('bounce@example.com');
      expect(data.get('from')).to.equal('"Doe, Jane" <jane@example.com>');
    });
  }

  it('mailgun has texts, files byte for byte, and each header field', async () => {
    const data = await form('mailgun');
    expect(data.get('body-plain')).to.equal('text ü\n');
    expect(data.get('body-html')).to.equal('<p>\n');
    expect(data.get('attachment-count')).to.equal('2');
    expect(data.get('content-id-map')).to.equal('{"<dot>":"attachment-1"}');
    expect(data.get('Cc')).to.equal('c@example.net');
    expect(await fileOf(data, 'attachment-1')).to.deep.equal({
      name: 'dot.png',
      type: 'image/png',
      bytes: Buffer.from(PNG, 'base64'),
    });
    expect(JSON.parse(String(data.get('message-headers')))[0]).to.deep.equal(['Return-Path', '<bounce@example.com>']);
  });

  it('mailgun has our verdicts on the sender, whatever the message claims', async () => {
    const data = await form('mailgun', crlf('X-Mailgun-Spf: Fail', 'X-Mailgun-Dkim-Check-Result: Fail', '', 'x'));
    expect(data.getAll('X-Mailgun-Spf')).to.deep.equal(['Pass']);
    expect(data.getAll('X-Mailgun-Dkim-Check-Result')).to.deep.equal(['Pass']);
  });

  /** Names of what a post has: fields of the form, or keys. */
  async function namesIn(format: FormatName): Promise<string[]> {
    const { bytes, type } = await post(format, MAIL, true, HAM);
    const text = bytes.toString();
    if (type === 'application/json') return namesOf(JSON.parse(text));
    if (type.startsWith('multipart/')) return [...(await form(format, MAIL, HAM)).keys()];
    return namesOf(JSON.parse(new URLSearchParams(text).get('mandrill_events') ?? ''));
  }

  for (const [format, captured] of Object.entries(CAPTURED))
    it(`${format} has every field of captured posts of its service`, async () => {
      expect(await namesIn(format as FormatName)).to.include.members(captured.split(' '));
    });

  it('mailgun prevents senders from setting our fields by header names', async () => {
    const data = await form(
      'mailgun',
      crlf(
        'constructor: x',
        '__proto__: x',
        'recipient: x',
        '[token]: x',
        'signature[]: x',
        'From: a@example.com',
        '',
        'x',
      ),
    );
    expect(data.getAll('recipient')).to.deep.equal(['in@example.net']);
    expect([data.get('Constructor'), data.get('body-plain')]).to.deep.equal(['x', 'x\n']);
    expect([...data.keys()].filter((name) => /[[\]]/.test(name))).to.deep.equal([]);
  });

  it('sendgrid has its fields and files', async () => {
    const data = await form('sendgrid');
    expect(JSON.parse(String(data.get('envelope')))).to.deep.equal({
      to: ['in@example.net'],
      from: 'bounce@example.com',
    });
    expect(data.get('dkim')).to.equal('{@example.com : pass}');
    expect(data.get('SPF')).to.equal('pass');
    expect(data.get('attachments')).to.equal('2');
    expect(String(data.get('headers'))).to.match(/^Return-Path: <bounce@example\.com>\n/);
    expect(JSON.parse(String(data.get('attachment-info'))).attachment1['content-id']).to.equal('dot');
    expect((await fileOf(data, 'attachment1')).bytes).to.deep.equal(Buffer.from(PNG, 'base64'));
  });

  it('have the reason of automated mail in every format, which senders cannot set', async () => {
    const raw = crlf(
      'X-Postern-Automated: list',
      'x_postern-automated: list',
      'Auto-Submitted: auto-replied',
      'From: a@example.com',
      '',
      'x',
    );
    const automated = { is: true, why: 'auto-submitted' };
    const field = 'X-Postern-Automated: auto-submitted\r\n';
    const head = HEAD.replace(TRACE, field + TRACE);
    const rest = crlf(
      'x_postern-automated: list',
      'Auto-Submitted: auto-replied',
      'From: a@example.com',
      '',
      'x',
    ).toString();
    expect((await post('raw', raw)).bytes.toString()).to.equal(head + rest);
    expect((await form('mailgun-mime', raw)).get('body-mime')).to.equal(head + rest);
    const own = await jsonOf('json', raw);
    expect(own.automated).to.deep.equal(automated);
    expect(own.headers.filter(([name]: string[]) => /automated/i.test(name ?? ''))).to.deep.equal([
      ['X-Postern-Automated', 'auto-submitted'],
    ]);
    expect((await jsonOf('postmark', raw)).Automated).to.deep.equal(automated);
    expect((await jsonOf('cloudmailin', raw)).automated).to.deep.equal(automated);
    for (const format of ['mailgun', 'sendgrid', 'sendgrid-raw'] as const)
      expect(JSON.parse(String((await form(format, raw)).get('automated'))), format).to.deep.equal(automated);
    const forged = await form('mailgun', crlf('Automated: {"is":true}', 'From: a@example.com', '', 'x'));
    expect(forged.getAll('automated')).to.deep.equal(['{"is":false,"why":null}']);
    expect(forged.getAll('Automated')).to.deep.equal([]);
  });

  it('omit the field in personal mail, whatever it contains', async () => {
    const { bytes } = await post('raw', crlf('X-Postern-Automated: list', 'From: a@example.com', '', 'x'));
    expect(bytes.toString()).to.equal(HEAD + crlf('From: a@example.com', '', 'x').toString());
  });

  it('have the reply without its quote, where the format has a field for it', async () => {
    const reply = crlf('From: a@example.com', 'Subject: Re: Hi', '', 'Yes.', '', '> Really?');
    expect((await jsonOf('postmark', reply)).StrippedTextReply).to.equal('Yes.\n');
    expect((await jsonOf('cloudmailin', reply)).reply_plain).to.equal('Yes.\n');
    expect((await form('mailgun', reply)).get('stripped-text')).to.equal('Yes.\n');
    expect(await jsonOf('json', reply)).to.deep.include({ reply_text: 'Yes.\n', quoted_text: '\n> Really?\n' });
  });

  it('have the facts of the message on request', async () => {
    const html = crlf('From: a@example.com', 'Facts: forged', 'Content-Type: text/html', '', '<p hidden>Psst</p>Hi');
    const facts = {
      visible_text: 'Hi',
      hidden: [{ why: 'display', text: 'Psst' }],
      ...{ invisible: [], links: [], counts: { hidden: 1, invisible: 0, links: 0 }, cut: false },
    };
    const fields = { mandrill: 'facts', json: 'facts', postmark: 'Facts', cloudmailin: 'facts' } as const;
    const msgOf = (text: string) => JSON.parse(new URLSearchParams(text).get('mandrill_events') ?? '')[0].msg;
    for (const [format, name] of Object.entries(fields) as [keyof typeof fields, string][]) {
      const record = async (asks: boolean, raw = html) => {
        const text = (await post(format, raw, true, undefined, asks)).bytes.toString();
        return format === 'mandrill' ? msgOf(text) : JSON.parse(text);
      };
      const asked = await record(true);
      expect(asked[name], format).to.deep.equal(facts);
      expect(Object.keys(asked).at(-1), format).to.equal(name);
      const { [name]: _, ...rest } = asked;
      expect(await record(false), `${format}, without`).to.deep.equal(rest);
      const bomb = crlf(
        'From: a@example.com',
        ...Array.from({ length: 40_000 }, (_, i) => `X-${i}: ${'x'.repeat(50)}`),
        '',
        'x',
      );
      expect((await record(true, bomb))[name], `${format}, not parsed`).to.equal(null);
    }
    for (const format of ['mailgun', 'sendgrid'] as const) {
      const read = async (asks: boolean) => {
        const { bytes, type } = await post(format, html, true, undefined, asks);
        return new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
      };
      const fields = (await read(true)).getAll('facts');
      expect(
        fields.map((field) => JSON.parse(String(field))),
        format,
      ).to.deep.equal([facts]);
      expect((await read(false)).has('facts'), format).to.equal(false);
      expect((await read(false)).has('Facts'), format).to.equal(false);
    }
    for (const format of ['raw', 'mailgun-mime', 'sendgrid-raw'] as const)
      expect((await post(format, html, true, undefined, true)).bytes.toString()).to.not.include('visible_text');
  });

  it('have the scan results, in no field that a sender could set', async () => {
    const forged = crlf('X-Spam-Status: No', 'X-Mailgun-Sflag: No', 'From: a@example.com', '', 'x');
    const scan: Scan = {
      ...{ spam: 'spam', virus: 'unknown', name: null, score: 7.5, by: ['rspamd'], reason: null },
      rules: [{ name: 'BAYES', score: 7.5, description: 'Looks like it' }],
    };
    const spam = (await jsonOf('postmark', forged, true, scan)).Headers.filter(({ Name }: any) => /^X-Spam/.test(Name));
    expect(spam).to.deep.equal([
      { Name: 'X-Spam-Status', Value: 'Yes' },
      { Name: 'X-Spam-Score', Value: '7.5' },
      { Name: 'X-Spam-Tests', Value: 'BAYES' },
    ]);
    expect((await form('mailgun', forged, scan)).getAll('X-Mailgun-Sflag')).to.deep.equal(['Yes']);
    expect((await form('mailgun', forged)).getAll('X-Mailgun-Sflag')).to.deep.equal([]);
    const data = await form('sendgrid', forged, scan);
    expect([data.get('spam_score'), data.get('spam_report')]).to.deep.equal(['7.5', '7.5 BAYES Looks like it\n']);
    expect((await jsonOf('json', forged, true, scan)).scan).to.include({ spam: 'spam', virus: 'unknown' });
    expect((await jsonOf('json', forged)).scan).to.equal(null);
  });

  it('decode text of other charsets to UTF-8 in every field', async () => {
    const latin1 = Buffer.concat([
      crlf('From: a@example.com', 'Content-Type: text/plain; charset=iso-8859-1', ''),
      Buffer.from('Grüße\r\n', 'latin1'),
    ]);
    const mimes = [
      (await form('mailgun-mime', latin1)).get('body-mime'),
      (await form('sendgrid-raw', latin1)).get('email'),
    ];
    for (const mime of [...mimes, (await jsonOf('postmark', latin1)).RawEmail])
      expect(String(mime)).to.match(/Gr=FC=DFe|R3L832U/);
    expect((await form('sendgrid', latin1)).get('text')).to.equal('Grüße\n');
  });

  it('decode base64 of any length to its bytes', async () => {
    for (const size of [0, 1, 2, 3, 49_151, 200_000]) {
      const bytes = Buffer.from(Array.from({ length: size }, (_, i) => (i * 7919) % 256));
      const lines = bytes.toString('base64').match(/.{1,76}/g) ?? [''];
      const raw = multipart(
        'mixed',
        ['From: a@example.com'],
        ['', 'x'],
        ['Content-Type: application/x-y; name=f', 'Content-Transfer-Encoding: base64', '', ...lines],
      );
      expect((await fileOf(await form('sendgrid', raw), 'attachment1')).bytes.equals(bytes)).to.equal(true);
      const [file] = (await jsonOf('postmark', raw)).Attachments;
      expect(file.ContentLength).to.equal(size);
      expect(Buffer.from(file.Content, 'base64').equals(bytes)).to.equal(true);
    }
  });
});
