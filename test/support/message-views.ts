import { readFile } from 'node:fs/promises';
import type { Bytes } from '../../src/base/bytes.ts';
import type { Clock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import type { Log } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { Spool } from '../../src/queue/delivery.ts';
import type { Dispatcher } from '../../src/queue/dispatcher.ts';
import type { AttemptResult } from '../../src/queue/settle.ts';
import { PLAIN_TARGET } from '../../src/webhooks/destinations.ts';
import { createMessageViews, type MessageViews } from '../../src/webhooks/message-views.ts';
import { createPreparation } from '../../src/webhooks/preparation.ts';
import { createPulling } from '../../src/webhooks/pulling.ts';
import { createRenderer } from '../../src/webhooks/render/renderer.ts';
import type { SigningKeys } from '../../src/webhooks/signing.ts';
import { createTapping } from '../../src/webhooks/tapping.ts';
import { createTrials } from '../../src/webhooks/trials.ts';
import { NO_ANSWERS } from './answers.ts';
import { afterFile } from './cleanup.ts';
import { NO_NOTES } from './notes.ts';
import { noLinks, openThreads } from './renderer.ts';
import { NO_SENDER_REPORTS } from './roads.ts';
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
  return {
    pool,
    renderer: createRenderer(
      { tmpDir: await tempDir(), mostFormBytes: 2 ** 30 },
      { run: pool.task('render'), links: noLinks, log },
    ),
  };
}

/** A POST that the outside got. */
export interface Tried {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** The real trials, but for the outside: `answer` says what it answers. */
export async function createTestTrials(clock: Clock, answer: (tried: Tried) => AttemptResult | Promise<AttemptResult>) {
  const { renderer } = (shared ??= await open());
  const poster = {
    async post(url: string, headers: Readonly<Record<string, string>>, body: Bytes): Promise<AttemptResult> {
      const bytes = body.kind === 'file' ? await readFile(body.path) : Buffer.from(body.bytes);
      return answer({ url, headers, body: bytes.toString() });
    },
  };
  return createTrials({
    renderer,
    poster,
    destinations: { target: () => PLAIN_TARGET },
    answers: NO_ANSWERS,
    clock,
    ids: createIds(clock),
  });
}

/** The real pulling and tapping, of routes in the format raw. */
export async function createTestPulling(deps: {
  readonly spool: Spool;
  readonly dispatcher: Dispatcher;
  readonly signingKeys: SigningKeys;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { renderer } = (shared ??= await open());
  const target = { ...PLAIN_TARGET, format: 'raw' } as const;
  const destinations = { target: () => target, of: async () => ({ kind: 'here' }) as const };
  const own = { metrics: NO_METRICS, notes: NO_NOTES, scanning: undefined, answers: NO_ANSWERS };
  const parts = { ...deps, ...own, renderer, destinations, senderReports: NO_SENDER_REPORTS };
  const preparation = createPreparation(parts);
  const [time, ids] = [createRunningTime(deps.clock), createIds(deps.clock)];
  return {
    pulling: createPulling({ retryHours: 72, orderHoldMs: 900_000 }, { ...parts, preparation, time, ids }),
    tapping: createTapping({ ...parts, preparation }),
  };
}

/** The real views. Their thread starts with the first message that is shown, and serves all tests of a file. */
export async function createTestViews(log: Log): Promise<MessageViews> {
  const { pool, renderer } = (shared ??= await open());
  return createMessageViews({
    renderer,
    run: pool.task('content'),
    show: pool.task('shown'),
    destinations: { target: () => PLAIN_TARGET },
    answers: NO_ANSWERS,
    log,
  });
}
