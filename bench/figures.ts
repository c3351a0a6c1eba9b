import type { Cell } from './matrix.ts';
import { type Group, type Panel, toSvg } from './plot.ts';
import { type CellOutcome, type Outcome, of, ratio } from './report.ts';

const AXIS = 'messages/s, postern = 1';
const MEANING = "the number on a bar is Postern's rate over the other's";

/**
 * The plot of a run: the sizes at the load they come with, and the kinds of session at the smallest size. Rates are
 * shares of Postern's.
 */
export function toPlot(names: readonly string[], all: readonly CellOutcome[]): string {
  const bySize = all
    .filter(({ cell }) => cell.typical)
    .map((one) => toGroup(names, one, `${one.cell.size}, ${connectionsOf(one.cell)}`));
  const smallest = Math.min(...all.map(({ cell }) => cell.bytes));
  const small = all.filter(({ cell }) => cell.bytes === smallest).toSorted((a, b) => rank(a.cell) - rank(b.cell));
  const byLoad = small.map((one) => toGroup(names, one, labelOf(one.cell)));
  const panels: Panel[] = [{ title: `By size; ${MEANING}`, axis: AXIS, groups: bySize }];
  if (byLoad.length > 1)
    panels.push({ title: `By the kind of session, ${small[0]?.cell.size}`, axis: AXIS, groups: byLoad });
  return toSvg(
    names,
    panels.filter(({ groups }) => groups.length > 0),
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

/** A bar is a share of Postern's rate; on it stands the ratio of the tables. */
function toGroup(names: readonly string[], { outcomes }: CellOutcome, label: string): Group {
  const find = (name: string): Outcome | undefined => outcomes.find((outcome) => outcome.name === name);
  const mine = of(find('postern'), 'rate');
  return {
    label,
    note: Number.isNaN(mine)
      ? ''
      : `postern: ${mine < 100 ? mine.toFixed(1) : Math.round(mine).toLocaleString('en')}/s`,
    bars: names.map((name) => {
      const outcome = find(name);
      const against = outcome ? ratio(outcomes, outcome) : Number.NaN;
      return { value: 1 / against, text: name === 'postern' ? '1' : `${Number(against.toPrecision(2))}×` };
    }),
  };
}
