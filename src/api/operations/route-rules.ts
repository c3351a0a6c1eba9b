import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { CONDITIONS, DMARC_RESULTS } from '../../inbound/conditions.ts';
import { ACTION_NAMES, ACTIONS } from '../../inbound/decision.ts';
import { ATTACHMENT_MODES, FORMAT_NAMES, toStyle } from '../../inbound/formats.ts';
import type { AlsoRow, InboundRouteRow, When } from '../../store/rows/domains.ts';
import { int, listOf, routeUrl, str } from './fields.ts';

// The conditions and actions of routes: parameters, records, and the rows between them.

/** Alternatives of one condition. */
const MAX_GLOBS = 50;
/** Characters of all globs of a route. */
const MAX_GLOB_TEXT = 1000;
const MAX_HEADERS = 20;
const MAX_ALSO = 10;
const MAX_TAGS = 20;
/** Routes with the same pattern: each of them is checked for each message. */
export const MAX_OF_A_PATTERN = 25;

const glob = text(255).refine((value) => !/\p{Cc}/u.test(value), 'Please enter a text without control characters');
/** One value, or a list of alternatives. */
const oneOrMore = <S extends z.ZodType>(one: S) =>
  z.union([one.transform((value) => [value]), z.array(one).min(1).max(MAX_GLOBS)]);
const about = (name: keyof When) => ({ description: CONDITIONS[name].about });
const globs = (name: keyof When) => optional(oneOrMore(glob)).meta(about(name));
/**
 * Narrower than RFC 5322 section 2.2: names of fields in use, and nothing that a database could take for an operator.
 */
export const fieldName = z.string().regex(/^[a-z0-9][a-z0-9._-]{0,75}$/i, 'Please enter the name of a header field');

/** The conditions of a route, as parameters. */
export const when = optional(
  z
    .strictObject({
      sender: globs('sender'),
      from: globs('from'),
      subject: globs('subject'),
      header: optional(
        z
          .record(fieldName, z.union([oneOrMore(glob), z.literal(false).transform((): string[] => [])]))
          .refine((value) => Object.keys(value).length <= MAX_HEADERS, `Please enter at most ${MAX_HEADERS} fields`),
      ).meta(about('header')),
      size: optional(
        z.strictObject({
          over: optional(z.int().min(0)).describe('more bytes than this'),
          under: optional(z.int().min(1)).describe('fewer bytes than this'),
        }),
      ).meta(about('size')),
      automated: optional(z.boolean()).meta(about('automated')),
      authenticated: optional(z.boolean()).meta(about('authenticated')),
      dmarc: optional(oneOrMore(z.enum(DMARC_RESULTS))).meta(about('dmarc')),
      spam: optional(oneOrMore(z.enum(['ham', 'spam', 'unknown']))).meta(about('spam')),
      virus: optional(oneOrMore(z.enum(['clean', 'infected', 'unknown']))).meta(about('virus')),
    } satisfies Record<keyof When, z.ZodType>)
    .refine(({ sender = [], from = [], subject = [], header = {} }) => {
      const all = [...sender, ...from, ...subject, ...Object.values(header).flat()];
      return all.join('').length <= MAX_GLOB_TEXT;
    }, `Please enter at most ${MAX_GLOB_TEXT} characters of texts to compare with`),
).describe(
  'conditions on the message, all of which must be met. Texts are patterns (`*`, `?`), ignoring case; lists ' +
    'are alternatives. Empty: matches all mail',
);

type GivenWhen = NonNullable<z.output<typeof when>>;

export const action = optional(z.enum(ACTION_NAMES)).describe(
  `action for matching mail: ${ACTION_NAMES.map((name) => `${name} (${ACTIONS[name].about})`).join(', ')}; ` +
    'post for a new route if omitted',
);

export const tags = optional(
  z
    .array(text(100).refine((value) => !/\p{Cc}/u.test(value), 'Please enter a tag without control characters'))
    .max(MAX_TAGS),
).describe('added to `tags` in the payload of mail that the route takes, or passes on with the action tag');

