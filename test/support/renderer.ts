import type { Bytes } from '../../src/base/bytes.ts';
import { systemClock } from '../../src/base/clock.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { createWorkerPool, type PoolSettings } from '../../src/base/worker-pool.ts';
import type { RenderThreadData } from '../../src/composition/render-thread.ts';
import { createComposer } from '../../src/sending/compose/composer.ts';
import type { Composer } from '../../src/sending/types.ts';
import type { LinkedFiles } from '../../src/webhooks/linked-files.ts';
import { createRenderer } from '../../src/webhooks/render/renderer.ts';
import type { Findings, Post, Renderer, RenderJob } from '../../src/webhooks/types.ts';
import { createTestLog } from './log.ts';
import { tempDir } from './temp.ts';
import { PATIENCE } from './until.ts';

/** What the threads of a pool do, and the pool's end. */
export interface OpenRenderer extends Omit<Renderer, 'render'>, Composer {
  /** With what was found out about the one message. */
  render(job: RenderJob): Promise<Post & Findings>;
  stop(): Promise<void>;
}

type Change = Partial<Omit<PoolSettings<never>, 'data'>> &
  Partial<RenderThreadData> & { readonly tmpDir?: string; readonly links?: LinkedFiles['reserve'] };

function copied(body: Bytes): Bytes {
  return body.kind === 'file' ? body : { kind: 'memory', bytes: new Uint8Array(body.bytes) };
}

const keeping = ({ mails, ...job }: RenderJob): RenderJob => ({
  ...job,
  mails: mails.map((mail) => ({ ...mail, body: copied(mail.body) })),
});

/** For tests of posts without links. */
export const noLinks = (): Promise<never> => Promise.reject(new Error('there are no links here'));

/** The threads that render, with a log of their own. The test stops them. */
export function openThreads({ dns, hostname, mxHosts, trustedSealers, ...change }: Change = {}) {
  const log = createTestLog();
  const pool = createWorkerPool(
    {
      script: new URL('../../src/composition/render-thread.ts', import.meta.url),
      data: {
        dns: dns ?? { servers: ['127.0.0.1:1'], timeoutMs: 200, questionsPerMessage: 10, budgetMs: 500 },
        hostname: hostname ?? 'mx.example.net',
        mxHosts: mxHosts ?? [],
        trustedSealers: trustedSealers ?? [],
      },
      threads: 1,
      timeoutMs: 5000 * PATIENCE,
      memoryMb: 256,
      ...change,
    },
    { clock: systemClock, log, metrics: NO_METRICS },
  );
  return { pool, log };
}

/** A renderer and a composer with threads, a folder and a log of their own. The test stops it. */
export async function openRenderer(change: Change = {}) {
  const tmpDir = change.tmpDir ?? (await tempDir());
  const { pool, log } = openThreads(change);
  const { compose } = createComposer(pool.task('compose'));
  const { render, renderShared, discard } = createRenderer(
    { tmpDir, mostFormBytes: 2 ** 30 },
    { run: pool.task('render'), links: change.links ?? noLinks, log },
  );
  const renderer: OpenRenderer = {
    // What is rendered is given away; a test keeps its own.
    async render(job) {
      const post = await render(keeping(job));
      const [found] = post.found;
      if (!found) throw new Error('nothing was rendered');
      return { ...post, ...found };
    },
    renderShared: (job) => renderShared(keeping(job)),
    discard,
    compose: ({ body, ...job }) => compose({ ...job, body: copied(body) }),
    stop: pool.stop,
  };
  return { renderer, log, tmpDir };
}
