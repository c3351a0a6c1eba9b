/** Milliseconds that `Retry-After` asks to wait (RFC 9110 section 10.2.3: seconds, or a date); undefined when it says nothing usable. */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  // Only the forms that begin with the name of a day; Date.parse alone takes nearly anything, "-5" included.
  const date = /^[A-Z][a-z]{2,8},? /.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
