import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { keyHash } from '../../../src/store/rows/accounts.ts';
import { type Client, createClient, openData, sendMessage } from '../../support/smtp.ts';
import {
  ACCOUNT,
  base64,
  CERTIFICATE,
  plain,
  type StartedSubmission,
  SUBMISSION_KEY,
  startSubmission,
} from '../../support/submission.ts';
import { until } from '../../support/until.ts';

const FROM = 'From: Ann <Ann@Sender.test>\r\nTo: b@away.test\r\nSubject: Hello\r\n';

/** Hands a message over, and answers what was handed on. */
async function submit(started: StartedSubmission, message: string, client?: Client) {
  const reply = await sendMessage(client ?? (await started.loggedIn()), message);
  expect(reply).to.match(/^250 2\.0\.0 OK: queued as 0{31}1$/);
  const submission = started.below.submitted.at(-1);
  if (!submission) throw new Error('nothing was submitted');
  return { ...submission, text: Buffer.from(submission.bytes).toString('latin1') };
}

const refusal = async (started: StartedSubmission, message: string) => sendMessage(await started.loggedIn(), message);

describe('submitted mail', () => {
  let started: StartedSubmission;
  beforeEach(async () => {
    started = await startSubmission({ tls: CERTIFICATE, tlsListen: [{ host: '127.0.0.1', port: 0 }] });
  });
  afterEach(() => started.stop());

  it('is queued with its account and its options', async () => {
    const { account, outgoing, recipients, sendAt, client, text } = await submit(started, `${FROM}\r\ntext`);
    expect({ account, recipients, sendAt }).to.deep.equal({
      account: ACCOUNT,
      recipients: ['b@ours.test'],
      sendAt: null,
    });
    expect(client).to.deep.equal({ address: '127.0.0.1', helo: 'client.test', tls: 'TLSv1.3' });
    expect(outgoing).to.deep.equal({
      sender: 'ann@sender.test',
      fromName: 'Ann',
      subject: 'Hello',
      tags: [],
      template: null,
      subaccount: null,
      metadata: {},
      apiKey: keyHash(SUBMISSION_KEY),
      trackOpens: false,
      trackClicks: 'none',
      globalVars: null,
      rcptVars: {},
      rcptMetadata: {},
      preserveRecipients: false,
      autoText: false,
      signingDomain: null,
      pool: null,
      form: 'mime',
    });
    expect(text).to.equal(`${FROM}\r\ntext\r\n`);
  });

  it('may have any sender address and the null sender, in any number of messages', async () => {
    const client = await started.loggedIn();
    for (const from of [
      'MAIL FROM:<>',
      'MAIL FROM:<a@elsewhere.test> SIZE=100 BODY=8BITMIME AUTH=<>',
      'MAIL FROM:<"x y"@[127.0.0.1]> SMTPUTF8',
    ]) {
      expect(await client.say(from)).to.match(/^250 2\.1\.0/);
      expect(await client.say('RCPT TO:<b@away.test>')).to.match(/^250 2\.1\.5/);
      expect(await client.say('DATA')).to.match(/^354/);
      client.send(`${FROM}\r\nx\r\n.\r\n`);
      expect(await client.reply()).to.match(/^250 2\.0\.0/);
    }
    expect(started.below.submitted).to.have.length(3);
  });

  it('goes once to a repeated recipient, and up to the limit', async () => {
    const client = await started.loggedIn();
    await client.say('MAIL FROM:<a@sender.test>');
    for (let i = 0; i < 100; i++) expect(await client.say(`RCPT TO:<r${i}@away.test>`)).to.match(/^250/);
    expect(await client.say('RCPT TO:<R7@AWAY.test>')).to.match(/^250/);
    expect(await client.say('RCPT TO:<r100@away.test>')).to.match(/^452 4\.5\.3/);
    await client.say('DATA');
    client.send(`${FROM}\r\nx\r\n.\r\n`);
    await client.reply();
    expect(started.below.submitted[0]?.recipients).to.have.length(100);
  });

  it('loses only its X-MC-* fields, Bcc and Return-Path', async () => {
    const { text } = await submit(
      started,
      `X-MC-Tags: a,\r\n b\r\n${FROM}x-mc-track : opens\r\nBCC: hidden@away.test\r\nX-Other: é\r\n\tfolded\r\nReturn-Path: <x@y.test>\r\nX-MCTags: stays\r\n\r\nX-MC-Tags: body\r\nBcc: body`,
    );
    expect(text).to.equal(
      `${FROM}X-Other: ${Buffer.from('é').toString('latin1')}\r\n\tfolded\r\nX-MCTags: stays\r\n\r\nX-MC-Tags: body\r\nBcc: body\r\n`,
    );
  });

  it('sets options by its X-MC-* fields', async () => {
    const { outgoing, recipients, text } = await submit(
      started,
      [
        'X-MC-Tags: one, two',
        'X-MC-Track: opens, clicks_htmlonly',
        'X-MC-Autotext: yes',
        'X-MC-MergeVars: {"a":"b"}',
        'X-MC-MergeVars: {"_rcpt":"B@ours.test","a":"c"}',
        'X-MC-Metadata: {"order":7}',
        'X-MC-PreserveRecipients: true',
        'X-MC-SigningDomain: sign.test',
        'X-MC-Subaccount: cust-1',
        'X-MC-IpPool: Main Pool',
        'X-MC-BccAddress: copy@away.test',
        'X-MC-Important: true',
        'X-MC-GoogleAnalytics: x.test',
        `${FROM}`,
        'x',
      ].join('\r\n'),
    );
    expect(outgoing).to.deep.include({
      tags: ['one', 'two'],
      trackOpens: true,
      trackClicks: 'html',
      autoText: true,
      globalVars: [{ name: 'a', content: 'b' }],
      rcptVars: { 'b@ours.test': [{ name: 'a', content: 'c' }] },
      metadata: { order: 7 },
      preserveRecipients: true,
      signingDomain: 'sign.test',
      subaccount: 'cust-1',
      pool: 'Main Pool',
      form: 'mime',
      extras: { analytics: { domains: ['x.test'], campaign: null } },
    });
    expect(recipients).to.deep.equal(['b@ours.test', 'copy@away.test']);
    expect(text).to.equal(`X-Priority: 1\r\nX-MSMail-Priority: High\r\nImportance: High\r\n${FROM}\r\nx\r\n`);
  });

  it('logs the names of malformed fields, and continues', async () => {
    const { outgoing } = await submit(started, `X-MC-Track: secret-a\r\nX-MC-MergeVars: {"secret-b\r\n${FROM}\r\nx`);
    expect(outgoing).to.deep.include({ trackOpens: false, globalVars: [] });
    expect(started.log.of('submission.note').map(({ fields }) => fields)).to.deep.equal([
      { account: ACCOUNT, client: '127.0.0.1', ignored: 'X-MC-MergeVars, X-MC-Track' },
    ]);
    expect(JSON.stringify(started.log.lines)).to.not.include('secret-');
  });

  it('is sent at its time, or at once if that has passed', async () => {
    expect((await submit(started, `X-MC-SendAt: 2026-01-05 12:00:01\r\n${FROM}\r\nx`)).sendAt).to.deep.equal(
      new Date('2026-01-05T12:00:01Z'),
    );
    expect((await submit(started, `X-MC-SendAt: 2026-01-05 11:59:59\r\n${FROM}\r\nx`)).sendAt).to.equal(null);
  });

  for (const [from, sender, name] of [
    ['From: a@b.test', 'a@b.test', null],
    ['from: =?UTF-8?Q?J=C3=B6rg?= <J@B.test>', 'j@b.test', 'Jörg'],
    ['FROM: "One, Two" <a@b.test>', 'a@b.test', 'One, Two'],
    ['From: (comment) a@b.test', 'a@b.test', undefined],
    ['From: Ann\r\n  <a@b.test>', 'a@b.test', 'Ann'],
  ] as const) {
    it(`has the sender of ${JSON.stringify(from)}`, async () => {
      const { outgoing } = await submit(started, `${from}\r\n\r\nx`);
      expect(outgoing.sender).to.equal(sender);
      if (name !== undefined) expect(outgoing.fromName).to.equal(name);
    });
  }

  it('has a subject on one line, the last of several', async () => {
    const { outgoing } = await submit(
      started,
      `Subject: one\r\nSubject: =?utf-8?q?two=0D=0Alines?=\r\n${FROM.split('Subject')[0]}\r\nx`,
    );
    expect(outgoing.subject).to.match(/^two +lines$/);
  });

  for (const header of [
    'Subject: no sender',
    'From: a@b.test\r\nFrom: c@d.test',
    'From: a@b.test, c@d.test',
    'From: nobody',
    'From:',
    'From: undisclosed:;',
    'From: a@[127.0.0.1]',
    `From: ${'x'.repeat(5000)} <a@b.test>`,
    'Sender: a@b.test',
    ' From: a@b.test',
    '\r\nFrom: a@b.test',
  ]) {
    it(`is rejected without a single sender (${JSON.stringify(header.slice(0, 40))})`, async () => {
      expect(await refusal(started, `${header}\r\n\r\nx`)).to.match(/^550 5\.6\.0/);
      expect(started.below.submitted).to.deep.equal([]);
    });
  }

  it('is rejected with a header that is too long', async () => {
    expect(await refusal(started, `${FROM}${'X: y\r\n'.repeat(1001)}\r\nx`)).to.match(/^550 5\.6\.0/);
  });

  it('needs no body', async () => {
    const { text } = await submit(started, 'From: a@b.test\r\nSubject: x');
    expect(text).to.equal('From: a@b.test\r\nSubject: x\r\n\r\n');
  });

  it('is rejected for an unknown subaccount, in the words of the API', async () => {
    started.below.answer = async () => ({ outcome: 'unknown-subaccount' });
    expect(await refusal(started, `X-MC-Subaccount: cust-\x1b\x7fé1\r\n${FROM}\r\nx`)).to.equal(
      '550 5.7.1 No subaccount exists with the id cust-???1',
    );
  });

  for (const [outcome, reply] of [
    ['full', /^452 4\.3\.1/],
    ['fault', /^451 4\.3\.0/],
  ] as const) {
    it(`is deferred when the spool answers ${outcome}, and the session continues`, async () => {
      const client = await started.loggedIn();
      started.below.answer = async () => ({ outcome });
      expect(await sendMessage(client, `${FROM}\r\nx`)).to.match(reply);
      expect(await client.say('NOOP')).to.match(/^250/);
    });
  }

  it('is deferred without details of an internal error', async () => {
    started.below.answer = async () => {
      throw new Error('secret of the house');
    };
    expect(await refusal(started, `${FROM}\r\nx`)).to.equal('451 4.3.0 Local error in processing, try again later');
    expect(started.log.of('smtp.fault')).to.have.length(1);
  });

  it('waits for the sync before its 250', async () => {
    let sync: (() => void) | undefined;
    started.below.answer = ({ recipients }) =>
      new Promise((resolve) => {
        sync = () =>
          resolve({
            outcome: 'accepted',
            recipients: recipients.map((email) => ({
              id: 'f'.repeat(32),
              email,
              status: 'rejected',
              rejectReason: 'hard-bounce',
              queuedReason: null,
            })),
            signing: { signedBy: null, warning: null },
          });
      });
    const client = await started.loggedIn();
    await openData(client);
    client.send(`${FROM}\r\nx\r\n.\r\n`);
    await until('the end of DATA', () => sync !== undefined);
    await started.clock.advance(0);
    expect(client.pending()).to.deep.equal([]);
    sync?.();
    expect(await client.reply()).to.equal(`250 2.0.0 OK: queued as ${'f'.repeat(32)}`);
  });

  it('is deferred while the disk is nearly full, or too much of the account waits', async () => {
    const client = await started.loggedIn();
    started.below.room = false;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^452 4\.3\.1/);
    started.below.room = true;
    started.below.backlog = 1001;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^452 4\.3\.1/);
    started.below.backlog = 0;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
  });

  it('is rejected if it is too large, declared or not', async () => {
    const client = await started.loggedIn();
    expect(await client.say('MAIL FROM:<a@sender.test> SIZE=1000001')).to.match(/^552 5\.3\.4/);
    expect(await sendMessage(client, `${FROM}\r\n${'x'.repeat(998).concat('\r\n').repeat(1100)}`)).to.match(
      /^552 5\.3\.4/,
    );
    expect(started.below.submitted).to.deep.equal([]);
  });

  it('uses limited memory over all sessions, and releases all of it', async () => {
    const small = await startSubmission({ tls: CERTIFICATE, maxBytesInData: 1_000_000 });
    const bytes = 'x'.repeat(998).concat('\r\n').repeat(400);
    const first = await small.loggedIn();
    await openData(first);
    first.send(`${FROM}\r\n${bytes}`);
    const second = await small.loggedIn();
    await openData(second);
    second.send(`${FROM}\r\n${bytes.repeat(2)}.\r\n`);
    expect(await second.reply()).to.match(/^452 4\.3\.1/);
    first.send('.\r\n');
    expect(await first.reply()).to.match(/^250/);
    await openData(first);
    first.send(`${FROM}\r\n${bytes}`);
    first.destroy();
    await until('the end of it', () => small.log.of('smtp.session').length === 1);
    for (let i = 0; i < 3; i++) expect(await sendMessage(second, `${FROM}\r\n${bytes}`)).to.match(/^250/);
    await small.stop();
  });

  describe('with a template', () => {
    const CODE = '<div mc:edit="main">default</div><p mc:edit="foot">foot</p>';
    const content = { code: CODE, subject: 'Usual', fromEmail: null, fromName: null, text: 'plain *|NAME|*' };
    const DATES = { createdAt: new Date(0), updatedAt: new Date(0) };
    const add = (name: string, published: typeof content | null, account = ACCOUNT) =>
      started.store.templates.insert({
        id: `${account} ${name}`,
        account,
        name,
        slug: name.toLowerCase().replaceAll(' ', '-'),
        labels: [],
        draft: content,
        published,
        publishedAt: null,
        ...DATES,
        version: 1,
      });

    beforeEach(async () => {
      await add('Our News', content);
      await add('Hidden', null);
      await add('Other', content, 'another-account');
    });

    it('is inserted into the block of the template', async () => {
      const { outgoing, text } = await submit(
        started,
        `X-MC-Template: our-news\r\nCc: C <c@away.test>\r\nReply-To: r@sender.test\r\n${FROM}MIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n<b>new</b>`,
      );
      expect(outgoing).to.deep.include({
        form: 'draft',
        template: 'our-news',
        subject: 'Hello',
        globalVars: [],
        autoText: true,
      });
      expect(JSON.parse(text)).to.deep.equal({
        html: '<div><b>new</b>\n</div><p mc:edit="foot">foot</p>',
        text: 'plain *|NAME|*',
        attachments: [],
        images: [],
        headers: [['Reply-To', 'r@sender.test']],
        to: [
          { email: 'b@away.test', name: null, type: 'to' },
          { email: 'c@away.test', name: 'C', type: 'cc' },
        ],
      });
    });

    it('uses the named block, plain text as HTML, and the subject of the template by default', async () => {
      const { outgoing, text } = await submit(
        started,
        'X-MC-Template: Our News|foot\r\nFrom: a@b.test\r\n\r\n1 < 2\r\n& 3',
      );
      expect(outgoing.subject).to.equal('Usual');
      expect(JSON.parse(text).html).to.equal('<div mc:edit="main">default</div><p>1 &lt; 2<br>\n&amp; 3<br>\n</p>');
    });

    it('keeps its files', async () => {
      const { text } = await submit(
        started,
        [
          `X-MC-Template: our-news\r\n${FROM}MIME-Version: 1.0`,
          'Content-Type: multipart/mixed; boundary=b',
          '',
          '--b',
          'Content-Type: text/plain',
          '',
          'hi',
          '--b',
          'Content-Type: image/png',
          'Content-ID: <logo>',
          'Content-Transfer-Encoding: base64',
          '',
          'AAEC',
          '--b',
          'Content-Type: text/csv; name=n.csv',
          'Content-Disposition: attachment; filename=n.csv',
          '',
          'a,b',
          '--b--',
        ].join('\r\n'),
      );
      expect(JSON.parse(text)).to.deep.include({
        images: [{ name: 'logo', type: 'image/png', content: 'AAEC' }],
        attachments: [{ name: 'n.csv', type: 'text/csv', content: base64('a,b') }],
      });
    });

    it('keeps an attached picture as an attachment, even with a Content-ID from the mail program', async () => {
      const picture = (id: string, disposition: string) => [
        '--b',
        'Content-Type: image/png; name="p.png"',
        `Content-Disposition: ${disposition}; filename="p.png"`,
        ...(id === '' ? [] : [`Content-ID: <${id}>`]),
        'Content-Transfer-Encoding: base64',
        '',
        'AAEC',
      ];
      const { text } = await submit(
        started,
        [
          `X-MC-Template: our-news\r\n${FROM}MIME-Version: 1.0`,
          'Content-Type: multipart/mixed; boundary=b',
          '',
          '--b',
          'Content-Type: text/html',
          '',
          'hi <img src="cid:shown"> <img src="cid:both">',
          ...picture('shown', 'inline'),
          ...picture('both', 'attachment'),
          ...picture('attached', 'attachment'),
          ...picture('', 'inline'),
          '--b--',
        ].join('\r\n'),
      );
      const png = { type: 'image/png', content: 'AAEC' };
      const attached = { name: 'p.png', ...png };
      expect(JSON.parse(text)).to.deep.include({
        images: [
          { name: 'shown', ...png },
          { name: 'both', ...png },
        ],
        attachments: [attached, attached],
      });
    });

    for (const name of ['nowhere', 'hidden', 'other', 'our news']) {
      it(`that the account cannot send is rejected (${name})`, async () => {
        expect(await refusal(started, `X-MC-Template: ${name}\r\n${FROM}\r\nx`)).to.equal(
          `550 5.7.1 No such template "${name}"`,
        );
      });
    }

    it('is rejected if it exceeds the parser limits', async () => {
      const deep = Array.from(
        { length: 70 },
        (_, i) => `Content-Type: multipart/mixed; boundary=b${i}\r\n\r\n--b${i}\r\n`,
      ).join('');
      expect(await refusal(started, `X-MC-Template: our-news\r\n${FROM}${deep}`)).to.match(/^550 5\.6\.0/);
    });
  });
});

