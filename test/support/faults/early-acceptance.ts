export * from '../../../src/inbound/accept.ts';

import { createAcceptance as createReal } from '../../../src/inbound/accept.ts';
import type { Spool } from '../../../src/queue/delivery.ts';

/** How long what was promised stays in memory: long enough for a kill to find some on a slow machine. */
const BEHIND_MS = 500;

/**
 * The acceptance of a daemon that writes behind: it says yes at once and puts the message on the queue a moment later.
 */
export const createAcceptance: typeof createReal = (settings, deps) => {
  const accept: Spool['accept'] = async (message, deliveries) => {
    setTimeout(() => void deps.spool.accept(message, deliveries), BEHIND_MS);
    return 'accepted';
  };
  return createReal(settings, { ...deps, spool: { ...deps.spool, accept } });
};
