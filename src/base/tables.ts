/** The keys of a table that is written down as one object, with the type that they have there. */
export function namesOf<T extends object>(table: T): readonly (keyof T & string)[] {
  return Object.keys(table).filter((name): name is keyof T & string => Object.hasOwn(table, name));
}

/** A value for each name, so that none is looked up by text and none can be missing. */
export function tableOf<const K extends string, V>(names: readonly K[], make: (name: K) => V): Record<K, V>;
export function tableOf(names: readonly string[], make: (name: string) => unknown): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, make(name)]));
}
