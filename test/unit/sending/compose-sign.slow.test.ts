import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createAuthenticator } from '../../../src/inbound/verdicts/authenticate.ts';
import { createCompose } from '../../../src/sending/compose/compose.ts';
import { composeMail, type Seen, sendDocument, sendDraft, toJob, valuesOf } from '../../support/compose.ts';
import { makeKey } from '../../support/dns-keys.ts';
import { HOSTILE } from '../../support/mime-hostile.ts';
import { zoneResolver } from '../../support/zone.ts';

const KEY = makeKey('example.com', 'postern', 2048);
const OTHER = makeKey('example.com', 'other', 2048);
const HEAD = ['From: Ann <ann@example.com>', 'To: bob@example.net', 'Subject: Hello'];
const TRACKED = { trackOpens: true, trackClicks: 'all', globalVars: [{ name: 'NAME', content: 'Bøb' }] } as const;

/** By the part of ours that checks mail which comes in: its library is another than the one that signs. */
const authenticator = createAuthenticator({
  resolver: zoneResolver({ ...KEY.records, ...OTHER.records }),
  settings: { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'in.postern.test', trustedSealers: [] },
  clock: systemClock,
});
const verdictOf = async (raw: Uint8Array) =>
  (
    await authenticator.authenticate(
      { kind: 'memory', bytes: raw },
      { mailFrom: 'ann@example.com', client: { address: null, helo: null, tls: null } },
    )
  ).dkim;
const VALID = { signed: true, valid: true };

