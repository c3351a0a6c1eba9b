/** Longest rendered template, in characters: a few bytes of tags can repeat a long value any number of times. */
export const MAX_RENDERED = 10_000_000;

/** The rendered text would be too long. */
export class RenderedTooLong extends Error {
  override readonly name = 'RenderedTooLong';
}

/** A template contains something invalid or unsupported. The message is meant for its author. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError';
}
