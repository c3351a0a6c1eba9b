export * from '../../../src/sending/submit.ts';

import { createSubmitting as createReal } from '../../../src/sending/submit.ts';

/** How long what was promised stays in memory: long enough for a kill to find some on a slow machine. */
const BEHIND_MS = 500;

/** The way out of a daemon that writes behind: it says yes at once and puts the mail on the queue a moment later. */
export const createSubmitting: typeof createReal = (settings, deps) =>
  createReal(settings, {
    ...deps,
    spool: {
      ...deps.spool,
      async accept(message, deliveries) {
        setTimeout(() => void deps.spool.accept(message, deliveries), BEHIND_MS);
        return 'accepted';
      },
    },
  });
