import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { TokenSecret } from '../store/secrets.ts';
import type { Store } from '../store/store.ts';
import { createAccountOf } from './account-numbers.ts';
import { createReturns, type Returns } from './returns.ts';
import type { Lists, Recorder } from './types.ts';
import { createUnsubscribe, createUnsubscribeLinks, type UnsubscribeLinks } from './unsubscribe.ts';
import { createVisitQueue, type VisitQueue } from './visit-queue.ts';
import { createVisits, type Visits } from './visits.ts';

export interface FeedbackDeps {
  readonly store: Store;
  readonly tokenSecret: TokenSecret;
  readonly recorder: Recorder;
  readonly lists: Lists;
  readonly clock: Clock;
  readonly log: Log;
}

/** What the world says of a message that was sent: by mail that comes back, and by the links in it. */
export interface Feedback {
  readonly returns: Returns;
  readonly tracking: { readonly visits: Visits; readonly unsubscribeLinks: UnsubscribeLinks };
  readonly visitQueue: VisitQueue;
}

/** Builds the parts that turn feedback into events. */
export function createFeedback({ store, tokenSecret, recorder, lists, clock, log }: FeedbackDeps): Feedback {
  const secret = tokenSecret.read;
  const accountOf = createAccountOf(store);
  const unsubscribe = createUnsubscribe({ recorder, lists });
  const visitQueue = createVisitQueue({ accountOf, recorder, clock, log });
  return Object.freeze({
    returns: createReturns({ store, accountOf, recorder, unsubscribe, secret, log }),
    tracking: Object.freeze({
      visits: createVisits({ queue: visitQueue, secret, clock }),
      unsubscribeLinks: createUnsubscribeLinks({ store, accountOf, secret, unsubscribe, clock }),
    }),
    visitQueue,
  });
}
