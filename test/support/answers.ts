import type { Answers } from '../../src/webhooks/answers.ts';

/** For tests in which nothing was sent, so nothing is answered. */
export const NO_ANSWERS: Answers = { of: async () => null, shown: async () => null };
