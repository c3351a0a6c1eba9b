/** `ATTACKS=small` makes every attack small enough to be run on every change; full sizes take minutes each. */
export const SMALL = process.env.ATTACKS === 'small';

/**
 * The full size, or bound, of an attack, or the one for every change, where the machine may be busy with other things.
 */
export function size(full: number, small: number): number {
  return SMALL ? small : full;
}
