import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { type Counter, type Metrics, NO_METRICS } from '../base/metrics.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { Carried } from '../webhooks/carry.ts';
import type { Told } from '../webhooks/types.ts';
import { DELIVERY_KINDS, type Delivery, type DeliveryKind, ENDPOINT_KINDS, type EndpointKind } from './delivery.ts';
import type { Change } from './schedule/breaker.ts';
import type { Lane, Waiting } from './schedule/lane.ts';
import type { Settled } from './settle.ts';

const OUTCOMES = ['delivered', 'deferred', 'failed'] as const;
const CODES = ['2xx', '3xx', '4xx', '5xx', 'other', 'none'] as const;
const ENDPOINTS = ['webhook', 'outbound', 'return'] as const satisfies readonly EndpointKind[];

/** What is counted of deliveries. */
export interface Meters {
  attempt(delivery: Pick<Delivery, 'kind'>, result: Told, settled: Pick<Settled, 'outcome'>): void;
  /** It was given up. */
  dead(kind: DeliveryKind): void;
  /** Verdicts that were just taken. */
  verdicts(verdicts: Verdicts): void;
  /** A message went out raw. */
  unparsed(): void;
  /** What became of mail going out: the kind of its event. */
  sending(kind: string): void;
}

export function createMeters(metrics: Metrics = NO_METRICS): Meters {
  const attempts = table(DELIVERY_KINDS, (of) =>
    table(OUTCOMES, (outcome) =>
      table(CODES, (code) => metrics.counter('postern_attempts_total', { class: of, outcome, code })),
    ),
  );
  const seconds = table(DELIVERY_KINDS, (of) => metrics.histogram('postern_attempt_seconds', { class: of }));
  const dead = table(DELIVERY_KINDS, (of) => metrics.counter('postern_dead_letters_total', { class: of }));
  const unparsed = metrics.counter('postern_message_parse_failures_total');
  const sending = new Map<string, Counter>(
    ['send', 'deferral', 'hard_bounce', 'soft_bounce', 'reject'].map((result) => [
      result,
      metrics.counter('postern_sending_results_total', { result }),
    ]),
  );
  return frozen({
    attempt(delivery, result, { outcome }) {
      attempts[delivery.kind][outcome][codeOf(result)].add();
      seconds[delivery.kind].observe(result.durationMs / 1000);
    },
    dead: (kind) => dead[kind].add(),
    verdicts: countVerdicts(metrics),
    unparsed: () => unparsed.add(),
    sending: (kind) => sending.get(kind)?.add(),
  });
}

/** Shows what is known of endpoints; one pass over those that have work, or had some of late. */
export function showEndpoints(lanes: { all(): Iterable<Lane> }, metrics: Metrics = NO_METRICS): void {
  metrics.gauge('postern_endpoints', () => {
    const counts = table(ENDPOINTS, () => ({ closed: 0, open: 0, half_open: 0, paused: 0 }));
    for (const {
      kind,
      state: { phase },
      probing,
    } of lanes.all())
      counts[ENDPOINT_KINDS[kind]][probing && phase !== 'closed' ? 'half_open' : phase]++;
    return ENDPOINTS.flatMap((endpoint) =>
      Object.entries(counts[endpoint]).map(([state, count]) => [{ endpoint, state }, count] as const),
    );
  });
  metrics.gauge('postern_attempts_in_flight', () => {
    const counts = table(ENDPOINTS, () => 0);
    for (const { kind, posting } of lanes.all()) counts[ENDPOINT_KINDS[kind]] += posting;
    return ENDPOINTS.map((endpoint) => [{ endpoint }, counts[endpoint]]);
  });
}

function countVerdicts(metrics: Metrics): (verdicts: Verdicts) => void {
  const of = (method: string, ...results: readonly string[]) => {
    const count = (result: string) => metrics.counter('postern_authentication_results_total', { method, result });
    const known = new Map<string, Counter>(results.map((result) => [result, count(result)]));
    const other = count('other');
    return (result: string) => (known.get(result) ?? other).add();
  };
  const methods = {
    spf: of('spf', 'pass', 'fail', 'softfail', 'neutral', 'none', 'temperror', 'permerror'),
    dkim: of('dkim', 'pass', 'fail', 'none'),
    dmarc: of('dmarc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
    arc: of('arc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
  };
  return ({ spf, dkim, dmarc, arc }) => {
    methods.spf(spf.result);
    methods.dkim(dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none');
    methods.dmarc(dmarc.result);
    methods.arc(arc.result);
  };
}

function codeOf(result: Told): (typeof CODES)[number] {
  if (result.kind !== 'answered') return 'none';
  if (result.status >= 600 || result.status < 200) return 'other';
  return result.status < 300 ? '2xx' : result.status < 400 ? '3xx' : result.status < 500 ? '4xx' : '5xx';
}

/** A value for each name, so that none is looked up by text. */
function table<const K extends string, V>(names: readonly K[], make: (name: K) => V): Record<K, V>;
function table(names: readonly string[], make: (name: string) => unknown): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, make(name)]));
}

/** The log lines of the dispatcher. They name the host of an endpoint and never its URL, which may hold secrets. */
export interface Notices {
  attempt(lane: Lane, waiting: Waiting, carried: Extract<Carried, { kind: 'settled' }>): void;
  /** A delivery that ended without an attempt, because its time was over while its endpoint was away. */
  givenUp(lane: Lane, waiting: Waiting): void;
  endpoint(lane: Lane, change: Change, result: Told): void;
}

export function createNotices(log: Log): Notices {
  return frozen({
    attempt(lane, waiting, { settled, result }) {
      const fields = { ...namesOf(lane, waiting), ...toFields(result), attempt: waiting.attempts + 1 };
      if (settled.outcome === 'delivered') return log.info('delivery.delivered', fields);
      // Bounces are nothing that somebody must look after.
      if (settled.outcome === 'failed')
        return waiting.delivery.kind === 'outbound' || waiting.delivery.task === 'report'
          ? log.warn('delivery.failed', fields)
          : log.error('delivery.failed', fields);
      log.warn('delivery.deferred', {
        ...fields,
        retry_in_s: Math.round(settled.wait / 1000),
        parked: settled.settlement.parked || undefined,
      });
    },
    givenUp(lane, waiting) {
      log.error('delivery.failed', {
        ...namesOf(lane, waiting),
        attempt: waiting.attempts,
        error: `endpoint ${lane.state.phase}`,
      });
    },
    endpoint(lane, change, result) {
      const fields = { account: lane.account, host: lane.host, ...toFields(result) };
      if (change === 'opened' || change === 'paused') return log.warn(`endpoint.${change}`, fields);
      log.info(`endpoint.${change}`, fields);
    },
  });
}

function namesOf(lane: Lane, { delivery }: Waiting) {
  return {
    delivery: delivery.id,
    kind: delivery.kind,
    message: delivery.messageId,
    account: lane.account,
    host: lane.host,
    ...delivery.batch,
  };
}

function toFields(result: Told) {
  const told = result.kind === 'answered' ? { status: result.status } : { error: result.error };
  return { ...told, ms: result.durationMs };
}
