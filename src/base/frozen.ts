/**
 * A part made of functions, which nobody can change from outside. Unlike with `Object.freeze`, TypeScript reads the
 * parameters of its functions from the interface that the part is returned as.
 */
export function frozen<T extends object>(part: T): Readonly<T> {
  return Object.freeze(part);
}
