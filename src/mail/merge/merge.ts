import { DAY_MS } from '../../base/clock.ts';
import { runInSlices, type SlicedWork } from '../../base/concurrency.ts';
import { namesIn } from '../../base/tables.ts';
import { MAX_RENDERED, RenderedTooLong } from '../template-errors.ts';
import { fillingRegions, type RegionContents } from './regions.ts';
import { type Condition, conditionHolds, isName, parseCondition, type Vars } from './values.ts';

export interface MergeOptions {
  /** For `*|DATE:…|*` and `*|CURRENT_YEAR|*`, which are in UTC. */
  readonly now: Date;
  /** Returns the value of `*|UNSUB:url|*`; without it these tags are left unchanged. */
  readonly onUnsub?: (url: string) => string;
  /** In characters. */
  readonly maxLength?: number;
}

/** Work between two yields, in characters: about a millisecond. A tag costs as much as TAG_COST characters. */
const SLICE = 100_000;
const TAG_COST = 60;

/** Converts a list to variables: names are case-insensitive, and the last of two with one name wins. */
export function toVars(list: Iterable<{ readonly name: string; readonly content: string }>): Vars {
  return new Map([...list].map(({ name, content }) => [name.toLowerCase(), content]));
}

/**
 * Replaces the merge tags of a text. Values are inserted as they are, neither escaped nor expanded. Unknown variables
 * and tags become empty; text that only looks like a tag stays. One pass, without recursion, in time linear to text and
 * result, in steps of about a millisecond, so that other work can run in between. Throws `RenderedTooLong`.
 */
export function* merging(text: string, vars: Vars, options: MergeOptions): Generator<void, string> {
  const output = createOutput(vars, options);
  let work = 0;
  let done = 0; // everything before is already output
  let at = 0; // the next tag starts here or later
  for (;;) {
    const open = text.indexOf('*|', at);
    const bar = open < 0 ? -1 : text.indexOf('|', open + 2);
    if (bar < 0) break;
    const tag =
      text.charAt(bar + 1) === '*' && bar - open <= LONGEST_TAG + 2 ? parseTag(text.slice(open + 2, bar)) : undefined;
    if (tag) {
      output.text(text, done, open);
      output.tag(tag, text, open, bar + 2);
      at = done = bar + 2;
    } else at = bar - 1; // this bar may be part of the `*|` of the next tag
    work += TAG_COST;
    if (work + output.written() > SLICE) {
      work = -output.written();
      yield;
    }
  }
  output.text(text, done, text.length);
  return output.finish();
}

// The state of an `IF:` level as a small number, because there may be half a million of them. OUTSIDE: the text around
// it is shown; TAKEN: one of its branches is or was shown.
const OUTSIDE = 1;
const TAKEN = 2;

/** Collects the text and keeps track of which branches are shown. */
function createOutput(vars: Vars, options: MergeOptions) {
  const { maxLength = MAX_RENDERED } = options;
  const parts: string[] = [];
  const levels: number[] = [];
  let length = 0;
  let shown = true;

  const put = (part: string) => {
    if (!shown || part === '') return;
    length += part.length;
    if (length > maxLength) throw new RenderedTooLong();
    parts.push(part);
  };
  /** Shows the branch that starts here if it is the first of its level whose condition holds. */
  const branch = (holding: () => boolean) => {
    const level = levels.pop();
    if (level === undefined) return; // not inside an IF
    shown = level === OUTSIDE && holding();
    levels.push(shown ? level | TAKEN : level);
  };
  const follow = (tag: Tag): boolean => {
    switch (tag.kind) {
      case 'if': {
        levels.push(shown ? OUTSIDE : 0);
        branch(() => conditionHolds(tag.condition, vars) !== tag.negated);
        return true;
      }
      case 'elseif':
        branch(() => conditionHolds(tag.condition, vars));
        return true;
      case 'else':
        branch(() => true);
        return true;
      case 'end':
        shown = levels.length > 0 ? ((levels.pop() ?? 0) & OUTSIDE) !== 0 : shown;
        return true;
      default:
        return false;
    }
  };
  return {
    text(source: string, start: number, end: number) {
      if (shown && end > start) put(source.slice(start, end));
    },
    tag(tag: Tag, source: string, start: number, end: number) {
      if (follow(tag) || !shown) return;
      put(replacement(tag, vars, options) ?? source.slice(start, end));
    },
    /** Characters so far. */
    written: (): number => length,
    finish: (): string => parts.join(''),
  };
}

