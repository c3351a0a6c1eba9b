import { expect } from 'chai';
import type { Outgoing } from '../../../src/mail/outgoing.ts';
import { TooLarge } from '../../../src/sending/compose/compose.ts';

import { composeMail, DRAFT, toJob } from '../../support/compose.ts';
import { size } from '../../support/sizes.ts';

const TRACKED: Partial<Outgoing> = { trackOpens: true, trackClicks: 'all' };
const MB = 1024 * 1024;
const draftJob = (draft: object, outgoing: Partial<Outgoing> = {}) =>
  toJob(Buffer.from(JSON.stringify({ ...DRAFT, ...draft })), { outgoing });
const documentJob = (body: string, outgoing: Partial<Outgoing> = {}) =>
  toJob(Buffer.from(`From: ann@example.com\r\nContent-Type: text/html\r\n\r\n${body}`), {
    outgoing: { ...outgoing, form: 'mime' },
  });
const failureOf = (job: ReturnType<typeof toJob>) =>
  composeMail(job).then(
    () => undefined,
    (error: unknown) => error,
  );

describe('a message above the size limit after composing', () => {
  const link = '<a href="https://x.example/1">x</a>';
  const many = Array.from({ length: 250_000 }, (_, n) => `<a href=http://x.example/${n}>x</a>`).join('');
  const vars = [{ name: 'X', content: 'x'.repeat(100_000) }];

  it('is rejected permanently: by links', async () => {
    expect(await failureOf(draftJob({ html: many }, TRACKED))).to.be.instanceOf(TooLarge);
    expect(await failureOf(documentJob(many, TRACKED))).to.be.instanceOf(TooLarge);
  }).timeout(30_000);

  it('is rejected permanently: by values', async () => {
    const html = '*|X|*'.repeat(500);
    expect(await failureOf(draftJob({ html }, { globalVars: vars }))).to.be.instanceOf(TooLarge);
    expect(await failureOf(draftJob({ text: html }, { globalVars: vars }))).to.be.instanceOf(TooLarge);
    expect(await failureOf(documentJob(html, { globalVars: vars }))).to.be.instanceOf(TooLarge);
    expect(await failureOf(draftJob({ text: 'x' }, { globalVars: vars, subject: '*|X|*' }))).to.be.instanceOf(TooLarge);
    expect(await failureOf(draftJob({ text: 'x' }, { globalVars: vars, fromName: '*|X|*' }))).to.be.instanceOf(
      TooLarge,
    );
  }).timeout(30_000);

  // Each part would be within the limit; all of them together would fill the memory of the process before anybody
  // looked.
  it('is rejected permanently: by values in very many parts', async () => {
    const part = `--b\r\nContent-Type: text/html\r\n\r\n${'*|X|*'.repeat(200)}\r\n`;
    const raw = Buffer.from(
      `From: ann@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n${part.repeat(400)}--b--\r\n`,
    );
    const job = (content: string) => toJob(raw, { outgoing: { form: 'mime', globalVars: [{ name: 'X', content }] } });
    expect(await failureOf(job('x'.repeat(100_000)))).to.be.instanceOf(TooLarge);
    expect(await failureOf(job('x'))).to.equal(undefined);
  }).timeout(30_000);

  it('is rejected permanently: by its encoding', async () => {
    expect(await failureOf(draftJob({ html: '='.repeat(10 * MB), text: 'x' }))).to.be.instanceOf(TooLarge);
  }).timeout(30_000);

  it('may be as large as at acceptance', async () => {
    const { bytes } = await composeMail(documentJob(`${'x'.repeat(70)}\r\n`.repeat((27 * MB) / 72), TRACKED));
    expect(bytes.length).to.be.greaterThan(26.9 * MB);
  }).timeout(30_000);

  it('has very many links if they fit', async () => {
    const { bytes } = await composeMail(draftJob({ html: link.repeat(50_000) }, TRACKED));
    expect(bytes.length).to.be.greaterThan(5 * MB);
  }).timeout(30_000);
});

describe('a hostile draft', () => {
  const most = size(2, 1) * MB;
  const filled = (piece: string) => piece.repeat(Math.floor(most / piece.length));
  const pieces = [
    '<a ',
    '<a href="',
    '<div>',
    '</a>',
    '<a href="http://x.example/">',
    '<li>',
    '<title>',
    '<script>',
    '&',
    '&amp;',
    ' ',
    '\n',
    '\r',
    '<br>',
    '<img alt="x">',
    'é',
    '*|',
    '*|IF:X|*',
    '*|X|*',
    '=',
    '\0',
  ];
  for (const piece of pieces) {
    it(`takes linear time: ${JSON.stringify(piece)} repeated`, async () => {
      const failure = await failureOf(
        draftJob({ html: filled(piece) }, { trackOpens: true, trackClicks: 'all', autoText: true, globalVars: [] }),
      );
      if (failure !== undefined) expect(failure).to.be.instanceOf(TooLarge);
    }).timeout(30_000);
  }

  it('takes linear time: recipients, headers, names', async () => {
    const to = Array.from({ length: 20_000 }, (_, n) => ({
      email: `r${n}@example.net`,
      name: '"\\,;é'.repeat(4),
      type: 'to',
    }));
    expect(await failureOf(draftJob({ text: 'x', to }, { preserveRecipients: true }))).to.equal(undefined);
    for (const value of ['x', 'é', 'x ', 'a@b,'])
      expect(
        await failureOf(
          draftJob({
            text: 'x',
            headers: [
              ['X-Long', value.repeat(300_000)],
              ['Reply-To', value.repeat(100_000)],
            ],
          }),
        ),
        value,
      ).to.equal(undefined);
    for (const value of ['x', ' ', 'é', '=?', '<', '"', 'a ', ',', '=?utf-8?q?x?= ']) {
      const text = value.repeat(Math.floor(15_000 / value.length));
      const headers = ['X-Long', 'Reply-To', 'References', 'In-Reply-To', 'Sender', 'List-Id'].map((name) => [
        name,
        text,
      ]);
      expect(
        await failureOf(
          draftJob(
            { text: 'x', headers, attachments: [{ name: text, type: `text/plain; ${text}`, content: text }] },
            { subject: text, fromName: text },
          ),
        ),
        value,
      ).to.equal(undefined);
    }
  }).timeout(60_000);
});
