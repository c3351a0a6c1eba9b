import { printable } from '../base/log.ts';

/** Rows under headings, columns aligned, for a person at a terminal. What clients sent is made printable. */
export function toTable(headings: readonly string[], rows: readonly (readonly (string | number | null)[])[]): string {
  const lines = [headings, ...rows.map((row) => row.map((cell) => (cell === null ? '-' : printable(String(cell)))))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return (
    lines
      .map((line) =>
        line
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd(),
      )
      .join('\n') + '\n'
  );
}

/** A span of time in the largest unit that says enough: 45s, 12m, 3h, 5d. */
export function toSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}
