import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ComposeJob } from '../../outbound/types.ts';
import type { ComposeReply, PostBody, Rendered, Renderer, RenderJob } from '../types.ts';
import { createPool, type RendererDeps, type RendererSettings, schedule, stopPool } from './pool.ts';
import { createRenderQueue, type RenderWork } from './queue.ts';

export type { RendererDeps, RendererSettings } from './pool.ts';

// As the pool names them.
const FORM_FILE = /^post-\d+\.form$/;
const HIGHEST_NUMBER = 0x7fffffff; // it has to fit a cell of the pulse

/**
 * Renders spooled messages on threads of its own. A message that is parsed for too long, needs too much memory or breaks the
 * thread is tried again alone, and if it does the same again it is rendered raw; those that were with it are rendered as ever.
 */
export function createRenderer(settings: RendererSettings, deps: RendererDeps): Renderer {
  const queue = createRenderQueue();
  const pool = createPool(settings, deps, queue);
  const swept = sweep(settings.tmpDir);
  let ready = false;
  swept.then(
    () => {
      ready = true;
    },
    () => undefined,
  ); // whoever renders first hears of a failure
  let number = 0;
  const add = (work: RenderWork, reject: (error: Error) => void) => {
    if (pool.stopped) return reject(stopped());
    number = (number % HIGHEST_NUMBER) + 1;
    queue.add({ number, work, parseError: null, breaches: 0, reject });
    schedule(pool);
  };
  return Object.freeze({
    async render(job: RenderJob): Promise<Rendered> {
      if (!ready) await swept;
      return new Promise<Rendered>((resolve, reject) => add({ kind: 'post', job, resolve }, reject));
    },
    async compose(job: ComposeJob): Promise<ComposeReply> {
      return new Promise<ComposeReply>((resolve, reject) => add({ kind: 'mail', job, resolve }, reject));
    },
    discard: (body: PostBody) => (body.kind === 'file' ? rm(body.path, { force: true }) : undefined),
    async stop(): Promise<void> {
      const waiting = queue.drain();
      const inside = await stopPool(pool);
      for (const task of [...inside, ...waiting]) task.reject(stopped());
      await swept.catch(() => undefined);
    },
  });
}

function stopped(): Error {
  return new Error('the renderer has stopped');
}

/** Makes the folder, and removes what a process before us left in it. */
async function sweep(tmpDir: string): Promise<void> {
  await mkdir(tmpDir, { recursive: true });
  const left = (await readdir(tmpDir)).filter((name) => FORM_FILE.test(name));
  await Promise.all(left.map((name) => rm(join(tmpDir, name), { force: true })));
}
