import { type Cell, titleOf } from './matrix.ts';
import type { Figures } from './measure.ts';
import type { Peer } from './peers/peer.ts';

/** What a contestant did in one cell: a measurement for each round, or why there is none. */
export interface Outcome {
  readonly name: string;
  readonly rounds: readonly Figures[];
  readonly fault?: string;
}

/** All contestants in one cell; Postern is the first where it takes part. */
export interface CellOutcome {
  readonly cell: Cell;
  readonly outcomes: readonly Outcome[];
}

/** The middle one; NaN of nothing. */
export const median = (list: readonly number[]): number =>
  list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;

/** The middle of a figure over the rounds. */
export const of = (outcome: Outcome | undefined, field: keyof Figures): number =>
  median((outcome?.rounds ?? []).map((figures) => figures[field]));

/** How often Postern's rate is a contestant's; NaN where one of them was not measured. */
export function ratio(outcomes: readonly Outcome[], outcome: Outcome): number {
  return (
    of(
      outcomes.find(({ name }) => name === 'postern'),
      'rate',
    ) / of(outcome, 'rate')
  );
}

/** What each contestant does with a message: speed is only half of it. */
export function toPeers(
  peers: readonly Peer[],
  missing: readonly { readonly name: string; readonly why: string }[],
): string {
  const rows = peers.map(
    ({ name, does: { before250, durable, verdicts, parsed, posted } }) =>
      `| ${name} | ${before250} | ${durable} | ${verdicts} | ${parsed} | ${posted} |`,
  );
  const without = missing.map(({ name, why }) => `\nWithout ${name}: ${why}.\n`);
  return `| | before the 250 | survives a power cut | verdicts | parsed | posted |\n|---|---|---|---|---|---|\n${rows.join('\n')}\n${without.join('')}`;
}

/** The figures of one cell as a table. */
export function toTable({ cell, outcomes }: CellOutcome): string {
  const rows = outcomes.map((outcome) => {
    const { name, rounds, fault } = outcome;
    if (rounds.length === 0) return `| ${name} | ${fault ?? 'not measured'} | | | | | | | |`;
    const figure = (field: keyof Figures, digits: number) => of(outcome, field).toFixed(digits);
    const against = name === 'postern' ? 1 : ratio(outcomes, outcome);
    return `| ${name} | ${figure('rate', of(outcome, 'rate') < 100 ? 1 : 0)} | ${Number.isNaN(against) ? '' : against.toFixed(2)} | ${figure('p50', 1)} | ${figure('p95', 1)} | ${figure('p99', 1)} | ${figure('cpuMs', 2)} | ${figure('peakMb', 0)} | ${figure('grownMb', 0)} |`;
  });
  const tools = median(outcomes.filter(({ rounds }) => rounds.length > 0).map((outcome) => of(outcome, 'toolsMs')));
  return (
    `### ${titleOf(cell)}\n\n| | messages/s | ratio | 250 p50 ms | p95 | p99 | CPU ms/message | peak MB | grown MB |\n|---|---|---|---|---|---|---|---|---|\n${rows.join('\n')}\n\n` +
    `The load program and the sink together: ${tools.toFixed(2)} ms a message at the median.\n`
  );
}
