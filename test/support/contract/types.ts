import type { Stage } from './stage.ts';

// The documented interface, typed in by hand, operation by operation. Nothing of it is read from the declarations in
// src/api: it is what they are held against.

/** What a field of an answer holds. `time` is `YYYY-MM-DD HH:MM:SS`, `percent` an integer from 0 to 100. */
export type Shape =
  | 'string'
  | 'string or null'
  | 'integer'
  | 'integer or null'
  | 'percent'
  | 'boolean'
  | 'time'
  | 'time or null'
  | { readonly oneOf: readonly string[] }
  | { readonly array: Shape }
  | Struct;

/**
 * Fields that are always there. `beyond`: fields that the interface does not document, each with the reason why it is
 * there.
 */
export interface Struct {
  readonly struct: Readonly<Record<string, Shape>>;
  readonly beyond?: Readonly<Record<string, string>>;
  readonly orNull?: true;
}

/** A documented rule, or one that the documented type implies. */
export type Rule =
  | { readonly maxlength: number }
  | { readonly format: 'email' | 'domain' | 'time' | 'url' }
  | { readonly oneOf: readonly string[] }
  | { readonly above: number }
  | { readonly maxItems: number }
  /** Of every element of an array. */
  | { readonly each: readonly Rule[] };

export interface Parameter {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'boolean' | 'array of string' | 'array of struct';
  readonly required: boolean;
  readonly rules: readonly Rule[];
}

/** Makes what a call needs on the stage, and answers its parameters. */
export type Given = (stage: Stage) => Promise<object> | object;

/** One row of the table. */
export interface Entry {
  readonly path: string;
  readonly params: readonly Parameter[];
  /** Parameters of a call that succeeds; all that are documented as required, and some that are not. */
  readonly given: Given;
  readonly returns: Shape;
  /** For each specific error, a call that reaches it. */
  readonly errors: Readonly<Record<string, Given>>;
  /** Errors that are answered although the interface lists none here, each with the reason. */
  readonly beyondErrors?: Readonly<Record<string, string>>;
  /** Optional parameters that the interface does not have, each with the reason. */
  readonly beyondParams?: Readonly<Record<string, string>>;
  /** Parameters that name a thing of the account. For another account they name nothing. */
  readonly names?: readonly string[];
  /** Another account gets an error that the name is taken, because it is unique in the whole service: why. */
  readonly shared?: string;
}

/** A group of operations, in the order of the document. */
export interface Group {
  readonly name: string;
  readonly entries: readonly Entry[];
}

/**
 * The optional parameter of lists that the document has no bound for: here they answer 1,000 records, and the next ones
 * on demand.
 */
export const pages = { after: 'a list that may be of any length is answered in pages' } as const;

export const string = (name: string, ...rules: Rule[]): Parameter => ({ name, type: 'string', required: false, rules });
export const integer = (name: string, ...rules: Rule[]): Parameter => ({
  name,
  type: 'integer',
  required: false,
  rules,
});
export const boolean = (name: string): Parameter => ({ name, type: 'boolean', required: false, rules: [] });
export const strings = (name: string, ...rules: Rule[]): Parameter => ({
  name,
  type: 'array of string',
  required: false,
  rules,
});
export const structs = (name: string): Parameter => ({ name, type: 'array of struct', required: false, rules: [] });
export const required = (parameter: Parameter): Parameter => ({ ...parameter, required: true });
