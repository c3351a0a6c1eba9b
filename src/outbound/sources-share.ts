/** An address that a message may leave from. `share`: 1 when it is warm, else the share of its mail that it may take so far. */
export interface Candidate {
  readonly ip: string;
  readonly share: number;
}

/**
 * The address that `chance` (from 0 to below 1) falls on, and behind it the warm ones, for where it cannot go. Of n addresses each
 * would take an nth; one that is warming up takes its share of that, and what it leaves goes to the warm ones in equal parts,
 * or, when none is warm, to the host's own address: an empty list.
 */
export function chooseSource(candidates: readonly Candidate[], chance: number): readonly string[] {
  const warm = candidates.filter(({ share }) => share >= 1);
  const warming = candidates.filter(({ share }) => share < 1);
  let end = 0;
  for (const { ip, share } of warming) {
    end += share / candidates.length;
    if (chance < end) return [ip, ...warm.map((other) => other.ip)];
  }
  if (warm.length === 0) return [];
  const first = Math.min(warm.length - 1, Math.floor(((chance - end) / (1 - end)) * warm.length));
  return [...warm.slice(first), ...warm.slice(0, first)].map(({ ip }) => ip);
}
