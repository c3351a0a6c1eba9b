import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import { createMessageViews } from '../../../src/webhooks/message-views.ts';
import { createRenderer } from '../../../src/webhooks/render/renderer.ts';
import { NO_ANSWERS } from '../../support/answers.ts';
import { aMail, crlf } from '../../support/mime.ts';
import { BREACHES, HOSTILE } from '../../support/mime-hostile.ts';
import { noLinks, openThreads } from '../../support/renderer.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE } from '../../support/until.ts';

/** As the spool keeps them: larger bodies are files. */
const LARGEST_INLINE = 256 * 1024;
/** Characters of JSON: the text, whatever its escapes take, and what the caps of a message let through. */
const MAX_SHOWN = 40_000_000;

async function openViews(change: Parameters<typeof openThreads>[0] = {}) {
  const { pool, log } = openThreads(change);
  const dir = await tempDir();
  const renderer = createRenderer(
    { tmpDir: dir, mostFormBytes: 2 ** 30 },
    { run: pool.task('render'), links: noLinks, log },
  );
  const views = createMessageViews({
    renderer,
    run: pool.task('content'),
    show: pool.task('shown'),
    destinations: { target: () => PLAIN_TARGET },
    answers: NO_ANSWERS,
    log,
  });
  return {
    log,
    stop: pool.stop,
    async content(raw: Buffer) {
      if (raw.length <= LARGEST_INLINE) return views.content(aMail(new Uint8Array(raw)));
      const path = join(dir, 'message');
      await writeFile(path, raw);
      return views.content(aMail(raw, { body: { kind: 'file', path, size: raw.length } }));
    },
  };
}

describe('the view of a hostile message', function () {
  this.timeout(60_000);
  let views: Awaited<ReturnType<typeof openViews>>;
  before(async () => {
    views = await openViews({ timeoutMs: 5000 * PATIENCE });
  });
  after(() => views.stop());

  for (const [name, make] of Object.entries(HOSTILE)) {
    it(`is complete, and reports what could not be parsed: ${name}`, async () => {
      const shown = await views.content(make());
      expect(shown.parseError).to.equal(BREACHES[name] ?? null);
      expect(shown.headers[0]).to.deep.include({ name: 'Received' });
      expect(shown.parts.length).to.be.at.most(1000);
      expect(JSON.stringify(shown).length).to.be.below(MAX_SHOWN);
    });
  }
});

describe('the view of a message that breaks its thread', function () {
  this.timeout(30_000);
  const breaks = (how: string) => crlf('From: a@example.com', `X-Test: ${how}`, '', 'x');
  const open = (memoryMb = 256) =>
    openViews({ memoryMb, script: new URL('../../support/mime-thread.ts', import.meta.url) });

  for (const [how, why] of [
    ['throw', 'the parser failed'],
    ['memory', 'parsing needed more than 48 MB'],
  ] as const) {
    it(`is its header and the reason: ${why}`, async () => {
      const views = await open(48);
      const innocent = crlf('Subject: innocent', '', 'x');
      const [bad, ...others] = await Promise.all([breaks(how), innocent, innocent].map(views.content));
      await views.stop();
      expect(bad).to.deep.include({ parseError: why, text: null, parts: [] });
      expect(bad?.headers).to.deep.include({ name: 'From', value: 'a@example.com' });
      expect(others.map(({ text, parseError }) => [text, parseError])).to.deep.equal([
        ['x\n', null],
        ['x\n', null],
      ]);
      expect(views.log.of('message.parse_failed').map(({ fields }) => fields)).to.deep.equal([
        { message: 'm1', reason: why },
      ]);
    });
  }

  it('is an error if its header cannot be read', async () => {
    const views = await open();
    const failure = await views.content(breaks('die')).catch((error: Error) => error.name);
    await views.stop();
    expect(failure).to.equal('TaskBroken');
  });
});
