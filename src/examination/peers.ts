import { randomUUID } from 'node:crypto';
import { createCallNumbers, createPeerWire, PING } from '../api/hosts/peer-wire.ts';
import { createIds } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { hasOwnStore } from '../config.ts';
import { createTokenSecret } from '../store/rows/hosts.ts';
import { type Check, ok, skipped, warning } from './finding.ts';

/** How long a host may take to answer. */
const ANSWER_MS = 5000;
const check = 'other hosts';

/** The hosts that share the store reach each other, so that any of them answers for all. */
export const otherHosts: Check = {
  name: check,
  async *run({ settings, store, noStore, clock }) {
    if (hasOwnStore(settings)) return yield skipped(check, 'none: the store is a file of this host');
    if (!store) return yield skipped(check, noStore);
    const others = (await store.hosts.many({})).filter(({ name }) => name !== settings.hostname);
    if (others.length === 0) return yield skipped(check, 'none yet');
    if (settings.http.peer_url === '')
      yield warning(
        check,
        'http.peer_url is not set, so the other hosts cannot query this one',
        'Set it to a URL at which they reach the API of this host, and restart.',
      );
    const reasons = new Map<string, string>();
    const wire = createPeerWire({
      store,
      tokenSecret: createTokenSecret(store, createIds(clock)),
      member: { id: () => '', incarnation: `doctor ${randomUUID()}` },
      nextCall: createCallNumbers(),
      clock,
      log: reasonsTo(reasons),
      metrics: NO_METRICS,
    });
    const running = others.filter(({ incarnation }) => incarnation !== null);
    for (const host of running) {
      if (!host.url) {
        yield warning(
          check,
          `${host.name} has no http.peer_url`,
          'Set it on that host. Until then, its mail is not found from here.',
        );
        continue;
      }
      const answered = await wire.call(host, PING, {}, { ms: ANSWER_MS }, async ({ ok }) => ok);
      if (!answered)
        yield warning(
          check,
          `${host.name} does not answer at ${host.url} (${reasons.get(host.name) ?? 'it refused'})`,
          'Its mail is missing from lists here. Check that it runs, its http.peer_url and the firewall.',
        );
      else yield ok(check, `${host.name} answers at ${host.url}`);
    }
    for (const { name } of others.filter(({ incarnation }) => incarnation === null))
      yield warning(
        check,
        `${name} does not run`,
        `Its mail is missing from lists. Start it. If it is gone for good, run postern host adopt ${name}, then ` +
          `postern host forget ${name}.`,
      );
  },
};

/** A log that collects the reasons why hosts did not answer. */
function reasonsTo(reasons: Map<string, string>): Log {
  const note: Log['warn'] = (_, fields = {}) => {
    const { host, error } = fields;
    reasons.set(String(host), error instanceof Error ? String(error.cause ?? error.message) : String(error));
  };
  const nothing = () => {};
  return { debug: nothing, info: nothing, warn: note, error: note };
}