/** The replacement for a tag; undefined leaves the tag. A variable wins over a built-in of the same name. */
function replacement(tag: Tag, vars: Vars, { now, onUnsub }: MergeOptions): string | undefined {
  switch (tag.kind) {
    case 'value':
      return filtered(vars.get(tag.name) ?? builtIn(tag.name, now), tag.filter);
    case 'date':
      return formatDate(now, tag.format);
    case 'unsub':
      return tag.url === '' && vars.has('unsub') ? vars.get('unsub') : onUnsub?.(tag.url);
    default:
      return '';
  }
}

function builtIn(name: string, now: Date): string {
  return name === 'current_year' ? String(now.getUTCFullYear()) : '';
}

interface RenderInput {
  readonly code: string;
  readonly contents: RegionContents;
  /** Undefined: merge tags are left unchanged. */
  readonly vars: Vars | undefined;
  readonly now: Date;
  readonly maxLength?: number;
}

/** The HTML, or which of the inputs made it exceed the maximum length. */
type RenderResult = { readonly html: string } | { readonly tooLong: 'contents' | 'vars' };

/**
 * Fills the regions of a template, then replaces its merge tags, including those in the contents. Yields every
 * millisecond or so: a template of megabytes must not delay inbound mail.
 */
export async function render({
  code,
  contents,
  vars,
  now,
  maxLength = MAX_RENDERED,
}: RenderInput): Promise<RenderResult> {
  const filled = await unlessTooLong(fillingRegions(code, contents, maxLength));
  if (filled === undefined) return { tooLong: 'contents' };
  if (!vars) return { html: filled };
  const html = await unlessTooLong(merging(filled, vars, { now, maxLength }));
  return html === undefined ? { tooLong: 'vars' } : { html };
}

/** Undefined if the result exceeds the maximum length. */
async function unlessTooLong(steps: SlicedWork<string>): Promise<string | undefined> {
  try {
    return await runInSlices(steps);
  } catch (error) {
    if (error instanceof RenderedTooLong) return undefined;
    throw error;
  }
}

/** A filter that a tag applies to the value of a variable. */
type Filter = (typeof FILTERS)[number];

/** The parsed content between `*|` and `|*`. */
type Tag =
  | { readonly kind: 'value'; readonly name: string; readonly filter: Filter | undefined }
  | { readonly kind: 'if' | 'elseif'; readonly condition: Condition | undefined; readonly negated: boolean }
  | { readonly kind: 'else' | 'end' }
  | { readonly kind: 'date'; readonly format: string }
  /** The unsubscribe link, only known when a message is really sent. */
  | { readonly kind: 'unsub'; readonly url: string }
  /** A tag of a form that is not supported. */
  | { readonly kind: 'unknown' };

/** Longer than any tag needs; the longest have a URL after `UNSUB:`. */
const LONGEST_TAG = 2048;

const FILTERS = ['upper', 'lower', 'title', 'url', 'html'] as const;

/** Parses a tag; undefined if the text is not a tag and stays unchanged. */
function parseTag(text: string): Tag | undefined {
  if (text.length > LONGEST_TAG || /[\r\n]/.test(text)) return undefined;
  const colon = text.indexOf(':');
  const head = colon < 0 ? text : text.slice(0, colon);
  if (!isName(head)) return undefined;
  return colon < 0 ? toPlain(head.toLowerCase()) : toCall(head.toLowerCase(), text.slice(colon + 1));
}

function toPlain(name: string): Tag {
  if (name === 'else') return { kind: 'else' };
  if (name === 'unsub') return { kind: 'unsub', url: '' };
  return { kind: 'value', name, filter: undefined };
}

function toCall(head: string, rest: string): Tag {
  const filter = FILTERS.find((name) => name === head);
  if (filter) return isName(rest) ? { kind: 'value', name: rest.toLowerCase(), filter } : { kind: 'unknown' };
  switch (head) {
    case 'if':
    case 'ifnot':
      return { kind: 'if', condition: parseCondition(rest), negated: head === 'ifnot' };
    case 'elseif':
      return { kind: 'elseif', condition: parseCondition(rest), negated: false };
    case 'else':
      return { kind: 'else' };
    case 'end':
      return rest.trim().toLowerCase() === 'if' ? { kind: 'end' } : { kind: 'unknown' };
    case 'date':
      return { kind: 'date', format: rest };
    case 'unsub':
      return { kind: 'unsub', url: rest };
    default:
      return { kind: 'unknown' };
  }
}

