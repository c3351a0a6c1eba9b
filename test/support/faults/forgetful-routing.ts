export * from '../../../src/inbound/routing.ts';

import { createRouting as createReal } from '../../../src/inbound/routing.ts';

const LOOK_MS = 100;

/** The routing of a daemon without a cached table: without the store every answer is unknown. */
export const createRouting: typeof createReal = (settings, deps) => {
  const real = createReal(settings, deps);
  let here = true;
  setInterval(() => {
    deps.store.revisions.one({ id: 'routing' }).then(
      () => {
        here = true;
      },
      () => {
        here = false;
      },
    );
  }, LOOK_MS).unref();
  return { ...real, lookup: (mailbox, domain) => (here ? real.lookup(mailbox, domain) : { kind: 'unknown' }) };
};
