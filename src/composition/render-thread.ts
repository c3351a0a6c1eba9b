import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { serveTasks } from '../base/worker-tasks.ts';
import { createResolver } from '../dns/resolver.ts';
import type { DnsSettings } from '../dns/types.ts';
import { createAuthenticator } from '../inbound/verdicts/authenticate.ts';
import { createComposeTask } from '../sending/compose/compose.ts';
import { createProgress } from '../webhooks/render/progress.ts';
import { createRenderTask } from '../webhooks/render/render.ts';

/** What the threads of the pool are started with. */
export interface RenderThreadData {
  readonly dns: DnsSettings;
  /** Our name, for SPF. */
  readonly hostname: string;
}

// The thread that renders what goes to webhooks and composes what goes out as mail: here, because neither road knows
// the other.
serveTasks<RenderThreadData>(({ dns, hostname }, { log, metrics }) => {
  const clock = systemClock;
  const { questionsPerMessage, budgetMs } = dns;
  const resolver = createResolver(dns, { clock, log, ids: createIds(clock), metrics });
  const authenticator = createAuthenticator({ resolver, clock, settings: { questionsPerMessage, budgetMs, hostname } });
  const parseSeconds = metrics.histogram('postern_message_parse_seconds');
  const progress = createProgress();
  return {
    render: createRenderTask({ authenticator, progress, log, parseSeconds, clock }),
    compose: createComposeTask(),
    steps: async () => ({ value: progress.steps(), transfer: [] }),
  };
});