describe('a login', () => {
  let started: StartedSubmission;
  beforeEach(async () => {
    started = await startSubmission({ tls: CERTIFICATE, tlsListen: [{ host: '127.0.0.1', port: 0 }] });
  });
  afterEach(() => started.stop());

  it('is offered under TLS only', async () => {
    const client = await started.client('');
    expect(await client.say('EHLO client.test'))
      .to.include('STARTTLS')
      .and.not.include('AUTH');
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.equal('530 5.7.0 Must issue a STARTTLS command first');
    const secured = await started.secured('');
    expect(await secured.say('EHLO client.test'))
      .to.include('AUTH PLAIN LOGIN')
      .and.not.include('STARTTLS');
    expect(await secured.say('MAIL FROM:<a@sender.test>')).to.equal('530 5.7.0 Authentication required');
    expect(await (await started.implicit('')).say('EHLO client.test'))
      .to.include('AUTH PLAIN LOGIN')
      .and.not.include('STARTTLS');
  });

  for (const [name, lines] of Object.entries({
    'PLAIN at once': [`AUTH PLAIN ${plain(SUBMISSION_KEY)}`],
    'PLAIN in two steps': ['AUTH PLAIN', plain(SUBMISSION_KEY)],
    'PLAIN without a user name': [`auth plain ${plain(SUBMISSION_KEY, '')}`],
    'PLAIN with an identity': [`AUTH PLAIN ${plain(SUBMISSION_KEY, 'jörg', 'someone')}`],
    'LOGIN in three steps': ['AUTH LOGIN', base64('x'), base64(SUBMISSION_KEY)],
    'LOGIN with the user name at once': [`AUTH login ${base64('x')}`, base64(SUBMISSION_KEY)],
    'LOGIN with an empty user name': ['AUTH LOGIN', '=', base64(SUBMISSION_KEY)],
  })) {
    it(`succeeds by ${name}`, async () => {
      for (const client of [await started.secured(), await started.implicit()]) {
        for (const line of lines.slice(0, -1)) expect(await client.say(line)).to.match(/^334/);
        expect(await client.say(lines.at(-1) ?? '')).to.match(/^235 2\.7\.0/);
        expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
      }
    });
  }

  it('prompts in the words that clients know', async () => {
    const client = await started.secured();
    expect([await client.say('AUTH LOGIN'), await client.say(base64('x'))]).to.deep.equal([
      '334 VXNlcm5hbWU6',
      '334 UGFzc3dvcmQ6',
    ]);
  });

  it('is allowed once, after EHLO, and not within a transaction', async () => {
    const early = await started.implicit('');
    expect(await early.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^503 5\.5\.1/);
    const client = await started.loggedIn();
    expect(await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^503 5\.5\.1/);
    await client.say('EHLO again.test');
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
    expect(await client.say('AUTH LOGIN')).to.match(/^503 5\.5\.1/);
  });

  it('delays a wrong key, and ends the session after five', async () => {
    const client = await started.secured();
    for (let i = 0; i < 4; i++) expect(await client.say(`AUTH PLAIN ${plain('wrong')}`)).to.match(/^535 5\.7\.8/);
    expect(await client.say(`AUTH PLAIN ${plain('wrong')}`)).to.match(/^421 4\.7\.0/);
    await client.closed();
    expect(started.waits()).to.equal(5);
  });

  it('logs every wrong key, even after other refusals are no longer logged', async () => {
    const client = await started.secured();
    for (let i = 0; i < 6; i++) expect(await client.say('EXPN all')).to.match(/^5/);
    await client.say(`AUTH PLAIN ${plain('wrong')}`);
    const said = started.log
      .of('smtp.refused')
      .filter(({ level }) => level === 'info')
      .map(({ fields }) => [fields['client'], fields['command'], String(fields['reply']).slice(0, 9)]);
    expect(said).to.have.length(6);
    expect(said.at(-1)).to.deep.equal(['127.0.0.1', 'AUTH', '535 5.7.8']);
  });

  it('with a valid key is not blocked by wrong ones from the same address', async () => {
    const strict = await startSubmission({ tls: CERTIFICATE, maxBadKeysPerMinute: 3 });
    const logIn = async (key: string) => (await strict.secured()).say(`AUTH PLAIN ${plain(key)}`);
    for (let i = 0; i < 3; i++) expect(await logIn('wrong')).to.match(/^535/);
    expect(await logIn('wrong')).to.match(/^421 4\.7\.0/);
    expect(await logIn(SUBMISSION_KEY)).to.match(/^235/);
    expect(await logIn('wrong'), 'a good one does not excuse wrong ones').to.match(/^421 4\.7\.0/);
    expect(strict.waits(), 'each wrong one waits for its answer').to.equal(5);
    await strict.clock.advance(61_000);
    expect(await logIn('wrong')).to.match(/^535/);
    await strict.stop();
  });

  it('counts as a use of its key, and so does every later message; a wrong key does not', async () => {
    const lastUse = async () => {
      const row = await started.store.keys.one({ id: keyHash(SUBMISSION_KEY) });
      return row && started.keyUses.lastUse(row)?.toISOString();
    };
    const client = await started.implicit();
    await client.say(`AUTH PLAIN ${plain('wrong')}`);
    expect(await lastUse()).to.equal(undefined);
    await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`);
    expect(await lastUse()).to.equal('2026-01-05T12:00:00.000Z');
    await started.clock.advance(30_000);
    await client.say('MAIL FROM:<ann@shop.example>');
    expect(await lastUse()).to.equal('2026-01-05T12:00:30.000Z');
  });

  it('is deferred while the store is unavailable, without penalty', async () => {
    started.storeState.away = true;
    const client = await started.secured();
    for (let i = 0; i < 30; i++)
      expect(await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^454 4\.7\.0/);
    started.storeState.away = false;
    expect(await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^235/);
    started.storeState.away = true;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
    await client.say('RSET');
    await started.clock.advance(3000);
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^454 4\.7\.0/);
    started.storeState.away = false;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
  });

  it('rejects mail while its account is above its storage limit', async () => {
    const strict = await startSubmission({ tls: CERTIFICATE, maxAccountBytes: 1000 });
    const client = await strict.loggedIn();
    strict.below.bytes = 1000;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.equal(
      '452 4.2.2 Account storage limit reached, try again later',
    );
    strict.below.bytes = 999;
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250/);
    await strict.stop();
  });

  it('cannot be bypassed by repeated tries', async () => {
    const client = await started.secured();
    let reply = '';
    for (let i = 0; i < 110 && !reply.startsWith('421'); i++) reply = await client.say('MAIL FROM:<a@sender.test>');
    expect(reply).to.match(/^421 4\.7\.0/);
  });

  it('has a limit of tries', async () => {
    const client = await started.secured();
    let reply = '';
    for (let i = 0; i < 110 && !reply.startsWith('421'); i++) {
      reply = await client.say('AUTH PLAIN');
      if (reply.startsWith('334')) reply = await client.say('*');
    }
    expect(reply).to.match(/^421 4\.7\.0/);
  });

  it('is offered in plaintext on loopback, without a certificate, if every listener is there', async () => {
    const developer = await startSubmission({ loopbackOnly: true });
    const client = await developer.client('');
    expect(await client.say('EHLO x')).to.include('AUTH PLAIN LOGIN');
    expect(await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^235/);
    expect((await submit(developer, `${FROM}\r\nx`, client)).client).to.deep.include({ tls: null });
    await developer.stop();
    const guarded = await startSubmission({ loopbackOnly: true, tls: CERTIFICATE });
    expect(await (await guarded.client('')).say('EHLO x')).to.not.include('AUTH');
    await guarded.stop();
  });

  it('is otherwise not offered without a certificate, unless the operator allows it', async () => {
    const closed = await startSubmission();
    const client = await closed.client('');
    expect(await client.say('EHLO x'))
      .to.not.include('AUTH')
      .and.not.include('STARTTLS');
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.equal('530 5.7.0 Authentication required');
    await closed.stop();
    const open = await startSubmission({ requireTls: false });
    expect(await (await open.client('')).say('EHLO x')).to.include('AUTH PLAIN LOGIN');
    await open.stop();
  });

  it('logs no key', async () => {
    const client = await started.secured();
    await client.say('AUTH LOGIN');
    await client.say(base64('a-user'));
    await client.say(base64('a-wrong-key'));
    for (const line of [
      'AUTH LOGIN',
      base64('a-user'),
      'RCPT TO:<a-wrong-key>',
      'a-wrong-key',
      `AUTH PLAIN ${plain(SUBMISSION_KEY)}`,
    ])
      await client.say(line);
    await client.say('QUIT');
    await until('the line of the session', () => started.log.of('smtp.session').length === 1);
    const log = JSON.stringify(started.log.lines);
    for (const secret of [
      SUBMISSION_KEY,
      base64(SUBMISSION_KEY),
      plain(SUBMISSION_KEY),
      'a-wrong-key',
      base64('a-wrong-key'),
    ])
      expect(log).to.not.include(secret);
    expect(started.log.of('smtp.refused').length).to.be.greaterThan(0);
  });
});

describe('TLS from the first byte', () => {
  let started: StartedSubmission;
  const settings = { tls: CERTIFICATE, listen: [], tlsListen: [{ host: '127.0.0.1', port: 0 }] };
  beforeEach(async () => {
    started = await startSubmission(settings);
  });
  afterEach(() => started.stop());

  it('does not answer plaintext', async () => {
    const client = createClient(connect({ host: '127.0.0.1', port: started.port }));
    client.send('EHLO x\r\n');
    await client.closed();
    // A TLS alert is no reply.
    expect(client.pending()).to.deep.equal([]);
    client.destroy();
  });

  it('uses a reloaded certificate, and ends without a handshake', async () => {
    await started.listener.reload(CERTIFICATE);
    expect(started.listener.healthy()).to.equal(true);
    const silent = createClient(connect({ host: '127.0.0.1', port: started.port }));
    await (await started.implicit()).say('NOOP');
    await started.clock.advance(62_000);
    await silent.closed();
    silent.destroy();
  });

  it('works behind a PROXY header', async () => {
    await started.stop();
    started = await startSubmission({ ...settings, proxyProtocol: ['127.0.0.1'] });
    const socket = connect({ host: '127.0.0.1', port: started.port });
    socket.write('PROXY TCP4 192.0.2.7 127.0.0.1 4000 465\r\n');
    const client = createClient(connectTls({ socket, rejectUnauthorized: false }));
    expect(await client.reply()).to.match(/^220 mx\.ours\.test/);
    await client.say('EHLO x');
    expect(await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`)).to.match(/^235/);
    expect((await submit(started, `${FROM}\r\nx`, client)).client?.address).to.equal('192.0.2.7');
    client.destroy();
  });
});

