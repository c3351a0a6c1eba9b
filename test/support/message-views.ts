import type { Log } from '../../src/base/log.ts';
import { createMessageViews, type MessageViews } from '../../src/webhooks/message-views.ts';
import { createRenderer } from '../../src/webhooks/render/renderer.ts';
import { afterFile } from './cleanup.ts';
import { openThreads } from './renderer.ts';
import { tempDir } from './temp.ts';

interface Shared {
  readonly pool: ReturnType<typeof openThreads>['pool'];
  readonly renderer: ReturnType<typeof createRenderer>;
}

let shared: Shared | undefined;
afterFile(async () => {
  await shared?.pool.stop();
  shared = undefined;
});

async function open(): Promise<Shared> {
  const { pool, log } = openThreads();
  return { pool, renderer: createRenderer({ tmpDir: await tempDir() }, { run: pool.task('render'), log }) };
}

/** The real views. Their thread starts with the first message that is shown, and serves all tests of a file. */
export async function createTestViews(log: Log): Promise<MessageViews> {
  const { pool, renderer } = (shared ??= await open());
  return createMessageViews({ renderer, run: pool.task('content'), show: pool.task('shown'), log });
}
