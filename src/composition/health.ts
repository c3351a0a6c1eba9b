import type { Api } from '../api/http/server.ts';
import { frozen } from '../base/frozen.ts';
import { EVENTS, type EventName, type Fields, type Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { HostPort } from '../base/networks.ts';
import type { Figures } from '../base/prometheus.ts';
import type { RecentLog } from '../base/recent-log.ts';
import { VERSION } from '../base/version.ts';
import { hasOwnStore } from '../config.ts';
import type { ListenerView } from '../console/host/parts.ts';
import type { Routing } from '../inbound/types.ts';
import type { Spool } from '../queue/delivery.ts';
import type { Settings } from '../settings.ts';
import type { Store } from '../store/store.ts';
import type { OwnTls } from './own-tls.ts';
import type { DaemonDeps } from './slices.ts';

/** Exposes the versions and the kind of store as labels of a metric. */
export function registerBuildInfo(settings: Settings, metrics: Metrics): void {
  const labels = {
    version: VERSION,
    node: process.versions.node,
    store: hasOwnStore(settings) ? 'embedded' : 'mongodb',
  };
  metrics.gauge('postern_build_info', () => [[labels, 1]]);
}

/** The log, which also counts warnings and errors, and keeps the last of them in `memory`. */
export function withCounts({ log, metrics }: Pick<DaemonDeps, 'log' | 'metrics'>, memory: RecentLog): Log {
  // Create the fault series at 0: one that starts at 1 has not increased, and an alert would miss it.
  const faults = EVENTS.filter((event) => event.endsWith('.fault'));
  const counters = new Map<string, Counter>(
    faults.map((event) => [`error ${event}`, metrics.counter('postern_log_lines_total', { level: 'error', event })]),
  );
  const counting = (level: 'warn' | 'error') => (event: EventName, fields?: Fields) => {
    const key = `${level} ${event}`;
    const counter = counters.get(key) ?? metrics.counter('postern_log_lines_total', { level, event });
    counters.set(key, counter);
    counter.add();
    memory.keep(level, event, fields);
    log[level](event, fields);
  };
  return frozen({ ...log, warn: counting('warn'), error: counting('error') });
}

/** An address on which a part listens. */
type Address = ListenerView['addresses'][number];

interface ListenerParts {
  readonly listener: { addresses(): readonly Address[] };
  readonly submission: {
    listeners(): readonly { readonly implicitTls: boolean; readonly addresses: readonly Address[] }[];
  };
  readonly api: Pick<Api, 'address' | 'tlsAddresses' | 'connections'>;
  readonly metrics: Figures;
  readonly certificates: Pick<OwnTls, 'pem' | 'web'>;
}

/** The listeners of the daemon, for operators. */
export function listenerViews(parts: ListenerParts): ListenerView[] {
  const { listener, submission, api, metrics, certificates } = parts;
  const certificate = certificates.pem()?.cert;
  const smtp = (name: ListenerView['name'], addresses: readonly Address[]): ListenerView => ({
    name,
    tls: name === 'submissions' ? 'implicit' : certificate === undefined ? 'none' : 'starttls',
    addresses,
    certificate,
    async sessions() {
      const all = (await metrics.level('postern_smtp_sessions_active')) ?? [];
      return all.filter(([labels]) => labels['listener'] === name).reduce((sum, [, count]) => sum + count, 0);
    },
  });
  const { https } = api.tlsAddresses();
  const web = (name: 'http' | 'https', addresses: readonly HostPort[]): ListenerView => ({
    name,
    tls: name === 'https' ? 'implicit' : 'none',
    addresses: addresses.map(({ host, port }) => ({ address: host, port })),
    certificate: name === 'https' ? certificates.web() : undefined,
    sessions: async () => api.connections(name),
  });
  return [
    smtp('smtp', listener.addresses()),
    ...submission
      .listeners()
      .map(({ implicitTls, addresses }) => smtp(implicitTls ? 'submissions' : 'submission', addresses)),
    web('http', [api.address()]),
    ...(https.length > 0 ? [web('https', https)] : []),
  ];
}

interface HealthParts {
  readonly listener: { healthy(): boolean };
  readonly submission: { healthy(): boolean };
  readonly spool: Spool;
  readonly store: Store;
  readonly routing: Routing;
}

/** The state of the daemon, for health checks and the watchdog. */
export function createHealth({ listener, submission, spool, store, routing }: HealthParts) {
  return {
    /** Whether mail is accepted. The store is shown but not required: once routes are loaded, mail needs no store. */
    async ready() {
      const away = await store.ping().then(
        () => undefined,
        () => 'away',
      );
      const checks = {
        smtp: listener.healthy() ? 'ok' : 'not listening',
        submission: submission.healthy() ? 'ok' : 'not listening',
        spool: spool.hasRoom() ? 'ok' : 'accepts no mail: the disk is nearly full, or a sync failed (see the log)',
        routes: routing.ready() ? 'ok' : 'not read yet: the store is away',
      };
      return { ok: Object.values(checks).every((words) => words === 'ok'), checks: { ...checks, store: away ?? 'ok' } };
    },
    async check() {
      await new Promise<void>((turned) => setImmediate(turned));
      if (!listener.healthy() || !submission.healthy()) throw new Error('an SMTP listener is not listening');
      await spool.check();
    },
  };
}
