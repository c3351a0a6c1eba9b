/** A random source that gives the same numbers for the same seed (mulberry32), so that a failure can be seen again. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A text of up to `most` of the pieces, and of any code units, lone surrogates too. */
export function randomText(random: () => number, pieces: readonly string[], most: number): string {
  const pick = () =>
    random() < 0.7
      ? (pieces[Math.floor(random() * pieces.length)] ?? '')
      : String.fromCharCode(Math.floor(random() * 0x10000));
  return Array.from({ length: Math.floor(random() * most) }, pick).join('');
}
