import { createHash, createHmac, randomBytes } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Bytes } from '../../../src/base/bytes.ts';
import type { Body } from '../../../src/queue/delivery.ts';
import { mandrillSignature } from '../../../src/webhooks/signing.ts';
import { bytesOf, crlf, eventOf, formValue, KEY, multipart, renderJob, spooled, TRACE } from '../../support/mime.ts';
import { openRenderer } from '../../support/renderer.ts';
import { tempDir } from '../../support/temp.ts';
import { startZone } from '../../support/zone.ts';

async function blob(bytes: Buffer): Promise<Body> {
  const path = join(await tempDir(), 'm1');
  await writeFile(path, bytes);
  return { kind: 'file', path, size: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') };
}

const LINE = 'The quick brown fox jumps over the lazy dog, again and again and again.\r\n';

/** Messages of 25 MB, the size that SMTP takes by default. */
const LARGE: Readonly<Record<string, () => Buffer>> = {
  'one text': () => crlf('From: a@example.com', 'Subject: large', '', LINE.repeat(25e6 / LINE.length)),
  'one file': () =>
    multipart(
      'mixed',
      ['From: a@example.com', 'Subject: large'],
      ['', 'see file'],
      [
        'Content-Type: application/pdf; name=a.pdf',
        'Content-Transfer-Encoding: base64',
        '',
        randomBytes(18e6)
          .toString('base64')
          .replace(/(.{76})/g, '$1\r\n'),
      ],
    ),
  'quoted-printable HTML': () =>
    crlf(
      'From: a@example.com',
      'Subject: large',
      'Content-Type: text/html',
      'Content-Transfer-Encoding: quoted-printable',
      '',
      'caf=C3=A9 and =\r\nmore=20\r\n'.repeat(25e6 / 27),
    ),
};

describe('the renderer', () => {
  it('renders many messages concurrently and returns each its own', async () => {
    const { renderer } = await openRenderer({ threads: 2 });
    const subjects = Array.from({ length: 300 }, (_, i) => `message ${i}`);
    const rendered = await Promise.all(
      subjects.map((subject) => renderer.render(renderJob(crlf(`Subject: ${subject}`, '', 'x')))),
    );
    const found = await Promise.all(rendered.map(async ({ body }) => (await eventOf(body)).msg.subject));
    await renderer.stop();
    expect(found).to.deep.equal(subjects);
  });

  it('leaves the bytes of the job unchanged', async () => {
    const { renderer } = await openRenderer();
    const raw = crlf('Subject: x', '', 'body');
    const before = Buffer.from(raw);
    await renderer.render(renderJob(raw));
    await renderer.stop();
    expect(raw.equals(before)).to.equal(true);
  });

  it('uses existing verdicts of the message', async () => {
    const { renderer } = await openRenderer();
    const job = renderJob(crlf('From: a@example.com', '', 'x'));
    const { verdicts } = await renderer.render(job);
    await renderer.stop();
    expect(verdicts).to.deep.equal(job.mails[0]?.message.verdicts);
  });

  it('computes missing verdicts, many of them while the DNS is slow', async () => {
    const zone = await startZone({ 'example.com': { TXT: ['v=spf1 ip4:192.0.2.1 -all'] } });
    const { renderer } = await openRenderer({
      dns: { servers: [zone.server], timeoutMs: 2000, questionsPerMessage: 60, budgetMs: 5000 },
    });
    const jobs = Array.from({ length: 20 }, () =>
      renderJob(crlf('From: a@example.com', '', 'x'), { message: spooled({ verdicts: null }) }),
    );
    const rendered = await Promise.all(jobs.map(renderer.render));
    const { msg } = await eventOf(rendered[0]?.body ?? { kind: 'memory', bytes: Buffer.alloc(0) });
    await renderer.stop();
    await zone.stop();
    expect(rendered.map(({ verdicts }) => verdicts.spf.result)).to.deep.equal(jobs.map(() => 'pass'));
    expect(msg.spf).to.deep.equal({ result: 'pass', detail: 'sender SPF authorized' });
    expect(msg.dkim).to.deep.equal({ signed: false, valid: false });
  });

  it('renders a message without verdicts when no name server answers', async () => {
    const { renderer } = await openRenderer();
    const { verdicts } = await renderer.render(
      renderJob(crlf('From: a@example.com', '', 'x'), { message: spooled({ verdicts: null }) }),
    );
    await renderer.stop();
    expect(verdicts.spf.result).to.equal('temperror');
  });

  for (const [name, make] of Object.entries(LARGE)) {
    it(`streams a message of 25 MB (${name}) into a file, using little memory`, async function () {
      this.timeout(60_000);
      const { renderer, tmpDir } = await openRenderer();
      const raw = make();
      const body = await blob(raw);
      const before = process.memoryUsage.rss();
      let highest = before;
      const timer = setInterval(() => {
        highest = Math.max(highest, process.memoryUsage.rss());
      }, 10);
      const { body: form, headers, parseError } = await renderer.render(renderJob(Buffer.alloc(0), { body }));
      clearInterval(timer);
      expect(parseError).to.equal(null);
      if (form.kind !== 'file') throw new Error('in memory');
      const bytes = await readFile(form.path);
      expect((await stat(form.path)).size).to.equal(form.size);
      const value = formValue(bytes);
      expect(headers['X-Mandrill-Signature']).to.equal(
        mandrillSignature(KEY, 'https://example.com/hook?x=1', { mandrill_events: value }),
      );
      const signed = createHmac('sha256', KEY)
        .update(`m1-abc.${headers['webhook-timestamp']}.`)
        .update(bytes)
        .digest('base64');
      expect(headers['webhook-signature']).to.equal(`v1,${signed}`);
      const { msg } = await eventOf(form);
      expect(msg.raw_msg === (TRACE + raw.toString('utf8')).replaceAll('\r\n', '\n'), 'raw_msg').to.equal(true);
      await renderer.discard(form);
      await renderer.stop();
      expect(await readdir(tmpDir)).to.deep.equal([]);
      expect((highest - before) / 1e6, 'megabytes').to.be.below(150);
    });
  }

  it('has the same content for a large and a small message', async () => {
    const { renderer } = await openRenderer();
    const png = randomBytes(300_001);
    const raw = multipart(
      'mixed',
      ['From: a@example.com', 'Subject: x'],
      ['Content-Type: text/plain; charset=utf-8', '', 'Grüße 🎉\r\n'.repeat(40_000)],
      [
        'Content-Type: image/png; name=a.png',
        'Content-Transfer-Encoding: base64',
        '',
        png.toString('base64').replace(/(.{76})/g, '$1\r\n'),
      ],
      ['Content-Type: text/csv; name=b.csv', '', 'ä;1\r\n'.repeat(60_000)],
    );
    const inline = await renderer.render(renderJob(raw));
    const streamed = await renderer.render(renderJob(raw, { body: await blob(raw) }));
    const event = await eventOf(streamed.body);
    const forms = await Promise.all([inline, streamed].map(({ body }) => bytesOf(body)));
    await renderer.stop();
    expect(forms[0]?.equals(forms[1] ?? Buffer.alloc(0)), 'same bytes').to.equal(true);
    expect(event.msg.attachments?.['a.png']?.content === png.toString('base64'), 'image').to.equal(true);
    expect(event.msg.text === `${'Grüße 🎉\n'.repeat(40_000)}\n`, 'text').to.equal(true);
  });

  it('keeps forms of large messages in memory up to 32 MB, and others in files until space is free', async () => {
    const { renderer, tmpDir } = await openRenderer();
    const raw = crlf('From: a@example.com', 'Subject: large', '', LINE.repeat(1.5e6 / LINE.length));
    const job = renderJob(Buffer.alloc(0), { body: await blob(raw) });
    const render = async (): Promise<Bytes> => (await renderer.render(job)).body;
    const bodies: Bytes[] = [];
    for (let n = 0; n < 14; n++) bodies.push(await render());
    const held = bodies.filter(({ kind }) => kind === 'memory');
    const inMemory = held.reduce((sum, body) => sum + (body.kind === 'memory' ? body.bytes.length : 0), 0);
    expect(inMemory).to.be.within(24e6, 34e6);
    expect(held).to.have.length.below(14);
    for (const body of bodies) await renderer.discard(body);
    const again = await render();
    expect(again.kind).to.equal('memory');
    const expected = (await renderer.render(renderJob(raw))).body;
    expect((await bytesOf(again)).equals(await bytesOf(expected)), 'same bytes').to.equal(true);
    await renderer.stop();
    expect(await readdir(tmpDir)).to.deep.equal([]);
  });

  it('continues in a file when a form becomes too large for memory', async () => {
    const { renderer } = await openRenderer();
    const raw = crlf('From: a@example.com', 'Subject: large', '', '"<é>"\r\n'.repeat(150_000));
    const at = Date.now();
    const form = await renderer.render(renderJob(raw, { at, body: await blob(raw) }));
    const expected = await renderer.render(renderJob(raw, { at }));
    expect(form.body.kind).to.equal('file');
    expect((await bytesOf(form.body)).equals(await bytesOf(expected.body)), 'same bytes').to.equal(true);
    expect(form.headers).to.deep.equal(expected.headers);
    await renderer.discard(form.body);
    await renderer.stop();
  });

  it('fails only the message whose file is gone', async () => {
    const { renderer } = await openRenderer();
    const lost = renderer
      .render(renderJob(Buffer.alloc(0), { body: { kind: 'file', path: '/nowhere/at/all', size: 1 } }))
      .then(
        () => 'rendered',
        (error: Error) => error.message,
      );
    const fine = await renderer.render(renderJob(crlf('Subject: x', '', 'x')));
    expect(await lost).to.match(/^rendering failed: ENOENT/);
    expect(fine.parseError).to.equal(null);
    await renderer.stop();
  });

  it('removes files of an earlier process in its folder, and nothing else', async () => {
    const tmpDir = await tempDir();
    await writeFile(join(tmpDir, 'post-7.form'), 'x');
    await writeFile(join(tmpDir, 'm1.part'), 'x');
    const { renderer } = await openRenderer({ tmpDir });
    await renderer.render(renderJob(crlf('Subject: x', '', 'x')));
    await renderer.stop();
    expect(await readdir(tmpDir)).to.deep.equal(['m1.part']);
  });

  it('fails waiting jobs when it is stopped, and accepts none afterwards', async () => {
    const { renderer } = await openRenderer();
    const waiting = renderer.render(renderJob(crlf('Subject: x', '', 'x'))).then(
      () => 'rendered',
      (error: Error) => error.message,
    );
    await renderer.stop();
    expect(await waiting).to.equal('rendering failed: the threads were stopped');
    expect(
      await renderer.render(renderJob(crlf('Subject: x', '', 'x'))).catch((error: Error) => error.message),
    ).to.equal('rendering failed: the threads were stopped');
  });
});
