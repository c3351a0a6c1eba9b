import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Body } from '../../../src/queue/delivery.ts';
import { crlf, eventOf, renderJob, TRACE } from '../../support/mime.ts';
import { BREACHES, HOSTILE } from '../../support/mime-hostile.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE } from '../../support/until.ts';

// As the spool keeps them: larger bodies are files.
const LARGEST_INLINE = 256 * 1024;
/** All of them is body: an empty line stands between our trace and them. */
const WITHOUT_HEADER: readonly string[] = ['nothing but NUL bytes', 'bytes of chance', 'no colon'];

describe('hostile messages', function () {
  this.timeout(60_000);
  let renderer: OpenRenderer;
  let dir: string;
  before(async () => {
    ({ renderer } = await openRenderer({ timeoutMs: 5000 * PATIENCE }));
    dir = await tempDir();
  });
  after(() => renderer.stop());

  async function spool(raw: Buffer): Promise<Body> {
    if (raw.length <= LARGEST_INLINE) return { kind: 'memory', bytes: raw };
    const path = join(dir, 'message');
    await writeFile(path, raw);
    return { kind: 'file', path, size: raw.length, sha256: createHash('sha256').update(raw).digest('hex') };
  }

  for (const [name, make] of Object.entries(HOSTILE)) {
    it(`of ${name} are delivered ${BREACHES[name] === undefined ? 'parsed' : 'raw'}, and so are those beside them`, async () => {
      const raw = make();
      const job = renderJob(Buffer.alloc(0), { body: await spool(raw) });
      const [rendered, neighbour] = await Promise.all([
        renderer.render(job),
        renderer.render(renderJob(crlf('Subject: innocent', '', 'x'))),
      ]);
      const { msg } = await eventOf(rendered.body);
      await renderer.discard(rendered.body);
      expect(rendered.parseError).to.equal(BREACHES[name] ?? null);
      expect(msg.parse_error ?? null).to.equal(rendered.parseError);
      const trace = WITHOUT_HEADER.includes(name) ? `${TRACE}\r\n` : TRACE;
      if (msg.raw_msg_base64 !== undefined) {
        expect(
          msg.raw_msg.startsWith(trace.replaceAll('\r\n', '\n').slice(0, TRACE.length - 10)) &&
            !msg.raw_msg.includes('\ufffd'),
          'raw_msg',
        ).to.equal(true);
        expect(
          Buffer.from(msg.raw_msg_base64, 'base64').equals(Buffer.concat([Buffer.from(trace), raw])),
          'raw_msg_base64',
        ).to.equal(true);
      } else {
        expect(msg.raw_msg === (trace + raw.toString('utf8')).replaceAll('\r\n', '\n'), 'raw_msg').to.equal(true);
        expect(isUtf8(raw), 'is UTF-8').to.equal(true);
      }
      expect(neighbour.parseError).to.equal(null);
    });
  }
});
