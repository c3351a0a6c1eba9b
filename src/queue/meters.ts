import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { tableOf } from '../base/tables.ts';
import { DELIVERY_KINDS, type Delivery, type DeliveryKind, ENDPOINT_KINDS, KINDS } from './delivery.ts';
import type { DeliveryOutcome, Roads } from './road.ts';
import type { Change, HeldBy } from './schedule/breaker.ts';
import type { Lane } from './schedule/lane.ts';
import type { Waiting } from './schedule/waiting.ts';
import type { AttemptSummary, Settled } from './settle.ts';

const HOLDER_WORDS: Readonly<Record<HeldBy, string>> = { account: 'its account', operator: 'the operator' };
const OUTCOMES = ['delivered', 'deferred', 'failed'] as const;
const CODES = ['2xx', '3xx', '4xx', '5xx', 'other', 'none'] as const;

/** Counters of deliveries. */
export type Meters = ReturnType<typeof createDeliveryMeters>;

export function createDeliveryMeters(metrics: Metrics) {
  const attempts = tableOf(DELIVERY_KINDS, (of) =>
    tableOf(OUTCOMES, (outcome) =>
      tableOf(CODES, (code) => metrics.counter('postern_attempts_total', { class: of, outcome, code })),
    ),
  );
  const seconds = tableOf(DELIVERY_KINDS, (of) => metrics.histogram('postern_attempt_seconds', { class: of }));
  const shared = metrics.counter('postern_batched_deliveries_total');
  const dead = tableOf(DELIVERY_KINDS, (of) => metrics.counter('postern_dead_letters_total', { class: of }));
  return frozen({
    /** `deliveries`: the number that shared the attempt. */
    attempt(
      delivery: Pick<Delivery, 'kind'>,
      result: AttemptSummary,
      { outcome }: Pick<Settled, 'outcome'>,
      deliveries: number,
    ) {
      attempts[delivery.kind][outcome][codeOf(result)].add(deliveries);
      if (deliveries > 1) shared.add(deliveries);
      seconds[delivery.kind].observe(result.durationMs / 1000);
    },
    /** A delivery was given up. */
    dead: (kind: DeliveryKind) => dead[kind].add(),
  });
}

/** Registers the endpoint gauges; each reads all lanes once. */
export function registerEndpointGauges(lanes: { all(): Iterable<Lane> }, metrics: Metrics): void {
  metrics.gauge('postern_endpoints', () => {
    const counts = tableOf(ENDPOINT_KINDS, () => ({ closed: 0, open: 0, half_open: 0, paused: 0 }));
    for (const { kind, phase, probing } of lanes.all())
      counts[KINDS[kind].endpoint][probing && phase !== 'closed' ? 'half_open' : phase]++;
    return ENDPOINT_KINDS.flatMap((endpoint) =>
      Object.entries(counts[endpoint]).map(([state, count]) => [{ endpoint, state }, count] as const),
    );
  });
  const sum = (of: (lane: Lane) => number) => () => {
    const counts = tableOf(ENDPOINT_KINDS, () => 0);
    for (const lane of lanes.all()) counts[KINDS[lane.kind].endpoint] += of(lane);
    return ENDPOINT_KINDS.map((endpoint) => [{ endpoint }, counts[endpoint]] as const);
  };
  metrics.gauge(
    'postern_attempts_in_flight',
    sum(({ posting }) => posting),
  );
  metrics.gauge(
    'postern_endpoint_places',
    sum(({ concurrency }) => concurrency),
  );
}

function codeOf(result: AttemptSummary): (typeof CODES)[number] {
  if (result.kind !== 'answered') return 'none';
  if (result.status >= 600 || result.status < 200) return 'other';
  return result.status < 300 ? '2xx' : result.status < 400 ? '3xx' : result.status < 500 ? '4xx' : '5xx';
}

/** The log lines of the dispatcher. They name the host of an endpoint, never its URL, which may contain secrets. */
export function createDeliveryNotices(log: Log, roads: Roads) {
  return frozen({
    attempt(lane: Lane, waiting: Waiting, { settled, result }: Extract<DeliveryOutcome, { kind: 'settled' }>) {
      const { batch } = settled.settlement.attempt ?? {};
      const fields = {
        ...namesOf(lane, waiting),
        ...toFields(result),
        attempt: waiting.attempts + 1,
        ...(batch !== undefined && { batch }),
      };
      if (settled.outcome === 'delivered') return log.info('delivery.delivered', fields);
      if (settled.outcome === 'failed')
        return roads[waiting.delivery.kind].isAlarming(waiting.delivery)
          ? log.error('delivery.failed', fields)
          : log.warn('delivery.failed', fields);
      log.warn('delivery.deferred', {
        ...fields,
        retry_in_s: Math.round(settled.wait / 1000),
        parked: settled.settlement.parked || undefined,
      });
    },
    /** A delivery expired without an attempt while its endpoint was unavailable. */
    givenUp(lane: Lane, waiting: Waiting) {
      log.error('delivery.failed', {
        ...namesOf(lane, waiting),
        attempt: waiting.attempts,
        error: lane.state.hold ? `held by ${HOLDER_WORDS[lane.state.hold.by]}` : `endpoint ${lane.phase}`,
      });
    },
    /** A delivery expired because no consumer acknowledged it. */
    notPulled({ delivery, attempts }: Waiting) {
      const { id, kind, messageId: message, account } = delivery;
      log.error('delivery.failed', {
        delivery: id,
        kind,
        message,
        account,
        attempt: attempts,
        error: 'not acknowledged',
      });
    },
    endpoint(lane: Lane, change: Change, result: AttemptSummary) {
      const fields = { account: lane.account, host: lane.host, ...toFields(result) };
      if (change === 'opened') return log.warn('endpoint.down', fields);
      if (change === 'paused') return log.warn('endpoint.paused', fields);
      log.info(change === 'closed' ? 'endpoint.up' : 'endpoint.resumed', fields);
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

function toFields(result: AttemptSummary) {
  const told = result.kind === 'answered' ? { status: result.status } : { error: result.error };
  return { ...told, ms: result.durationMs };
}
