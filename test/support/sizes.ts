/** `SLOW=small` is the size for every change; without it the slow tests have the sizes in their names. */
export const SMALL = process.env['SLOW'] === 'small';

/** The full size of a slow test, or the one for every change. */
export function size(full: number, small: number): number {
  return SMALL ? small : full;
}
