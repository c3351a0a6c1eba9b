import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Spool } from '../spool/types.ts';
import { subaccountId } from '../store/subaccounts.ts';
import type { Holding } from './types.ts';

export interface ReleasingDeps {
  readonly spool: Pick<Spool, 'retry'>;
  readonly holding: Holding;
  readonly clock: Clock;
  readonly log: Log;
}

/** Mail of a subaccount that is held back, or is no longer. */
export interface Releasing {
  /** None of it leaves from now on. */
  hold(account: string, subaccount: string): void;
  /** Lets it leave at once, now that it may. Never throws: what it cannot release asks again by itself, within a minute or so. Answers how many. */
  release(account: string, subaccount: string): Promise<number>;
}

/** Releases what waits on the spool of this host, whenever it was put there. */
export function createReleasing({ spool, holding, clock, log }: ReleasingDeps): Releasing {
  return Object.freeze({
    hold: holding.changed,
    async release(account: string, subaccount: string) {
      holding.changed(account, subaccount);
      try {
        return await spool.retry(
          { account, kind: 'outgoing', routeIds: [subaccountId(account, subaccount)], states: ['waiting'] },
          clock.now(),
        );
      } catch (error) {
        log.error('message.fault', { account, error });
        return 0;
      }
    },
  });
}