export const priority = optional(z.int().min(-1000).max(1000)).describe(
  'routes with a higher priority are tried first, regardless of their patterns; 0 for a new route if omitted',
);

const alsoOne = z.strictObject({
  url: routeUrl,
  format: optional(z.enum(FORMAT_NAMES)),
  raw: optional(z.boolean()),
  attachments: optional(z.enum(ATTACHMENT_MODES)),
  link_over: optional(z.int().min(0)),
  facts: optional(z.boolean()),
  password: optional(z.string().max(255)),
});

export const also = optional(z.array(alsoOne).max(MAX_ALSO)).describe(
  'further URLs to post each message to, at most ten, each with its own format and deliveries. A new list ' +
    'replaces the previous one; an entry without a password keeps the password of the same URL',
);

type GivenAlso = NonNullable<z.output<typeof also>>;

/** The fields of these rules in records. */
export const ruleRecord = {
  action: z.enum(ACTION_NAMES).describe('action for matching mail'),
  when: z.record(z.string(), z.unknown()).describe('conditions on the message; empty if it matches all mail'),
  tags: listOf(z.string(), 'added to `tags` in the payload'),
  priority: int('routes with a higher priority are tried first'),
  also: listOf(
    z.object({
      url: str('a further URL to post mail to'),
      format: z.enum(FORMAT_NAMES),
      raw: z.boolean(),
      attachments: z.enum(ATTACHMENT_MODES),
      link_over: z.int(),
      facts: z.boolean(),
      has_password: z.boolean(),
    }),
    'further URLs',
  ),
};

/** Converts conditions to the form of rows; null if there are none. */
export function toWhenRow({ header, size, ...given }: GivenWhen): When | null {
  const fields = Object.entries(header ?? {}).map(([name, is]) => ({ name, is }));
  const row = {
    ...withoutUndefined(given),
    ...(fields.length > 0 && { header: fields }),
    ...(size && { size: withoutUndefined(size) }),
  };
  return Object.keys(row).length === 0 ? null : row;
}

/** Converts conditions to the form of records: a list of one becomes the value itself. */
export function toWhenRecord(row: When | null | undefined): Record<string, unknown> {
  const { header, ...rest } = row ?? {};
  const shown = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, shownValue(value)]));
  if (!header) return shown;
  return {
    ...shown,
    header: Object.fromEntries(header.map(({ name, is }) => [name, is.length === 0 ? false : shownValue(is)])),
  };
}

const shownValue = (value: unknown): unknown => (Array.isArray(value) && value.length === 1 ? value[0] : value);

/** Whether two routes have the same conditions, in any order. */
export function sameWhen(a: When | null | undefined, b: When | null | undefined): boolean {
  return canonical(a ?? {}) === canonical(b ?? {});
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).toSorted().join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(String(value).toLowerCase());
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return `{${members
    .map(([name, member]) => `${name}:${canonical(member)}`)
    .toSorted()
    .join()}}`;
}

/**
 * Converts further URLs to the form of rows. A URL keeps its number, which is never reused: mail that waits for a
 * removed URL must not get the format and the password of a new one.
 */
export function toAlsoRows(
  given: GivenAlso,
  { also: before = [], lastAlso = 0 }: Pick<InboundRouteRow, 'also' | 'lastAlso'>,
): Required<Pick<InboundRouteRow, 'also' | 'lastAlso'>> {
  let last = lastAlso;
  const also = given.map(({ url, link_over: linkOver, password, ...style }) => {
    const known = before.find((one) => one.url === url);
    return {
      n: known?.n ?? ++last,
      url,
      ...withoutUndefined({ ...style, linkOver }),
      password: password === undefined ? (known?.password ?? null) : password || null,
    };
  });
  return { also, lastAlso: last };
}

export function toAlsoRecord(row: AlsoRow) {
  const { linkOver, facts, ...style } = toStyle(row);
  return { url: row.url, ...style, link_over: linkOver, facts, has_password: Boolean(row.password) };
}

export function withoutUndefined<T extends object>(given: T): { [K in keyof T]: Exclude<T[K], undefined> };
export function withoutUndefined(given: object): object {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
