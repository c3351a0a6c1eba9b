import type { Maybe, MergeValue, Struct } from '../value.ts';

/** The variables of one recipient. */
export interface Variables {
  /** All of them, under the names that they were given with. */
  readonly all: Struct;
  /** Names count in any case, as they do in the other language. */
  find(name: string): Maybe;
}

/** Of two with one name, in any case, the last. */
export function toVariables(list: Iterable<{ readonly name: string; readonly content: MergeValue }>): Variables {
  const known = new Map<string, { readonly name: string; readonly content: MergeValue }>();
  for (const variable of list) known.set(variable.name.toLowerCase(), variable);
  const all = Object.fromEntries([...known.values()].map(({ name, content }) => [name, content]));
  return Object.freeze({ all, find: (name: string) => known.get(name.toLowerCase())?.content });
}
