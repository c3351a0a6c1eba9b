/** Chance that a seed repeats (Numerical Recipes' generator): numbers in [0, 1). */
export function createChance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/**
 * How often a value of the first is above one of the second: 0.5 when nobody can tell them apart (the area under the
 * ROC curve, by ranks).
 */
export function separability(first: readonly number[], second: readonly number[]): number {
  const all = [
    ...first.map((value) => ({ value, mine: true })),
    ...second.map((value) => ({ value, mine: false })),
  ].sort((a, b) => a.value - b.value);
  let ranks = 0;
  for (let at = 0; at < all.length; ) {
    let end = at;
    while (end < all.length && all[end]?.value === all[at]?.value) end++;
    const rank = (at + 1 + end) / 2;
    for (; at < end; at++) if (all[at]?.mine) ranks += rank;
  }
  return (ranks - (first.length * (first.length + 1)) / 2) / (first.length * second.length);
}
