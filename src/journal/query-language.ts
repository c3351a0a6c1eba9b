import { DAY_MS, HOUR_MS, MINUTE_MS } from '../base/clock.ts';
import { type QueryTerm, toTerms } from '../base/query-terms.ts';
import { timestamp } from '../base/schema.ts';
import { DELIVERY_KINDS, type Selection } from '../queue/delivery.ts';
import { OPEN_STATES } from '../queue/states.ts';
import { MAIL_STATES, type MailFilter, type RefusalFilter } from './types.ts';

// The query language for mail and refusals: words that must all occur, quotes, and fields such as `from:bob`. Words
// match anywhere in a text, ignoring case; there are no wildcards.

/** A filter, or the fault of the query with the number of the word. */
export type Parsed<F> = { readonly filter: F } | { readonly fault: QueryFault };

interface QueryFault {
  /** The number of the word, from 1. */
  readonly word: number;
  readonly text: string;
}

/** Adds a value to a filter, or returns its fault as text. */
type Field<F> = (filter: F, value: string, now: number) => F | string;
type Fields<F> = Readonly<Record<string, Field<F>>>;

const MAX_WORDS = 30;

/** A field that may be given several times. */
const several =
  <K extends string>(name: K) =>
  <F extends { readonly [N in K]?: readonly string[] | undefined }>(filter: F, value: string): F => ({
    ...filter,
    [name]: [...(filter[name] ?? []), value],
  });

/** A field that may be given once. */
const single =
  <K extends string>(name: K) =>
  <F extends { readonly [N in K]?: string | undefined }>(filter: F, value: string): F | string =>
    filter[name] === undefined ? { ...filter, [name]: value } : TWICE;

/** A field with some of these values. */
const among =
  <K extends string>(name: K, values: readonly string[]) =>
  <F extends { readonly [N in K]?: readonly string[] | undefined }>(filter: F, value: string): F | string => {
    const known = values.find((one) => one === value.toLowerCase());
    return known ? { ...filter, [name]: [...(filter[name] ?? []), known] } : `takes ${values.join(', ')}`;
  };

/** The beginning or the end of a period. */
const time =
  <K extends string>(name: K) =>
  <F extends { readonly [N in K]?: number | undefined }>(filter: F, value: string, now: number): F | string => {
    const at = parseTime(value, now);
    if (at === undefined) return TIME_FORMS;
    return filter[name] === undefined ? { ...filter, [name]: at } : TWICE;
  };

const MAIL: Fields<MailFilter> = {
  from: several('from'),
  to: several('to'),
  subject: several('subject'),
  client: several('client'),
  thread: single('thread'),
  route: single('route'),
  url: single('url'),
  state: among('states', MAIL_STATES),
  status(filter, value) {
    if (filter.status || filter.unanswered) return TWICE;
    const status = parseStatus(value);
    return status ? { ...filter, ...status } : STATUS_FORMS;
  },
  id: several('ids'),
  after: time('since'),
  before: time('before'),
};

const REFUSALS: Fields<RefusalFilter> = {
  from: several('from'),
  to: several('to'),
  client: several('client'),
  reason: single('reason'),
  domain: single('domain'),
  after: time('since'),
  before: time('before'),
};

const QUEUE: Fields<Selection> = {
  account: single('account'),
  url: single('url'),
  kind: among('kinds', DELIVERY_KINDS),
  route: (filter, route) => (filter.routeIds === undefined ? { ...filter, routeIds: [route] } : TWICE),
  to: single('recipient'),
  webhook: single('webhook'),
  id: several('ids'),
  state: among('states', OPEN_STATES),
  after: time('from'),
  before: time('to'),
};

const TWICE = 'can be given once';
/** The allowed forms of a status, for error texts. */
export const STATUS_FORMS = 'takes a status such as 500, a class such as 5xx, or none';
const TIME_FORMS = 'takes a time such as 2026-01-05 or "2026-01-05 12:00:00" (UTC), or an age such as 30m, 2h or 3d';

