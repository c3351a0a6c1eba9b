import type { Copies } from '../../src/sending/copies.ts';
import type { EventCopies } from '../../src/webhooks/event-copies.ts';

/** Of a host that copies no mail. */
export const NO_COPIES: Copies = {
  epochForNew: () => undefined,
  write: async () => {},
  unwrite: async () => {},
  read: async () => undefined,
  claim: async () => ({ kind: 'ours', epoch: null }),
  holds: () => true,
  record: async () => {},
  ended: async () => {},
  cancelled: async () => {},
  dropped: async () => {},
  sweep: async () => 0,
  stop() {},
};

/** Of a host that copies no events. */
export const NO_EVENT_COPIES: Pick<EventCopies, 'write'> = { write: async (wanted) => wanted };
