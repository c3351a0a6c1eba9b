/** Runs what has the same name one after the other, in the order it came. */
export type Turns = <T>(name: string, run: () => Promise<T>) => Promise<T>;

/**
 * For rows that many would rewrite at once. The store decides who wins; of those in one process, nobody has to lose first.
 * Without it, n calls would take n² rounds.
 */
export function createTurns(): Turns {
  const last = new Map<string, Promise<void>>();
  return (name, run) => {
    const turn = (last.get(name) ?? Promise.resolve()).then(run);
    // What fails holds nobody up.
    const over = turn
      .then(
        () => {},
        () => {},
      )
      .then(() => {
        if (last.get(name) === over) last.delete(name);
      });
    last.set(name, over);
    return turn;
  };
}
