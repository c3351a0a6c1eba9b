import { toEnd } from '../../base/steps.ts';
import { MAX_RENDERED, TooLong } from '../too-long.ts';
import { holds, type Vars } from './condition.ts';
import { formatDate } from './dates.ts';
import { filtered, LONGEST_TAG, parseTag, type Tag } from './tag.ts';

export interface MergeOptions {
  /** For `*|DATE:…|*` and `*|CURRENT_YEAR|*`, which are in UTC. */
  readonly now: Date;
  /** What to put for `*|UNSUB:url|*`; without it these tags stay. */
  readonly onUnsub?: (url: string) => string;
  /** In characters. */
  readonly maxLength?: number;
}

/** Work between two rests, in characters: about a millisecond. A tag costs as much as so many characters. */
const SLICE = 100_000;
const TAG_COST = 60;

/** Variables from a list: names in any case, and of two with one name the last. */
export function toVars(list: Iterable<{ readonly name: string; readonly content: string }>): Vars {
  return new Map([...list].map(({ name, content }) => [name.toLowerCase(), content]));
}

/**
 * Replaces the merge tags of a text. Values are put in as they are, neither escaped nor looked into again. An unknown variable or
 * tag becomes nothing; what only looks like a tag stays. One pass, without recursion, in time linear to text and result. Throws `TooLong`.
 */
export function merge(text: string, vars: Vars, options: MergeOptions): string {
  return toEnd(merging(text, vars, options));
}

/** As `merge`, in steps of about a millisecond, so that other work can go on in between. */
export function* merging(text: string, vars: Vars, options: MergeOptions): Generator<void, string> {
  const output = createOutput(vars, options);
  let work = 0;
  let done = 0; // everything before has been dealt with
  let at = 0; // a tag may begin here
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
    } else at = bar - 1; // this bar may belong to the `*|` of a tag that begins here
    work += TAG_COST;
    if (work + output.written() > SLICE) {
      work = -output.written();
      yield;
    }
  }
  output.text(text, done, text.length);
  return output.finish();
}

// One level of `IF:` is one small number, as there may be half a million of them: what is around it is shown; one of its branches
// has been shown, or is.
const OUTSIDE = 1;
const TAKEN = 2;

/** Takes the text piece by piece, and knows which of it is shown. */
interface Output {
  text(source: string, start: number, end: number): void;
  tag(tag: Tag, source: string, start: number, end: number): void;
  /** Characters so far. */
  written(): number;
  finish(): string;
}

function createOutput(vars: Vars, options: MergeOptions): Output {
  const { maxLength = MAX_RENDERED } = options;
  const parts: string[] = [];
  const levels: number[] = [];
  let length = 0;
  let shown = true;

  const put = (part: string) => {
    if (!shown || part === '') return;
    length += part.length;
    if (length > maxLength) throw new TooLong();
    parts.push(part);
  };
  /** Shows the branch that begins here if it is the first of its level that holds. */
  const branch = (holding: () => boolean) => {
    const level = levels.pop();
    if (level === undefined) return; // belongs to no IF
    shown = level === OUTSIDE && holding();
    levels.push(shown ? level | TAKEN : level);
  };
  const follow = (tag: Tag): boolean => {
    switch (tag.kind) {
      case 'if': {
        levels.push(shown ? OUTSIDE : 0);
        branch(() => holds(tag.condition, vars) !== tag.negated);
        return true;
      }
      case 'elseif':
        branch(() => holds(tag.condition, vars));
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
    text(source, start, end) {
      if (shown && end > start) put(source.slice(start, end));
    },
    tag(tag, source, start, end) {
      if (follow(tag) || !shown) return;
      put(replacement(tag, vars, options) ?? source.slice(start, end));
    },
    written: () => length,
    finish: () => parts.join(''),
  };
}

/** What stands in place of a tag; undefined: the tag itself. A variable wins over what has a meaning of its own. */
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
