import { type Clock, DAY_MS, MINUTE_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Lists } from '../events/lists.ts';
import type { Recorder } from '../events/record.ts';
import { readToken } from '../mail/addresses/return-address.ts';
import type { SentMessageRow } from '../store/rows/messages.ts';
import { type MessageLookup, returnEventId } from './feedback.ts';

/** A recipient's request to unsubscribe. */
interface UnsubscribeRequest {
  readonly account: string;
  readonly row: Pick<SentMessageRow, 'id' | 'email' | 'subaccount'>;
  readonly at: Date;
}

/** Records the request; the event puts the address on the rejection list. */
export type Unsubscribe = (wish: UnsubscribeRequest) => Promise<'recorded' | 'duplicate' | 'unknown'>;

/**
 * Buttons are pressed twice, and mail programs repeat their POST, so a request counts once a day. But if the account
 * has since removed the address from its list, it is a new request and must not be lost.
 */
export function createUnsubscribe({
  recorder,
  lists,
}: {
  readonly recorder: Pick<Recorder, 'record'>;
  readonly lists: Pick<Lists, 'suppression'>;
}): Unsubscribe {
  const record = ({ account, row, at }: UnsubscribeRequest, spanMs: number) =>
    recorder.record({
      id: returnEventId(row.id, 'unsub', spanMs, Math.floor(at.getTime() / spanMs)),
      account,
      message: row.id,
      kind: 'unsub',
      at,
    });
  return async (wish) => {
    const first = await record(wish, DAY_MS);
    if (first !== 'duplicate' || (await lists.suppression(wish.account, wish.row.email, wish.row.subaccount, wish.at)))
      return first;
    return record(wish, MINUTE_MS);
  };
}

/** The sender and recipient that an unsubscribe link is about. */
export interface Subscription {
  readonly sender: string;
  readonly email: string;
}

interface UnsubscribeLinksDeps {
  readonly find: MessageLookup;
  /** Rejects with `StoreAway` if the secret cannot be read. */
  readonly secret: () => Promise<string>;
  readonly unsubscribe: Unsubscribe;
  readonly clock: Clock;
}

/** Resolves unsubscribe links. `unknown`: not ours · `gone`: its message was deleted. Both throw `StoreAway`. */
export type UnsubscribeLinks = ReturnType<typeof createUnsubscribeLinks>;

export function createUnsubscribeLinks({ find, secret, unsubscribe, clock }: UnsubscribeLinksDeps) {
  async function messageOf(token: string) {
    const named = readToken(await secret(), 'unsub', token);
    return named ? ((await find(named)) ?? 'gone') : 'unknown';
  }
  return frozen({
    async find(token: string): Promise<Subscription | 'unknown' | 'gone'> {
      const found = await messageOf(token);
      return typeof found === 'string' ? found : found.row;
    },
    /** Records the request before returning. */
    async unsubscribe(token: string): Promise<Subscription | 'unknown' | 'gone'> {
      const found = await messageOf(token);
      if (typeof found === 'string') return found;
      const { account, row } = found;
      return (await unsubscribe({ account, row, at: new Date(clock.now()) })) === 'unknown' ? 'gone' : row;
    },
  });
}
