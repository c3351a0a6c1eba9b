import { z } from 'zod';
import { MINUTE_MS } from './clock.ts';

/** The error text for a required value that is missing or empty. */
export const PLEASE_ENTER = 'Please enter a value';

/** A string of 1 to `max` characters. */
export function text(max: number) {
  return z.string().min(1, PLEASE_ENTER).max(max);
}

/** JSON of a given shape; undefined if it is something else. */
export function parseJson<T extends z.ZodType>(shape: T, json: string): z.output<T> | undefined {
  try {
    return shape.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined;
  }
}

/** An optional parameter. Null means absent and is removed before validation. */
export function optional<S extends z.ZodType>(schema: S) {
  return z.optional(schema);
}

/** Enough for nanoseconds and an offset. */
const LONGEST_TIME = 40;
const TIMESTAMP = /^(\d{4}-\d\d-\d\d)(?:[ Tt](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:[Zz]|([+-])(\d\d):?(\d\d))?)?$/;

/** A time in UTC: `YYYY-MM-DD HH:MM:SS`, or a date alone for its first second; also RFC 3339 with an offset. */
export const timestamp = z
  .string()
  .max(LONGEST_TIME)
  .transform((value, context) => {
    const [, date, time = '00:00:00', sign = '+', hours = '00', minutes = '00'] = TIMESTAMP.exec(value) ?? [];
    const parsed = new Date(`${date}T${time}Z`);
    // Date turns 30 February into a day in March; reject such dates.
    const exists =
      !Number.isNaN(parsed.getTime()) &&
      parsed.toISOString().startsWith(`${date}T${time}`) &&
      Number(hours) < 24 &&
      Number(minutes) < 60;
    const offset = (Number(hours) * 60 + Number(minutes)) * MINUTE_MS;
    const moment = new Date(parsed.getTime() + (sign === '-' ? offset : -offset));
    // Years must have four digits, in UTC as well.
    if (exists && moment.getUTCFullYear() >= 0 && moment.getUTCFullYear() <= 9999) return moment;
    context.addIssue({ code: 'custom', message: 'Please enter a time as YYYY-MM-DD HH:MM:SS in UTC' });
    return z.NEVER;
  });

/** The zero time of Go and .NET. */
const UNSET = Date.parse('0001-01-01T00:00:00Z');

/** Whether a time means "not set". */
export function isUnset(time: Date): boolean {
  return time.getTime() === UNSET;
}

/** An optional `timestamp`. */
export const optionalTime = z.optional(timestamp.transform((time) => (isUnset(time) ? undefined : time)));

const NOUNS: Readonly<Record<string, string>> = {
  string: 'a string',
  int: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  array: 'an array',
  object: 'a struct',
};

function unit(origin: string): string {
  return origin === 'string' ? ' characters' : origin === 'array' ? ' items' : '';
}

/** The error text for a zod issue, readable without knowing zod. Texts defined in a schema take precedence. */
export function issueText(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined) return PLEASE_ENTER;
  switch (issue.code) {
    case 'invalid_type':
      return `Please enter ${NOUNS[issue.expected] ?? 'another kind of value'}`;
    case 'too_big':
      return `Please enter at most ${issue.maximum}${unit(issue.origin)}`;
    case 'too_small':
      return `Please enter at least ${issue.minimum}${unit(issue.origin)}`;
    case 'invalid_value':
      return `Please enter one of: ${issue.values.join(', ')}`;
    case 'invalid_format':
      return issue.format === 'email' ? 'Not a valid email address' : 'Please enter a valid value';
    default:
      return 'Please enter a valid value';
  }
}
