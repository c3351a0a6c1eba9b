import { filtered, formatDate } from '../merge.ts';
import { type Maybe, type MergeValue, member, toText } from '../values.ts';

/** A value in a tag, or how it is found. */
export type Expression =
  | { readonly kind: 'value'; readonly value: MergeValue }
  | Path
  | { readonly kind: 'call'; readonly helper: Helper; readonly params: readonly Expression[] }
  | { readonly kind: 'not'; readonly of: Expression }
  | { readonly kind: 'operation'; readonly operator: Operator; readonly left: Expression; readonly right: Expression };

export interface Path {
  readonly kind: 'path';
  /** How many `../` stand in front. */
  readonly up: number;
  /** Whether it begins with `@`: it names something of the loop, or the root. */
  readonly data: boolean;
  /** Whether it begins with `this` or a dot: it names nothing but a value of its surroundings. */
  readonly scoped: boolean;
  readonly parts: readonly string[];
  /** What it is when no variable of that name is there: the helper may be called without a value. */
  readonly otherwise: Helper | undefined;
}

export type Operator = 'and' | 'or' | '==' | '!=' | '<' | '<=' | '>' | '>=';

export type Body = readonly Node[];

/** A template that was read: everything in it can be done, with any variables. */
export type Node =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly of: Expression; readonly escaped: boolean }
  | Choice
  | Loop;

/** The first branch whose condition holds. */
interface Choice {
  readonly kind: 'choice';
  readonly branches: readonly Branch[];
  readonly otherwise: Body;
}

export interface Branch {
  readonly condition: Expression;
  readonly negated: boolean;
  readonly body: Body;
}

/**
 * each: once for every value in it · with: once for it · section: one of the two, as the value is. `otherwise` when
 * there is nothing.
 */
export interface Loop {
  readonly kind: 'each' | 'with' | 'section';
  readonly of: Expression;
  /** Names that the value, and its place, have inside. */
  readonly names: readonly string[];
  readonly body: Body;
  readonly otherwise: Body;
}

/** What a helper may know beside its values. */
export interface Surroundings {
  readonly now: Date;
  /** The link that ends a subscription, leading on to the URL when one is said; only a real sending knows it. */
  readonly onUnsub?: ((url: string) => string) | undefined;
}

/** A function that a template may call. */
export interface Helper {
  readonly fewest: number;
  readonly most: number;
  run(values: readonly Maybe[], surroundings: Surroundings): Maybe;
}

/** What `date` writes when no format is said (documented). */
const USUAL_DATE = 'd/m/Y';

const ofText = (change: (text: string) => string): Helper => ({
  fewest: 0,
  most: 1,
  run: ([value]) => change(toText(value)),
});

/** All there are. */
export const HELPERS: ReadonlyMap<string, Helper> = new Map<string, Helper>([
  ['upper', ofText((text) => filtered(text, 'upper'))],
  ['lower', ofText((text) => filtered(text, 'lower'))],
  ['title', ofText((text) => filtered(text, 'title'))],
  ['url', ofText((text) => filtered(text, 'url'))],
  ['striptags', ofText(stripTags)],
  [
    'date',
    {
      fewest: 0,
      most: 1,
      run: ([format], { now }) => formatDate(now, format === undefined ? USUAL_DATE : toText(format)),
    },
  ],
  ['unsub', { fewest: 0, most: 1, run: ([url], { onUnsub }) => onUnsub?.(toText(url)) }],
  ['lookup', { fewest: 2, most: 2, run: ([value, name]) => member(value, toText(name)) }],
]);

/** Takes out what stands between < and >. In one pass: what is not closed is text. */
function stripTags(text: string): string {
  const parts: string[] = [];
  let done = 0;
  for (;;) {
    const open = text.indexOf('<', done);
    const close = open < 0 ? -1 : text.indexOf('>', open);
    if (close < 0) return parts.join('') + text.slice(done);
    parts.push(text.slice(done, open));
    done = close + 1;
  }
}
