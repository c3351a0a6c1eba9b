/** Octets of a message that leaves. Servers of today take at least so many, and many no more. */
export const MAX_COMPOSED = 25 * 1024 * 1024;
/** What was taken from an account may be as large as it was taken: with this much for what is added. */
const MARGIN = 1024 * 1024;

/** A message became larger than it may be: no server would take it, now or later. */
export class TooLarge extends Error {
  override readonly name = 'TooLarge';
  constructor() {
    super('the message is larger than it may be');
  }
}

/** Octets that a message may become which was handed over with so many. */
export function mostOctets(size: number): number {
  return Math.max(MAX_COMPOSED, size + MARGIN);
}
