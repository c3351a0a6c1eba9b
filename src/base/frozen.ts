/** Freezes a part. Unlike `Object.freeze`, it lets TypeScript infer parameter types from the caller's return type. */
export function frozen<T extends object>(part: T): Readonly<T> {
  return Object.freeze(part);
}
