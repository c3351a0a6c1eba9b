// Decides whether mail for a URL is pulled by its consumer instead of posted.

/** The URL of a route whose consumer names none. */
export const PULL_URL = 'pull:';

/** `pull:`, or `pull:NAME` for a queue of its own. Only routes have such URLs, never webhooks. */
const FORM = /^pull:(?:[a-z0-9._-]{1,64})?$/;

/** Whether mail for this URL waits until a consumer pulls it. */
export function isPulled(url: string): boolean {
  return FORM.test(url);
}

/** Whether it looks like such a URL, so that an error can say what is wrong with it. */
export function isMeantAsPulled(url: string): boolean {
  return /^pull:/i.test(url);
}
