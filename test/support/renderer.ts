import { systemClock } from '../../src/base/clock.ts';
import { createRenderer, type RendererSettings } from '../../src/webhooks/render/pool.ts';
import { createTestLog } from './log.ts';
import { tempDir } from './temp.ts';

/** A renderer with a folder and a log of its own. The test stops it. */
export async function openRenderer(change: Partial<RendererSettings> = {}) {
  const tmpDir = change.tmpDir ?? (await tempDir());
  const log = createTestLog();
  const dns = { servers: ['127.0.0.1:1'], timeoutMs: 200, questionsPerMessage: 10, budgetMs: 500 };
  const settings: RendererSettings = {
    workers: 1,
    timeoutMs: 5000,
    memoryMb: 256,
    hostname: 'mx.example.net',
    dns,
    ...change,
    tmpDir,
  };
  return { renderer: createRenderer(settings, { clock: systemClock, log }), log, tmpDir };
}
