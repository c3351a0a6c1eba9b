import type { Log } from '../../base/log.ts';
import { isReportUrl } from '../../mail/returns/address.ts';
import { isMailUrl } from '../../mail/sending.ts';
import type { Carried } from '../carry.ts';
import type { Change } from '../endpoint.ts';
import type { Told } from '../types.ts';
import type { Lane } from './lane.ts';
import type { Waiting } from './waiting.ts';

/** The log lines of the dispatcher. They name the host of an endpoint and never its URL, which may hold secrets. */
export interface Notices {
  attempt(lane: Lane, waiting: Waiting, carried: Extract<Carried, { kind: 'settled' }>): void;
  /** A delivery that ended without an attempt, because its time was over while its endpoint was away. */
  givenUp(lane: Lane, waiting: Waiting): void;
  endpoint(lane: Lane, change: Change, result: Told): void;
}

export function createNotices(log: Log): Notices {
  return Object.freeze({
    attempt(lane: Lane, waiting: Waiting, { settled, result }: Extract<Carried, { kind: 'settled' }>) {
      const fields = { ...namesOf(lane, waiting), ...toFields(result), attempt: waiting.attempts + 1 };
      if (settled.outcome === 'delivered') return log.info('delivery.delivered', fields);
      // Bounces are nothing that somebody must look after.
      if (settled.outcome === 'failed')
        return isMailUrl(lane.url) || isReportUrl(lane.url)
          ? log.warn('delivery.failed', fields)
          : log.error('delivery.failed', fields);
      log.warn('delivery.deferred', {
        ...fields,
        retry_in_s: Math.round(settled.wait / 1000),
        parked: settled.settlement.parked || undefined,
      });
    },
    givenUp(lane: Lane, waiting: Waiting) {
      log.error('delivery.failed', {
        ...namesOf(lane, waiting),
        attempt: waiting.attempts,
        error: `endpoint ${lane.state.phase}`,
      });
    },
    endpoint(lane: Lane, change: Change, result: Told) {
      const fields = { account: lane.account, host: lane.host, ...toFields(result) };
      if (change === 'opened' || change === 'paused') return log.warn(`endpoint.${change}`, fields);
      log.info(`endpoint.${change}`, fields);
    },
  });
}

function namesOf(lane: Lane, { delivery }: Waiting) {
  return {
    delivery: delivery.id,
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
