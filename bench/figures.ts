import type { Cell } from './matrix.ts';
import { type Group, type Panel, toSvg } from './plot.ts';
import { type CellOutcome, type Outcome, of, ratio } from './report.ts';

const AXIS = 'messages/s, postern = 1';
const MEANING = "the number on a bar is Postern's rate over the other's";

/**
 * The plot of a run: what users meet, the sizes at the load they come with, and the kinds of session at the smallest
 * size. Rates are shares of Postern's; where the rate is fixed there is nothing to compare. Who takes part in one cell
 * of several has no bar: the others keep their width.
 */
export function toPlot(names: readonly string[], all: readonly CellOutcome[]): string {
  const open = all.filter(({ cell }) => cell.rate === undefined);
  const cellsOf = (name: string) => open.filter(({ outcomes }) => outcomes.some((outcome) => outcome.name === name));
  const shown = names.filter((name) => cellsOf(name).length >= Math.min(2, open.length));
  const groups = (some: readonly CellOutcome[], label: (cell: Cell) => string) =>
    some.flatMap((one) => toGroups(shown, one, label(one.cell)));
  const ordinary = open.filter(({ cell }) => cell.name === undefined);
  const smallest = Math.min(...ordinary.map(({ cell }) => cell.bytes));
  const small = ordinary.filter(({ cell }) => cell.bytes === smallest).toSorted((a, b) => rank(a.cell) - rank(b.cell));
  const special = groups(
    open.filter(({ cell }) => cell.name !== undefined),
    ({ label, name = '' }) => label ?? name,
  );
  const bySize = groups(
    ordinary.filter(({ cell }) => cell.lead),
    (cell) => `${cell.size}, ${connectionsOf(cell)}`,
  );
  const panels: Panel[] = [
    { title: `By size; ${MEANING}`, axis: AXIS, groups: bySize },
    { title: 'What users meet', axis: AXIS, groups: special },
  ];
  if (small.length > 1)
    panels.push({
      title: `By the kind of session, ${small[0]?.cell.size}`,
      axis: AXIS,
      groups: groups(small, labelOf),
    });
  return toSvg(
    shown,
    panels.filter((panel) => panel.groups.length > 0),
  );
}

/** By connections, and then what is not ordinary. */
const rank = ({ connections, signed, perSession }: Cell): number =>
  connections + (perSession === undefined ? 0 : 1e6) + (signed ? 2e6 : 0);
const connectionsOf = ({ connections }: Cell): string => `${connections} connection${connections === 1 ? '' : 's'}`;
const labelOf = (cell: Cell): string =>
  cell.perSession === 1
    ? `${cell.connections}, one mail each`
    : cell.signed
      ? `${cell.connections}, DKIM-signed`
      : connectionsOf(cell);

/** A group for each variant. A bar is a share of Postern's rate; on it stands the ratio of the tables. */
function toGroups(names: readonly string[], { outcomes }: CellOutcome, label: string): Group[] {
  const variants = [...new Set(outcomes.map(({ variant }) => variant))];
  return variants.map((variant) => {
    const find = (name: string): Outcome | undefined =>
      outcomes.find((outcome) => outcome.name === name && outcome.variant === variant);
    const mine = of(find('postern'), 'rate');
    return {
      label: variant === undefined ? label : `${label}, ${variant}`,
      note: Number.isNaN(mine)
        ? ''
        : `postern: ${mine < 100 ? mine.toFixed(1) : Math.round(mine).toLocaleString('en')}/s`,
      bars: names.map((name) => {
        const outcome = find(name);
        const against = outcome ? ratio(outcomes, outcome) : Number.NaN;
        return { value: 1 / against, text: name === 'postern' ? '1' : `${Number(against.toPrecision(2))}×` };
      }),
    };
  });
}
