/** The keys of an object literal, with their literal types. */
export function namesOf<T extends object>(table: T): readonly (keyof T & string)[] {
  return Object.keys(table).filter((name): name is keyof T & string => Object.hasOwn(table, name));
}

/** An object with a value for each name, typed so that no name can be missing. */
export function tableOf<const K extends string, V>(names: readonly K[], make: (name: K) => V): Record<K, V>;
export function tableOf(names: readonly string[], make: (name: string) => unknown): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, make(name)]));
}

/** The names in a text, separated by spaces. */
export const namesIn = (text: string): ReadonlySet<string> => new Set(text.split(' '));

/** The names in such texts as an array, in their order and with their literal types. */
export function fieldsIn<const T extends readonly string[]>(...texts: T): readonly Words<T[number]>[];
export function fieldsIn(...texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => text.split(' '));
}

type Words<T extends string> = T extends `${infer First} ${infer Rest}` ? First | Words<Rest> : T;

/** Names as prose lists them: `waiting, dead or held`. */
export const inWords = (names: readonly string[]): string =>
  [names.slice(0, -1).join(', '), ...names.slice(-1)].filter(Boolean).join(' or ');
