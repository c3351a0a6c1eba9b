/** Runs one thing after another. */
export type RunInTurn = <T>(work: () => Promise<T>) => Promise<T>;

export function createLane(): RunInTurn {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };
}

/** Runs what a message may hang or break, one after another and under the number of its job. */
export type RunMarked = <T>(number: number, work: () => Promise<T>) => Promise<T>;

/** `parsing` is told the number of a job while it is at work, and 0 after. */
export function createMarked(parsing: (number: number) => void): RunMarked {
  const inTurn = createLane();
  return (number, work) =>
    inTurn(async () => {
      parsing(number);
      try {
        return await work();
      } finally {
        parsing(0);
      }
    });
}
