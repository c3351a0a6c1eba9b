import type { Cell } from './matrix.ts';
import { type Group, type Panel, toSvg } from './plot.ts';
import { type CellOutcome, of, type Outcome, ratio } from './report.ts';

const isOrdinary = ({ signed, perSession }: Cell): boolean => !signed && perSession === undefined;

/** The plot of a run: the sizes at the load they come with, and the kinds of session at the smallest size. Rates are shares of Postern's. */
export function toPlot(names: readonly string[], all: readonly CellOutcome[]): string {
  const axis = 'messages/s, postern = 1';
  const bySize = all.filter(({ cell }) => cell.typical).map((one) => toGroup(names, one, one.cell.size, one.cell.connections));
  const smallest = Math.min(...all.map(({ cell }) => cell.bytes));
  const small = all.filter(({ cell }) => cell.bytes === smallest).toSorted((a, b) => rank(a.cell) - rank(b.cell));
  const byLoad = small.map((one) => toGroup(names, one, labelOf(one.cell), one.cell.connections));
  const panels: Panel[] = [{ title: 'By size', axis, groups: bySize }];
  if (byLoad.length > 1) panels.push({ title: `By the kind of session, ${small[0]?.cell.size}`, axis, groups: byLoad });
  return toSvg(names, panels);
}

/** By connections, and then what is not ordinary. */
const rank = (cell: Cell): number => cell.connections + (isOrdinary(cell) ? 0 : cell.signed ? 2e6 : 1e6);
const labelOf = (cell: Cell): string => (isOrdinary(cell) ? 'many messages each' : cell.signed ? 'DKIM-signed' : 'one message each');

/** A bar is a share of Postern's rate; the ratio stands on it, as in the tables: Postern's rate over the other's. */
function toGroup(names: readonly string[], { outcomes }: CellOutcome, label: string, connections: number): Group {
  const find = (name: string): Outcome | undefined => outcomes.find((outcome) => outcome.name === name);
  const mine = of(find('postern'), 'rate');
  return {
    label: `${label}, ${connections} ${connections === 1 ? 'connection' : 'connections'}`,
    note: Number.isNaN(mine) ? '' : `postern: ${mine < 100 ? mine.toFixed(1) : Math.round(mine).toLocaleString('en')}/s`,
    bars: names.map((name) => {
      const outcome = find(name);
      const against = outcome ? ratio(outcomes, outcome) : Number.NaN;
      return { value: 1 / against, text: name === 'postern' ? '1' : `${against.toFixed(against < 10 ? 1 : 0)}×` };
    }),
  };
}
