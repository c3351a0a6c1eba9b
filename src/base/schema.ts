import { z } from 'zod';

/** What a person reads when a required text is there but empty. */
export const PLEASE_ENTER = 'Please enter a value';

/** A text of at least one and at most `max` characters. */
export function text(max: number) {
  return z.string().min(1, PLEASE_ENTER).max(max);
}

/** A parameter that may be left out. Null never gets this far: it means absent, and is taken away before. */
export function optional<S extends z.ZodType>(schema: S) {
  return z.optional(schema);
}

const TIMESTAMP = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.\d{1,6})?Z?)?$/;

/** A time in UTC: `YYYY-MM-DD HH:MM:SS`; also with the T and Z of ISO 8601, or the date alone for its first second. */
export const timestamp = z.string().max(32).transform((value, context) => {
  const [, date, time = '00:00:00'] = TIMESTAMP.exec(value) ?? [];
  const parsed = new Date(`${date}T${time}Z`);
  // A Date rolls 30 February over to March: what was meant is unknown then.
  if (!Number.isNaN(parsed.getTime()) && parsed.toISOString().startsWith(`${date}T${time}`)) return parsed;
  context.addIssue({ code: 'custom', message: 'Please enter a time as YYYY-MM-DD HH:MM:SS in UTC' });
  return z.NEVER;
});

const NOUNS: Readonly<Record<string, string>> = {
  string: 'a string', int: 'a whole number', number: 'a number', boolean: 'true or false', array: 'an array', object: 'a struct',
};

function unit(origin: string): string {
  return origin === 'string' ? ' characters' : origin === 'array' ? ' items' : '';
}

/** Words for what zod found, for people who have never heard of zod. Texts that a schema brings along win over these. */
export function words(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined) return PLEASE_ENTER;
  switch (issue.code) {
    case 'invalid_type': return `Please enter ${NOUNS[issue.expected] ?? 'another kind of value'}`;
    case 'too_big': return `Please enter at most ${issue.maximum}${unit(issue.origin)}`;
    case 'too_small': return `Please enter at least ${issue.minimum}${unit(issue.origin)}`;
    case 'invalid_value': return `Please enter one of: ${issue.values.join(', ')}`;
    case 'invalid_format': return issue.format === 'email' ? 'Not a valid email address' : 'Please enter a valid value';
    default: return 'Please enter a valid value';
  }
}
