import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { serveTasks } from '../base/worker-tasks.ts';
import { createResolver } from '../dns/resolver.ts';
import type { DnsSettings } from '../dns/types.ts';
import { createInspectionTask } from '../inbound/inspection.ts';
import { createAuthenticator } from '../inbound/verdicts/authenticate.ts';
import type { createComposeTask } from '../sending/compose/compose.ts';
import { createContentTask } from '../webhooks/render/content.ts';
import { createProgress } from '../webhooks/render/progress.ts';
import { createRawBytes } from '../webhooks/render/raw-bytes.ts';
import { createRenderTask } from '../webhooks/render/render.ts';
import { createShownTask } from '../webhooks/render/shown.ts';

/** The start data of the pool's threads. */
export interface RenderThreadData {
  readonly dns: DnsSettings;
  /** Our host name, for SPF and Authentication-Results. */
  readonly hostname: string;
  /** The other hosts that receive the mail of our domains: fields with results in their names are forged. */
  readonly mxHosts?: readonly string[];
  /** Domains whose ARC seals are believed. */
  readonly trustedSealers: readonly string[];
}

let composing: ReturnType<typeof createComposeTask> | undefined;

/** Loaded with the first message: it is a quarter of what the thread loads, and many hosts send none. */
const composeTask: ReturnType<typeof createComposeTask> = async (job, guarded) => {
  composing ??= (await import('../sending/compose/compose.ts')).createComposeTask();
  return composing(job, guarded);
};

// The thread that renders webhook POSTs and composes outgoing mail. It is here because webhooks and sending must not
// import each other.
serveTasks<RenderThreadData>(({ dns, hostname, mxHosts = [], trustedSealers }, { log, metrics }) => {
  const clock = systemClock;
  const { questionsPerMessage, budgetMs } = dns;
  const resolver = createResolver(dns, { clock, log, ids: createIds(clock), metrics });
  const authenticator = createAuthenticator({
    resolver,
    clock,
    settings: { questionsPerMessage, budgetMs, hostname, trustedSealers },
  });
  const parseSeconds = metrics.histogram('postern_message_parse_seconds');
  const progress = createProgress();
  const withRaw = createRawBytes();
  return {
    render: createRenderTask({ authenticator, progress, log, parseSeconds, clock, withRaw, hostname, mxHosts }),
    judge: createInspectionTask({ authenticator }),
    content: createContentTask({ withRaw }),
    shown: createShownTask({ withRaw }),
    compose: composeTask,
    steps: async () => ({ value: progress.steps(), transfer: [] }),
  };
});