/** The fields of a search for mail, for reference texts. */
export const MAIL_FIELDS = listOf(MAIL);
/** The fields of a search for refusals. */
export const REFUSAL_FIELDS = listOf(REFUSALS);

/** Parses a search for mail; an empty one and `*` find all. `now` is for times such as `2h`. */
export function parseMailQuery(text: string, now: number): Parsed<MailFilter> {
  return parse<MailFilter>(text, now, {}, MAIL, several('words'));
}

/** Parses a search for refusals. */
export function parseRefusalQuery(text: string, now: number): Parsed<RefusalFilter> {
  return parse<RefusalFilter>(text, now, {}, REFUSALS, several('words'));
}

/** Parses a selection of deliveries in the queue. Only whole values are matched, so plain words are not allowed. */
export function parseQueueQuery(text: string, now: number): Parsed<Selection> {
  return parse<Selection>(text, now, {}, QUEUE, () => `plain words are not supported here; use ${listOf(QUEUE)}`);
}

/** The fault as one sentence. */
export const faultText = ({ word, text }: QueryFault): string => `Word ${word}: ${text}`;

/** Parses `500`, `5xx` or `none`. */
export function parseStatus(value: string): Pick<MailFilter, 'status' | 'unanswered'> | undefined {
  if (/^none$/i.test(value)) return { unanswered: true };
  const [, first = '', rest = ''] = /^([1-9])(\d\d|xx)$/i.exec(value) ?? [];
  if (first === '') return undefined;
  if (/^\d/.test(rest)) return { status: { from: Number(value), to: Number(value) } };
  return { status: { from: Number(first) * 100, to: Number(first) * 100 + 99 } };
}

function parse<F>(
  text: string,
  now: number,
  all: F,
  fields: Fields<F>,
  addWord: (filter: F, word: string) => F | string,
): Parsed<F> {
  let filter = all;
  let word = 0;
  // A control character is in no text that is searched, and NUL would end the text for SQLite.
  for (const term of toTerms(text.replace(/\p{Cc}/gu, ' '))) {
    word++;
    const changed = word > MAX_WORDS ? `a search has at most ${MAX_WORDS} words` : take(filter, term);
    if (typeof changed === 'string') return { fault: { word, text: changed } };
    filter = changed;
  }
  return { filter };

  function take(filter: F, term: QueryTerm): F | string {
    const { field, negated } = term;
    const value = valueOf(term);
    if (field === undefined) {
      const [, name = ''] = /^-?([a-z]+):$/i.exec(term.value) ?? [];
      if (!term.quoted && Object.hasOwn(fields, name.toLowerCase())) return `add a value right after ${name}:`;
      const whole = negated ? `-${value}` : value;
      return value === '' ? filter : addWord(filter, whole);
    }
    const known = Object.hasOwn(fields, field) ? fields[field] : undefined;
    if (!known) return `unknown filter "${field}:". Use ${listOf(fields)}, or quote words with a colon`;
    if (negated) return 'excluding is not supported; remove the -';
    if (value === '') return `${field}: needs a value`;
    const changed = known(filter, value, now);
    return typeof changed === 'string' ? `${field}: ${changed}` : changed;
  }
}

/** Words match parts of a text, so stars at their ends are ignored; in quotes they are literal. */
const valueOf = ({ value, quoted }: QueryTerm): string => (quoted ? value : value.replace(/^\*+|\*+$/g, ''));

const UNITS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/** A time in a format of the API, or an age: `30m`, `2h`, `3d`. */
function parseTime(value: string, now: number): number | undefined {
  const [, count, unit = ''] = /^(\d{1,5})([mhd])$/i.exec(value) ?? [];
  if (count !== undefined) return now - Number(count) * (UNITS[unit.toLowerCase()] ?? 0);
  const read = timestamp.safeParse(value);
  return read.success ? read.data.getTime() : undefined;
}

function listOf(fields: object): string {
  return Object.keys(fields)
    .map((name) => `${name}:`)
    .join(', ');
}
