import { SMALL } from './sizes.ts';

/**
 * Runs of a case that mostly wait. At their small size all of them begin with the first that is asked for, so that the
 * suite is over sooner; at full size, whose figures are published, each has the machine to itself.
 */
export function createRuns<Name extends string, T>(
  makers: Readonly<Record<Name, () => Promise<T>>>,
): (name: Name) => Promise<T> {
  const begun = new Map<string, Promise<T>>();
  const begin = (name: string, make: () => Promise<T>) => {
    const run = begun.get(name) ?? make();
    // Who asks for it later hears of its failure then.
    run.catch(() => {});
    begun.set(name, run);
    return run;
  };
  return (name) => {
    if (SMALL) for (const [other, make] of Object.entries<() => Promise<T>>(makers)) begin(other, make);
    return begin(name, makers[name]);
  };
}
