import type { MergeValue } from '../value.ts';
import type { Helper } from './helpers.ts';

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
export interface Choice {
  readonly kind: 'choice';
  readonly branches: readonly Branch[];
  readonly otherwise: Body;
}

export interface Branch {
  readonly condition: Expression;
  readonly negated: boolean;
  readonly body: Body;
}

/** each: once for every value in it · with: once for it · section: one of the two, as the value is. `otherwise` when there is nothing. */
export interface Loop {
  readonly kind: 'each' | 'with' | 'section';
  readonly of: Expression;
  /** Names that the value, and its place, have inside. */
  readonly names: readonly string[];
  readonly body: Body;
  readonly otherwise: Body;
}
