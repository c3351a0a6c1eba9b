import type { Routing } from '../inbound/types.ts';
import type { Spool } from '../spool/types.ts';
import type { Store } from '../store/store.ts';

interface HealthParts {
  readonly listener: { healthy(): boolean };
  readonly submission: { healthy(): boolean };
  readonly spool: Spool;
  readonly store: Store;
  readonly routing: Routing;
}

/** How the daemon is, for the health checks and the watchdog. */
export function createHealth({ listener, submission, spool, store, routing }: HealthParts) {
  return {
    /** May mail come? The store is shown but does not count: once the routes were read, mail is taken without it. */
    async ready() {
      const away = await store.ping().then(
        () => undefined,
        () => 'away',
      );
      const checks = {
        smtp: listener.healthy() ? 'ok' : 'does not listen',
        submission: submission.healthy() ? 'ok' : 'does not listen',
        spool: spool.hasRoom() ? 'ok' : 'takes no mail: the disk is nearly full, or a sync failed (see the log)',
        routes: routing.ready() ? 'ok' : 'not read yet: the store is away',
      };
      return { ok: Object.values(checks).every((words) => words === 'ok'), checks: { ...checks, store: away ?? 'ok' } };
    },
    async check() {
      await new Promise<void>((turned) => setImmediate(turned));
      if (!listener.healthy() || !submission.healthy()) throw new Error('an SMTP listener does not listen');
      await spool.check();
    },
  };
}
