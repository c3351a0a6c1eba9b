/**
 * `FAULTS=small` is what every change is held against; without it a case has the size that its figures are published
 * for.
 */
export const SMALL = process.env.FAULTS === 'small';

/** A size of a case; `FAULTS_<NAME>` in the environment wins over both. */
export function size(name: string, full: number, small: number): number {
  return Number(process.env[`FAULTS_${name}`] ?? (SMALL ? small : full));
}
