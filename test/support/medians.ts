const ROUNDS = 3000;

/**
 * The median time of each of some pieces of work, in nanoseconds; each is prepared before its time begins. They take turns in an order of
 * chance, so that whatever else the machine does is
 * done to all of them.
 */
export async function medians<Name extends string>(
  prepare: Readonly<Record<Name, () => () => unknown>>,
  rounds = ROUNDS,
): Promise<Record<Name, number>> {
  const names = Object.keys(prepare) as Name[];
  const times = new Map(names.map((name) => [name, new Float64Array(rounds)]));
  for (let round = 0; round < rounds; round++)
    for (const name of shuffled(names)) {
      const work = prepare[name]();
      const began = process.hrtime.bigint();
      await work();
      const took = Number(process.hrtime.bigint() - began);
      const all = times.get(name);
      if (all) all[round] = took;
    }
  return Object.fromEntries([...times].map(([name, all]) => [name, all.sort()[rounds >> 1] ?? 0])) as Record<
    Name,
    number
  >;
}

/** What comes behind another must not always be the same. */
const shuffled = <T>(list: readonly T[]): T[] =>
  list
    .map((one) => ({ one, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one);