describe('the DKIM signature of a message', () => {
  const messages: Readonly<Record<string, () => Promise<Seen>>> = {
    'a draft of everything': () =>
      sendDraft(
        {
          html: '<p>*|NAME|* <a href="https://x.example/">x</a>  \t</p>\n\n\n',
          text: 'Grüße\n\n',
          attachments: [{ name: 'a.bin', type: 'application/octet-stream', content: 'AAEC' }],
        },
        { dkim: KEY, outgoing: { ...TRACKED, subject: 'Grüße '.repeat(30) } },
      ),
    'a draft without anything': () => sendDraft({}, { dkim: KEY }),
    'a draft to very many': () =>
      sendDraft(
        {
          text: 'x',
          to: Array.from({ length: 2000 }, (_, n) => ({
            email: `r${n}@example.net`,
            name: `Ré ${n}`,
            type: 'to' as const,
          })),
        },
        { dkim: KEY, outgoing: { preserveRecipients: true } },
      ),
    'a document': () => sendDocument([...HEAD, '', 'text', '', '', ''], { dkim: KEY }),
    'a document of 8-bit text': () =>
      sendDocument(
        [...HEAD, 'Content-Type: text/html; charset=utf-8', '', 'Grüße <a href="https://x.example/">x</a>'],
        { dkim: KEY, outgoing: TRACKED },
      ),
    'a document without a body': () => sendDocument([...HEAD], { dkim: KEY }),
    'a document that does not end its last line': () =>
      sendDocument(Buffer.from(`${HEAD.join('\n')}\n\ntext`), { dkim: KEY }),
    'a document with a trace line in front': () =>
      sendDocument([...HEAD, '', 'text'], { dkim: KEY, settings: { trace: 'Received: from a\r\n\tby b; now\r\n' } }),
    'a document that was signed before': () =>
      sendDocument(
        ['DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=x; h=from; bh=AAAA; b=AAAA', ...HEAD, '', 'text'],
        { dkim: KEY },
      ),
  };
  for (const [name, compose] of Object.entries(messages)) {
    it(`is valid on ${name}`, async () => {
      const { raw } = await compose();
      expect(await verdictOf(raw)).to.deep.equal(VALID);
      const text = raw.toString('latin1');
      expect(await verdictOf(Buffer.from(text.replace(/^From: /im, 'From: X '), 'latin1'))).to.deep.equal({
        signed: true,
        valid: false,
      });
    });
  }

  it('covers the fields that a forger would change, and those of one-click unsubscribe', async () => {
    const seen = await sendDraft({ text: 'x', headers: [['Reply-To', 'desk@example.com']] }, { dkim: KEY });
    const [signature = ''] = valuesOf(seen, 'DKIM-Signature');
    const covered = /; h=([^;]*)/.exec(signature)?.[1]?.replace(/\s/g, '').split(':');
    expect(covered).to.include.members([
      'from',
      'to',
      'reply-to',
      'subject',
      'date',
      'message-id',
      'mime-version',
      'content-type',
      'list-unsubscribe',
      'list-unsubscribe-post',
    ]);
    expect(signature)
      .to.match(/^v=1; a=rsa-sha256; c=relaxed\/relaxed; d=example\.com; /)
      .and.contain('; s=postern;')
      .and.not.contain('l=');
  });

  for (const name of [
    'From',
    'To',
    'Cc',
    'Subject',
    'Date',
    'Reply-To',
    'Message-ID',
    'MIME-Version',
    'Content-Type',
    'Content-Transfer-Encoding',
  ]) {
    it(`breaks when another ${name} is added, in front or behind, whether the message had one or not`, async () => {
      for (const compose of [
        () => sendDraft({ text: 'x' }, { dkim: KEY }),
        () => sendDocument([...HEAD, 'Cc: c@example.net', 'Reply-To: ann@example.com', '', 'text'], { dkim: KEY }),
      ]) {
        const text = (await compose()).raw.toString('latin1');
        expect(await verdictOf(Buffer.from(text, 'latin1'))).to.deep.equal(VALID);
        for (const forged of [`${name}: forged\r\n${text}`, text.replace('\r\n\r\n', `\r\n${name}: forged\r\n\r\n`)]) {
          expect(await verdictOf(Buffer.from(forged, 'latin1'))).to.deep.equal({ signed: true, valid: false });
        }
      }
    });
  }

  it('covers each of several fields of one name', async () => {
    const { raw } = await sendDocument([...HEAD, 'Cc: a@example.net', 'Cc: b@example.net', '', 'text'], { dkim: KEY });
    for (const [from, to] of [
      ['Cc: a@', 'Cc: x@'],
      ['Cc: b@', 'Cc: x@'],
    ] as const) {
      expect(await verdictOf(Buffer.from(raw.toString('latin1').replace(from, to), 'latin1'))).to.deep.equal({
        signed: true,
        valid: false,
      });
    }
  });

  it('survives additions of a mailing list, and a refolded line', async () => {
    const text = (await sendDocument([...HEAD, '', 'text'], { dkim: KEY })).raw.toString('latin1');
    const listed = `List-Id: <list.example.org>\r\nSender: list@example.org\r\nReceived: from a by b\r\n${text.replace('Subject: Hello', 'Subject:\r\n\tHello ')}`;
    expect(await verdictOf(Buffer.from(listed, 'latin1'))).to.deep.equal(VALID);
  });

  it('is missing if nothing signs', async () => {
    expect(await verdictOf((await sendDraft({ text: 'x' })).raw)).to.deep.equal({ signed: false, valid: false });
  });

  it('uses the key of each message, also with cached keys', async () => {
    const compose = createCompose();
    for (const key of [KEY, OTHER, KEY]) {
      const { bytes } = await compose(
        toJob(
          Buffer.from(JSON.stringify({ html: null, text: 'x', to: [], headers: [], attachments: [], images: [] })),
          { dkim: key },
        ),
      );
      expect(Buffer.from(bytes).toString()).to.contain(`s=${key.selector};`);
      expect(await verdictOf(bytes)).to.deep.equal(VALID);
    }
  });

  it('is never omitted because of an invalid key: that is an error', async () => {
    const job = toJob(Buffer.from(`${HEAD.join('\r\n')}\r\n\r\nx`), { outgoing: { form: 'mime' } });
    const small = makeKey('example.com', 'ed'); // Ed25519 cannot make rsa-sha256
    for (const privateKey of ['', 'no key', small.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()]) {
      const error = await composeMail({ ...job, dkim: { domain: 'example.com', selector: 'x', privateKey } }).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).to.be.instanceOf(Error);
      expect(String(error)).to.not.contain('TooLarge');
    }
  });

  it('is returned in memory of its own', async () => {
    const { bytes } = await composeMail(toJob(Buffer.from('Subject: x\r\n\r\nx'), { outgoing: { form: 'mime' } }));
    expect([bytes.byteOffset, bytes.byteLength]).to.deep.equal([0, bytes.buffer.byteLength]);
  });
});

describe('a hostile document', () => {
  for (const [name, make] of Object.entries(HOSTILE)) {
    it(`is composed and signed, or rejected: ${name}`, async () => {
      const document = make();
      const composed = await composeMail(toJob(document, { dkim: KEY, outgoing: { ...TRACKED, form: 'mime' } })).then(
        ({ bytes }) => Buffer.from(bytes),
        (error: unknown) => error,
      );
      if (!Buffer.isBuffer(composed)) expect(String(composed)).to.match(/^(?:TooLarge|UnsendableField)/);
      else {
        expect(composed.toString('latin1', 0, 20)).to.equal('DKIM-Signature: v=1;');
        expect(/(?<!\r)\n|\r(?!\n)/.test(composed.toString('latin1'))).to.equal(false);
      }
    }).timeout(20_000);
  }
});
