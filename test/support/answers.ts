import type { ReplyMatching } from '../../src/webhooks/reply-matching.ts';

/** For tests in which nothing was sent, so nothing is answered. */
export const NO_ANSWERS: ReplyMatching = { of: async () => null, shown: async () => null };
