/**
 * Freezes a part. Unlike with `Object.freeze`, TypeScript infers the parameter types of its functions from the return
 * type of the caller.
 */
export function frozen<T extends object>(part: T): Readonly<T> {
  return Object.freeze(part);
}
