/** So many look-ups or writes of one call side by side: a thousand recipients must not crowd out everybody else's. */
const SIDE_BY_SIDE = 16;

/** Runs `work` for every item, a bounded number at a time, and answers the results in the order of the items. The first failure ends it. */
export async function atOnce<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += SIDE_BY_SIDE)
    results.push(...(await Promise.all(items.slice(at, at + SIDE_BY_SIDE).map(work))));
  return results;
}
