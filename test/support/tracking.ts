import type { Outbox } from '../../src/events/apply.ts';
import type { Lists } from '../../src/events/lists.ts';
import { createRecorder } from '../../src/events/record.ts';
import { createAccountLookup, createMessageLookup } from '../../src/returns/feedback.ts';
import { createOpenClickTracking, createTrackedEventQueue } from '../../src/returns/opens-and-clicks.ts';
import { createUnsubscribe, createUnsubscribeLinks } from '../../src/returns/unsubscribe.ts';

import { StoreAway } from '../../src/store/driver/port.ts';
import type { Store } from '../../src/store/store.ts';
import type { TestClock } from './clock.ts';
import type { createTestLog } from './log.ts';

/** What tokens of the tests are signed with. */
export const TOKEN_SECRET = 'a secret for the tokens of tests';

/** The real parts behind the links in messages; `secretAway` is a store that was never reached. */
export function createTestTracking(deps: {
  store: Store;
  lists: Lists;
  outbox: Outbox;
  clock: TestClock;
  log: ReturnType<typeof createTestLog>;
}) {
  const { store, lists, clock, log } = deps;
  const state = { secretAway: false };
  const secret = async () => {
    if (state.secretAway) throw new StoreAway('away');
    return TOKEN_SECRET;
  };
  const accountOf = createAccountLookup(store);
  const recorder = createRecorder(deps);
  const queue = createTrackedEventQueue({ accountOf, recorder, clock, log });
  const unsubscribeLinks = createUnsubscribeLinks({
    find: createMessageLookup(store, accountOf),
    secret,
    unsubscribe: createUnsubscribe({ recorder, lists }),
    clock,
  });
  return {
    state,
    recorder,
    queue,
    tracking: { openClickTracking: createOpenClickTracking({ queue, secret, clock }), unsubscribeLinks },
  };
}
