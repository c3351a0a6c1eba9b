import { NO_METRICS } from '../../src/base/metrics.ts';
import { createRunningTime, type RunningTime } from '../../src/base/running-time.ts';
import { tableOf } from '../../src/base/tables.ts';
import { DELIVERY_KINDS } from '../../src/queue/delivery.ts';
import { createDispatcher, type Dispatcher, type DispatcherDeps } from '../../src/queue/dispatcher.ts';
import type { Road, Roads, SenderReports } from '../../src/queue/road.ts';
import { type Backlog, createBacklog } from '../../src/queue/schedule/backlog.ts';
import { createWebhookRoad, type WebhookRoadDeps, type WebhookRoadSettings } from '../../src/webhooks/road.ts';
import { NO_ANSWERS } from './answers.ts';
import { NO_NOTES } from './notes.ts';

const nobody = () => Promise.reject(new Error('this test has no such road'));

/** For kinds of deliveries that a test has nothing to do with. */
export const NO_ROAD: Road = {
  concurrency: 1,
  concurrencyPerEndpoint: 1,
  concurrencyAtStart: 1,
  heedsLatency: false,
  limit: Number.POSITIVE_INFINITY,
  timed: false,
  isAlarming: () => true,
  prepare: nobody,
  expire: nobody,
};

/** For roads whose messages need no report. */
export const NO_SENDER_REPORTS: SenderReports = { tell: async () => {} };

export interface WebhookDispatcherDeps
  extends Omit<WebhookRoadDeps, 'senderReports' | 'scanning' | 'answers' | 'notes' | 'steps' | 'metrics' | 'spool'>,
    Omit<DispatcherDeps, 'roads' | 'metrics' | 'backlog'> {
  readonly backlog?: Backlog;
  readonly answers?: WebhookRoadDeps['answers'];
  readonly steps?: WebhookRoadDeps['steps'];
  readonly time: RunningTime;
}

/** A dispatcher that takes messages and events to webhooks, and other kinds over `others`. */
export function createWebhookDispatcher(
  settings: WebhookRoadSettings,
  deps: WebhookDispatcherDeps,
  others: Partial<Roads> = {},
): Dispatcher {
  const own = { senderReports: NO_SENDER_REPORTS, scanning: undefined, notes: NO_NOTES, metrics: NO_METRICS };
  const steps = async () => new Map();
  const parts = { backlog: createBacklog(1000), steps, answers: NO_ANSWERS, ...deps, ...own };
  const webhooks = createWebhookRoad(settings, parts);
  const none = tableOf(DELIVERY_KINDS, () => NO_ROAD);
  const roads = { ...none, inbound: webhooks, events: webhooks, ...others };
  return createDispatcher({ ...parts, roads });
}

/** A dispatcher that is never started, so it delivers nothing. */
export function createIdleDispatcher(deps: Pick<DispatcherDeps, 'spool' | 'clock' | 'ids' | 'log'>): Dispatcher {
  const roads = tableOf(DELIVERY_KINDS, () => NO_ROAD);
  const time = createRunningTime(deps.clock);
  return createDispatcher({ ...deps, roads, time, backlog: createBacklog(1000), metrics: NO_METRICS });
}
