/** Prints what a case measured, as one line that begins with its number: `figures 10: …`. */
export function figures(number: number, seen: Readonly<Record<string, string | number>>): void {
  const words = Object.entries(seen).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? rounded(value) : value}`,
  );
  console.log(`      figures ${number}: ${words.join(', ')}`);
}

function rounded(value: number): string {
  // Plus nothing: a zero has no sign.
  return (Number(value.toFixed(value < 100 ? 1 : 0)) + 0).toLocaleString('en-US');
}

/** The value that the given share of the values does not exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
