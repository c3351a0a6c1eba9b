import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Acceptance, Accepted, Arrival, Routed } from '../inbound/types.ts';
import type { AttemptRecord, QueuedDelivery, Selection, Spool } from '../spool/types.ts';

export interface QueueDeps {
  readonly spool: Spool;
  readonly acceptance: Acceptance;
  readonly clock: Clock;
  readonly log: Log;
}

/** Of inbound mail: batches of events are asked for by `webhooks`. */
type OwnSelection = Omit<Selection, 'account' | 'kind' | 'webhook'>;

/** Inbound mail of one account on this host's spool. */
export interface AccountQueue {
  backlog(): number;
  deliveries(selection: OwnSelection, limit: number): Promise<QueuedDelivery[]>;
  attempts(delivery: QueuedDelivery): Promise<AttemptRecord[]>;
  replay(selection: OwnSelection): Promise<number>;
  /** Sends what waits for a route to another URL. The route must have been found in the account's store. */
  redirect(route: { readonly id: string; readonly account: string }, url: string): Promise<void>;
  /** Takes responsibility for a message. */
  accept(arrival: Arrival, routed: readonly Routed[], bytes: Uint8Array): Promise<Accepted>;
}

const CHUNK_BYTES = 65_536;

/** Binds it to an account. */
export function bindQueue(deps: QueueDeps, account: string): AccountQueue {
  const { spool, clock } = deps;
  const own = (selection: OwnSelection) => ({ ...selection, account, kind: 'mail' as const });
  return {
    backlog: () => spool.backlog(account),
    deliveries: (selection, limit) => spool.list(own(selection), limit),
    attempts: (delivery) => (delivery.account === account ? spool.attempts(delivery.id) : Promise.resolve([])),
    replay: (selection) => spool.replay(own(selection), clock.now()),
    async redirect(route, url) {
      if (route.account === account) await spool.redirect(route.id, url);
    },
    accept: (arrival, routed, bytes) => accept(deps, arrival, routed, bytes),
  };
}

async function accept(
  { spool, acceptance, log }: QueueDeps,
  arrival: Arrival,
  routed: readonly Routed[],
  bytes: Uint8Array,
): Promise<Accepted> {
  if (!spool.hasRoom()) return { outcome: 'full' };
  const { messageId, body } = acceptance.begin();
  try {
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) await body.write(bytes.subarray(at, at + CHUNK_BYTES));
    return await acceptance.accept(messageId, arrival, routed, await body.finish());
  } catch (error) {
    await body.abort();
    log.error('api.fault', { part: 'acceptance', error });
    return { outcome: 'fault' };
  }
}