describe('common clients (nodemailer)', () => {
  let started: StartedSubmission;
  beforeEach(async () => {
    started = await startSubmission({ tls: CERTIFICATE, tlsListen: [{ host: '127.0.0.1', port: 0 }] });
  });
  afterEach(() => started.stop());

  const MESSAGE: SendMailOptions = {
    from: 'Ann <ann@sender.test>',
    to: 'b@away.test',
    cc: 'c@away.test',
    bcc: 'd@away.test',
    subject: 'Grüße',
    text: 'text',
    html: '<p>html</p>',
    headers: { 'X-MC-Tags': 'one,two', 'X-MC-MergeVars': JSON.stringify({ long: 'ä'.repeat(300) }) },
  };

  for (const secure of [false, true]) {
    for (const authMethod of ['PLAIN', 'LOGIN']) {
      it(`submit by ${authMethod} ${secure ? 'with TLS from the start' : 'over STARTTLS'}`, async () => {
        const transport = createTransport({
          host: '127.0.0.1',
          port: secure ? started.tlsPort : started.port,
          secure,
          requireTLS: !secure,
          authMethod,
          auth: { user: 'x', pass: SUBMISSION_KEY },
          tls: { rejectUnauthorized: false },
        });
        const sent = await transport.sendMail(MESSAGE);
        expect(sent.response).to.match(/^250 2\.0\.0 OK: queued as 0+1$/);
        expect(started.below.submitted[0]?.recipients).to.have.members(['b@away.test', 'c@away.test', 'd@away.test']);
        expect(started.below.submitted[0]?.outgoing).to.deep.include({
          subject: 'Grüße',
          tags: ['one', 'two'],
          globalVars: [{ name: 'long', content: 'ä'.repeat(300) }],
        });
        transport.close();
      });
    }
  }

  it('report a wrong key', async () => {
    const transport = createTransport({
      host: '127.0.0.1',
      port: started.port,
      auth: { user: 'x', pass: 'wrong' },
      tls: { rejectUnauthorized: false },
    });
    const error = await transport.sendMail(MESSAGE).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).to.deep.include({ code: 'EAUTH', responseCode: 535 });
    transport.close();
  });
});
