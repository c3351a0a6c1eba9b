/** Does the work for every item, `mapConcurrently` at a time. */
export async function inTurns<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < items.length; i = next++) {
      const item = items[i];
      if (item !== undefined) await work(item, i);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/**
 * Time for the other side to read what was written, so that what follows comes as a packet of its own. The gap is the
 * attack.
 */
export const gap = (ms = 2): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
