import { filtered, formatDate } from '../merge.ts';
import { type Maybe, type MergeValue, member, textOfValue } from '../values.ts';

/** A value in a tag, or how to compute it. */
export type Expression =
  | { readonly kind: 'value'; readonly value: MergeValue }
  | PathExpression
  | { readonly kind: 'call'; readonly helper: Helper; readonly params: readonly Expression[] }
  | { readonly kind: 'not'; readonly of: Expression }
  | { readonly kind: 'operation'; readonly operator: Operator; readonly left: Expression; readonly right: Expression };

export interface PathExpression {
  readonly kind: 'path';
  /** Number of leading `../`. */
  readonly up: number;
  /** Whether it starts with `@`: a loop variable, or the root. */
  readonly data: boolean;
  /** Whether it starts with `this` or a dot: it refers to the current value only. */
  readonly scoped: boolean;
  readonly parts: readonly string[];
  /** The helper of that name, called without arguments if there is no such variable. */
  readonly otherwise: Helper | undefined;
}

export type Operator = 'and' | 'or' | '==' | '!=' | '<' | '<=' | '>' | '>=';

export type TemplateBody = readonly TemplateNode[];

/** A parsed template: valid with any variables. */
export type TemplateNode =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly of: Expression; readonly escaped: boolean }
  | Choice
  | Loop;

/** Shows the first branch whose condition holds. */
interface Choice {
  readonly kind: 'choice';
  readonly branches: readonly Branch[];
  readonly otherwise: TemplateBody;
}

export interface Branch {
  readonly condition: Expression;
  readonly negated: boolean;
  readonly body: TemplateBody;
}

/** each: once per item · with: once for the value · section: either, by the value. `otherwise` if it is empty. */
export interface Loop {
  readonly kind: 'each' | 'with' | 'section';
  readonly of: Expression;
  /** Block parameters: the names of the value and of its key or index. */
  readonly names: readonly string[];
  readonly body: TemplateBody;
  readonly otherwise: TemplateBody;
}

/** What helpers can use besides their arguments. */
export interface HelperContext {
  readonly now: Date;
  /** Returns the unsubscribe link, which leads on to the URL if given; only set when a message is really sent. */
  readonly onUnsub?: ((url: string) => string) | undefined;
}

/** A function that a template may call. */
export interface Helper {
  readonly fewest: number;
  readonly most: number;
  run(values: readonly Maybe[], surroundings: HelperContext): Maybe;
}

/** The default format of `date` (documented). */
const USUAL_DATE = 'd/m/Y';

const ofText = (change: (text: string) => string): Helper => ({
  fewest: 0,
  most: 1,
  run: ([value]) => change(textOfValue(value)),
});

/** All supported helpers. */
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
      run: ([format], { now }) => formatDate(now, format === undefined ? USUAL_DATE : textOfValue(format)),
    },
  ],
  ['unsub', { fewest: 0, most: 1, run: ([url], { onUnsub }) => onUnsub?.(textOfValue(url)) }],
  ['lookup', { fewest: 2, most: 2, run: ([value, name]) => member(value, textOfValue(name)) }],
]);

/** Removes everything between < and >. In one pass; an unclosed < stays as text. */
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
