/**
 * Longest text that a template may become, in characters: a few bytes of tags can ask for a long value any number of
 * times.
 */
export const MAX_RENDERED = 10_000_000;

/** What was to be rendered would be longer than it may be. */
export class TooLong extends Error {
  override readonly name = 'TooLong';
}

/** A template says something that cannot be done, now or later. The message is for whoever wrote the template. */
export class FaultyTemplate extends Error {
  override readonly name = 'FaultyTemplate';
}