/** Applies a filter. Values are never escaped, so `HTML:` has no effect. */
export function filtered(value: string, filter: Filter | undefined): string {
  switch (filter) {
    case 'upper':
      return value.toUpperCase();
    case 'lower':
      return value.toLowerCase();
    case 'title':
      return value.replace(/\p{L}[\p{L}\p{M}\p{N}'’]*/gu, (word) =>
        word.replace(/^./u, (first) => first.toUpperCase()),
      );
    case 'url':
      return encodeURIComponent(value.toWellFormed());
    default:
      return value;
  }
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [...namesIn('January February March April May June July August September October November December')];

const two = (value: number) => String(value).padStart(2, '0');
const year = (date: Date) => date.getUTCFullYear();
const dayName = (date: Date) => DAYS[date.getUTCDay()] ?? '';
const monthName = (date: Date) => MONTHS[date.getUTCMonth()] ?? '';
const hour12 = (date: Date) => date.getUTCHours() % 12 || 12;
const dayOfYear = (date: Date) => Math.floor((date.getTime() - Date.UTC(year(date), 0, 1)) / DAY_MS);
const daysInMonth = (date: Date) => new Date(Date.UTC(year(date), date.getUTCMonth() + 1, 0)).getUTCDate();

/** The Thursday of the same week, which determines the ISO 8601 year and week. */
const thursday = (date: Date) => new Date(date.getTime() + (4 - (date.getUTCDay() || 7)) * DAY_MS);

function suffix(day: number): string {
  if (day >= 11 && day <= 13) return 'th';
  return ['th', 'st', 'nd', 'rd'][day % 10] ?? 'th';
}

/** The letters of PHP's date(), used in the formats of the tag. */
const LETTERS: ReadonlyMap<string, (date: Date) => string | number> = new Map<string, (date: Date) => string | number>([
  ['d', (date) => two(date.getUTCDate())],
  ['j', (date) => date.getUTCDate()],
  ['S', (date) => suffix(date.getUTCDate())],
  ['D', (date) => dayName(date).slice(0, 3)],
  ['l', dayName],
  ['N', (date) => date.getUTCDay() || 7],
  ['w', (date) => date.getUTCDay()],
  ['z', dayOfYear],
  ['W', (date) => two(Math.floor(dayOfYear(thursday(date)) / 7) + 1)],
  ['o', (date) => year(thursday(date))],
  ['m', (date) => two(date.getUTCMonth() + 1)],
  ['n', (date) => date.getUTCMonth() + 1],
  ['M', (date) => monthName(date).slice(0, 3)],
  ['F', monthName],
  ['t', daysInMonth],
  ['L', (date) => (new Date(Date.UTC(year(date), 1, 29)).getUTCMonth() === 1 ? 1 : 0)],
  ['Y', year],
  ['y', (date) => two(year(date) % 100)],
  ['a', (date) => (date.getUTCHours() < 12 ? 'am' : 'pm')],
  ['A', (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM')],
  ['g', hour12],
  ['h', (date) => two(hour12(date))],
  ['G', (date) => date.getUTCHours()],
  ['H', (date) => two(date.getUTCHours())],
  ['i', (date) => two(date.getUTCMinutes())],
  ['s', (date) => two(date.getUTCSeconds())],
  ['e', () => 'UTC'],
  ['T', () => 'UTC'],
  ['P', () => '+00:00'],
  ['O', () => '+0000'],
  ['Z', () => 0],
  ['I', () => 0],
  ['c', (date) => `${date.toISOString().slice(0, 19)}+00:00`],
  ['U', (date) => Math.floor(date.getTime() / 1000)],
  ['r', (date) => date.toUTCString().replace('GMT', '+0000')],
]);

/** Formats a time in UTC as PHP's date(). A backslash escapes a character; characters without a meaning stay. */
export function formatDate(date: Date, format: string): string {
  return format.replace(
    /\\([\s\S]?)|[a-z]/gi,
    (letter: string, escaped?: string) => escaped ?? String(LETTERS.get(letter)?.(date) ?? letter),
  );
}
