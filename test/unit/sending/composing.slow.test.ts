import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Body } from '../../../src/queue/delivery.ts';
import type { ComposeJob } from '../../../src/sending/types.ts';
import type { createTestLog } from '../../support/log.ts';
import { crlf, renderJob } from '../../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { OUTGOING } from '../../support/sending-world.ts';

const ID = '0123456789abcdef'.repeat(2);

function job(body: Body, change: Partial<ComposeJob> = {}): ComposeJob {
  return {
    outgoing: OUTGOING,
    body,
    recipient: 'jo@example.com',
    id: ID,
    accountNumber: 7,
    at: Date.UTC(2026, 0, 5),
    dkim: null,
    settings: {
      hostname: 'mx.example',
      returnDomain: 'bounces.example',
      publicUrl: 'https://mx.example',
      secret: 's',
      trace: 'Received: from there\r\n',
    },
    ...change,
  };
}

const inline = (...lines: string[]): Body => ({ kind: 'memory', bytes: crlf(...lines) });
const MAIL = inline('From: news@sender.example', 'To: jo@example.com', 'Subject: hello', '', 'hello');

describe('composing on the render thread', function () {
  this.timeout(30_000);
  let renderer: OpenRenderer;
  let log: ReturnType<typeof createTestLog>;
  let dir: string;
  const open = async (change: { readonly script?: URL } = {}) => {
    const opened = await openRenderer({ timeoutMs: 2000, memoryMb: 128, hostname: 'mx.example', ...change });
    ({ renderer, log, tmpDir: dir } = opened);
  };
  afterEach(() => renderer.stop());
  const breakable = new URL('../../support/mime-thread.ts', import.meta.url);

  it('makes the same mail of the same job, and leaves the bytes to the caller', async () => {
    await open();
    const first = await renderer.compose(job(MAIL));
    const second = await renderer.compose(job(MAIL));
    if (first.kind !== 'composed' || second.kind !== 'composed') throw new Error('not composed');
    const text = Buffer.from(first.composed.bytes).toString();
    expect(text)
      .to.match(/^Received: from there\r\n/)
      .and.to.contain('Subject: hello\r\n');
    expect(first.composed.mailFrom).to.match(new RegExp(`^7-${ID}-[0-9a-z]+@bounces\\.example$`));
    expect(Buffer.from(second.composed.bytes).toString()).to.equal(text);
  });

  it('reads a large body from its file; a missing file is not an error of the mail', async () => {
    await open();
    const path = join(dir, 'blob');
    await writeFile(path, crlf('From: news@sender.example', 'Subject: large', '', 'x'.repeat(500)));
    expect((await renderer.compose(job({ kind: 'file', path, size: 1, sha256: '' }))).kind).to.equal('composed');
    const failure = await renderer
      .compose(job({ kind: 'file', path: join(dir, 'nothing'), size: 1, sha256: '' }))
      .catch((error: unknown) => error);
    expect(failure).to.be.instanceOf(Error);
  });

  it('rejects mail that cannot be composed, permanently only if no server would accept it', async () => {
    await open();
    const draft = { outgoing: { ...OUTGOING, form: 'draft' as const } };
    expect(await renderer.compose(job(inline('this is no draft'), draft))).to.include({
      kind: 'refused',
      final: false,
    });
    const vars = [{ name: 'X', content: 'x'.repeat(1_000_000) }];
    const bomb = JSON.stringify({
      html: null,
      text: '*|X|*'.repeat(500),
      to: [],
      headers: [],
      attachments: [],
      images: [],
    });
    const reply = await renderer.compose(
      job({ kind: 'memory', bytes: Buffer.from(bomb) }, { outgoing: { ...draft.outgoing, globalVars: vars } }),
    );
    expect(reply).to.include({ kind: 'refused', final: true });
  });

  for (const order of ['die', 'throw', 'memory']) {
    it(`rejects a mail that breaks its thread (${order}), and completes everything beside it`, async () => {
      await open({ script: breakable });
      const bad = inline('From: a@sender.example', `X-Test: ${order}`, '', 'x');
      const [refused, ...others] = await Promise.all([
        renderer.compose(job(bad)),
        ...Array.from({ length: 10 }, () => renderer.compose(job(MAIL))),
        renderer.render(renderJob(crlf('From: a@example.com', 'Subject: in', '', 'x'))),
      ]);
      expect(refused?.kind).to.equal('refused');
      expect(others.filter((one) => 'kind' in one).map(({ kind }) => kind)).to.deep.equal(
        Array.from({ length: 10 }, () => 'composed'),
      );
      expect(others.at(-1)).to.include({ parseError: null });
      expect(log.of('worker.ended').length).to.be.at.least(2);
    });
  }

  it('fails waiting jobs when it stops', async () => {
    await open();
    const waiting = renderer.compose(job(MAIL)).catch((error: unknown) => error);
    await renderer.stop();
    expect(await waiting).to.be.instanceOf(Error);
    expect(await renderer.compose(job(MAIL)).catch((error: unknown) => error)).to.be.instanceOf(Error);
  });
});
