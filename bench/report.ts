import { type Cell, titleOf } from './matrix.ts';
import type { Figures } from './measure.ts';
import type { Peer } from './peers/peer.ts';

/** What a contestant did in one cell: a measurement for each round, or why there are not as many. */
export interface Outcome {
  readonly name: string;
  /** The label of the cell's variant, where it has several. */
  readonly variant?: string;
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

/** How often Postern's rate is a contestant's under the same conditions; NaN where one of them was not measured. */
export function ratio(outcomes: readonly Outcome[], outcome: Outcome): number {
  return of(find(outcomes, 'postern', outcome.variant), 'rate') / of(outcome, 'rate');
}

const find = (outcomes: readonly Outcome[], name: string, variant?: string): Outcome | undefined =>
  outcomes.find((outcome) => outcome.name === name && outcome.variant === variant);

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

/** The figures that count, in a minute: rates and ratios, and then latency where the rate is fixed. */
export function toSummary(all: readonly CellOutcome[], names: readonly string[]): string {
  const lead = all.filter(({ cell }) => cell.lead);
  return [
    toRates(
      lead.filter(({ cell }) => cell.rate === undefined),
      names,
    ),
    toLatencies(lead.filter(({ cell }) => cell.rate !== undefined)),
  ].join('\n');
}

/** Who stands beside Postern in the first table: who does the same work, or is the fastest of those that do less. */
const BESIDE = ['postern, batches', 'by hand, undici', 'by hand, durable', 'postfix'];

function toRates(lead: readonly CellOutcome[], names: readonly string[]): string {
  if (lead.length === 0) return '';
  const beside = BESIDE.filter((name) => names.includes(name));
  const rows = lead.flatMap(({ cell, outcomes }) =>
    variantsOf(outcomes).map((variant) => {
      const mine = find(outcomes, 'postern', variant);
      const others = beside.map((name) => {
        const other = find(outcomes, name, variant);
        if (!other) return '';
        if (other.rounds.length === 0) return 'failed';
        const times = ratio(outcomes, other);
        return `${Number.isNaN(times) ? '' : `**${times.toFixed(2)}**: `}${rateOf(other)}`;
      });
      return `| ${titleOf(cell)}${variant === undefined ? '' : `, ${variant}`} | ${[spread(mine, 'rate'), ...others, whole(of(mine, 'p99')), whole(of(mine, 'peakMb'))].join(' | ')} |`;
    }),
  );
  const columns = ['messages/s', 'postern (slowest to fastest round)', ...beside, 'postern: 250 p99 ms', 'peak MB'];
  return `| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}\n${rows.join('\n')}\n`;
}

function toLatencies(lead: readonly CellOutcome[]): string {
  if (lead.length === 0) return '';
  const rows = lead.flatMap(({ cell, outcomes }) =>
    outcomes.map((outcome) => {
      const figures = (['p50', 'p99', 'postP50', 'postP99'] as const).map((field) => spread(outcome, field));
      const title = cell.name ?? titleOf(cell);
      return `| ${title}${outcome.variant === undefined ? '' : `: ${outcome.variant}`} | ${outcome.name} | ${rateOf(outcome)} | ${figures.join(' | ')} |`;
    }),
  );
  return (
    'At a fixed rate, each message is due at its time, whether or not earlier ones were answered; waits are counted from that time. Posts to slow endpoints are left out.\n\n' +
    `| milliseconds | | messages/s | until the 250: p50 | p99 | from the 250 to the post: p50 | p99 |\n|---|---|---|---|---|---|---|\n${rows.join('\n')}\n${lead.map(toChange).join('')}`
  );
}

/** What the second condition of a cell changes for Postern. */
function toChange({ cell, outcomes }: CellOutcome): string {
  const [first, second] = outcomes.filter(({ name }) => name === 'postern');
  const times = of(second, 'postP99') / of(first, 'postP99');
  return second && !Number.isNaN(times)
    ? `\n${cell.name}: the p99 to the post is ${times.toFixed(2)} times as long with "${second.variant}" as with "${first?.variant}".\n`
    : '';
}

const variantsOf = (outcomes: readonly Outcome[]) => [...new Set(outcomes.map(({ variant }) => variant))];

/** The figures of one cell as a table. */
export function toTable({ cell, outcomes }: CellOutcome, rounds: number): string {
  const rows = outcomes.map((outcome) => {
    const { name, variant, fault, rounds: seen } = outcome;
    const label = variant === undefined ? name : `${name}, ${variant}`;
    const times = name === 'postern' ? 1 : ratio(outcomes, outcome);
    const figures = [
      spread(outcome, 'rate'),
      ...(cell.rate === undefined ? [fixed(times, 2)] : []),
      rateOf(outcome, 'accepted'),
      ...(['p50', 'p95'] as const).map((field) => fixed(of(outcome, field), 1)),
      spread(outcome, 'p99'),
      ...(cell.rate === undefined ? [] : [spread(outcome, 'postP50'), spread(outcome, 'postP99')]),
      fixed(of(outcome, 'cpuMs'), 2),
      whole(of(outcome, 'peakMb')),
      whole(of(outcome, 'grownMb')),
      fault === undefined ? String(seen.length) : `${seen.length} of ${rounds}: ${fault}`,
    ];
    return `| ${label} | ${figures.join(' | ')} |`;
  });
  const tools = median(outcomes.filter(({ rounds: seen }) => seen.length > 0).map((outcome) => of(outcome, 'toolsMs')));
  const columns = [
    'messages/s',
    ...(cell.rate === undefined ? ['ratio'] : []),
    'accepted/s',
    '250 p50 ms',
    'p95',
    'p99',
    ...(cell.rate === undefined ? [] : ['to the post p50 ms', 'p99']),
    'CPU ms/message',
    'peak MB',
    'grown MB',
    'rounds',
  ];
  return (
    `### ${titleOf(cell)}\n\n| | ${columns.join(' | ')} |\n|---|${'---|'.repeat(columns.length)}\n${rows.join('\n')}\n\n` +
    `Load generator and sink together: ${tools.toFixed(2)} ms per message (median).\n`
  );
}

const fixed = (value: number, digits: number) => (Number.isNaN(value) ? '' : value.toFixed(digits));
const whole = (value: number) => fixed(value, 0);
const digitsOf = (value: number) => (value < 100 ? 1 : 0);
const rateOf = (outcome: Outcome, field: 'rate' | 'accepted' = 'rate') => {
  const rate = of(outcome, field);
  return fixed(rate, digitsOf(rate));
};

/** A figure with the least and the most of the rounds, where there were several. */
function spread(outcome: Outcome | undefined, field: keyof Figures): string {
  const middle = of(outcome, field);
  if (Number.isNaN(middle)) return '';
  const seen = (outcome?.rounds ?? []).map((figures) => figures[field]);
  const text = (value: number) => value.toFixed(digitsOf(middle));
  return seen.length < 2 ? text(middle) : `${text(middle)} (${text(Math.min(...seen))}–${text(Math.max(...seen))})`;
}
