/** The limit of an answer that knows no limit. */
export const ANSWER_BYTES = Number.POSITIVE_INFINITY;

export { toAnswerText } from '../../../src/webhooks/post/wire.ts';
