import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { h } from '../h.ts';
import type { HostSeries } from '../records.ts';
import { Table } from './elements.ts';
import { type Values, valuesOf } from './series.ts';
import { clockTime, localTime, number, size, span } from './text.ts';

// Figures over time: a drawing for the eye, a sentence and a table for everybody. The library that draws is loaded with
// the first plot, so that other screens do not wait for it.

type Unit = '' | 's' | 'ms' | 'bytes';

interface Curve {
  readonly label: string;
  readonly unit: Unit;
  readonly tone: 'accent' | 'good' | 'wait' | 'bad';
  /** Null where nothing is known: a gap. */
  readonly values: Values;
  /** Has a scale of its own, at the right. */
  readonly right?: boolean;
}

interface PlotProps {
  readonly title: string;
  /** What the plot shows, for those who do not see it. */
  readonly sentence: string;
  /** Seconds since 1970. */
  readonly times: readonly number[];
  /** Always as many, in the same order. */
  readonly curves: readonly Curve[];
}

interface SeriesCurve extends Pick<Curve, 'label' | 'tone' | 'right'> {
  /** The series that it adds up. */
  readonly of: readonly string[];
}

export interface SeriesPlotProps {
  readonly title: string;
  readonly curves: readonly SeriesCurve[];
  /** The sentence, from the values of each curve. */
  say(values: readonly Values[], unit: Unit): string;
}

/** A plot of series of the host. */
export function SeriesPlot({ title, curves, say, data }: SeriesPlotProps & { readonly data: HostSeries }) {
  const unitOf = ([name]: readonly string[]) => data.series.find((one) => one.name === name)?.unit ?? '';
  const drawn = curves.map(({ of, ...curve }) => ({ ...curve, unit: unitOf(of), values: valuesOf(data, ...of) }));
  const sentence = say(
    drawn.map(({ values }) => values),
    drawn[0]?.unit ?? '',
  );
  return h(Plot, { title, sentence, times: data.times, curves: drawn });
}

const HIGH = 140;
const TWO_DAYS_S = 172_800;

function Plot({ title, sentence, times, curves }: PlotProps) {
  const [pointed, setPointed] = useState<number>();
  const at = pointed !== undefined && pointed < times.length ? pointed : times.length - 1;
  return h('figure.plot', [
    h('figcaption', [h('h3', title), h('p.faint', sentence)]),
    h(Drawing, { times, curves, onPoint: setPointed }),
    h('ul.legend', [
      curves.map(({ label, tone, unit, values }) =>
        h('li', { key: label }, [
          h('span', { class: `swatch ${tone}`, 'aria-hidden': 'true' }),
          `${label} `,
          h('strong', valueText(values[at], unit)),
        ]),
      ),
      at >= 0 && h('li.faint', timeText(times, at)),
    ]),
    h(AsTable, { title, times, curves }),
  ]);
}

/** The drawing alone; a text beside it gives the figures. */
function Drawing({
  times,
  curves,
  onPoint,
}: Pick<PlotProps, 'times' | 'curves'> & { onPoint(at: number | undefined): void }) {
  const container = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const newest = useRef({ times, curves });
  newest.current = { times, curves };
  const [failed, setFailed] = useState(false);

  useEffect(() => {
    const box = container.current;
    if (!box) return;
    let alive = true;
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    const redraw = () => chart.current?.redraw();
    const resized = new ResizeObserver(() => chart.current?.setSize({ width: box.clientWidth, height: HIGH }));
    import('uplot').then(
      ({ default: Library }) => {
        if (!alive) return;
        const made = new Library(optionsOf(box, newest.current, onPoint), dataOf(newest.current), box);
        chart.current = made;
        resized.observe(box);
        dark.addEventListener('change', redraw);
      },
      () => alive && setFailed(true),
    );
    return () => {
      alive = false;
      resized.disconnect();
      dark.removeEventListener('change', redraw);
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, []);
  useEffect(() => chart.current?.setData(dataOf({ times, curves })), [times, curves]);

  return h('div', [
    h('div.drawing', { ref: container, 'aria-hidden': 'true' }),
    failed && h('p.faint', 'The chart could not be loaded. The table has all values.'),
  ]);
}

const dataOf = ({ times, curves }: Pick<PlotProps, 'times' | 'curves'>): uPlot.AlignedData => [
  [...times],
  ...curves.map(({ values }) => [...values]),
];

function optionsOf(
  box: HTMLElement,
  { curves }: Pick<PlotProps, 'curves'>,
  onPoint: (at: number | undefined) => void,
): uPlot.Options {
  const colour = (value: string) => () => resolved(box, value);
  const text = colour('var(--faint)');
  const line = { stroke: colour('var(--line)'), width: 1 };
  const font = `11px ${getComputedStyle(box).fontFamily}`;
  const fromZero: uPlot.Scale = { range: (_, _least, most) => [0, most > 0 ? most * 1.1 : 1] };
  const axis = (scale: string, unit: Unit, right: boolean): uPlot.Axis => ({
    scale,
    side: right ? 1 : 3,
    stroke: text,
    grid: right ? { show: false } : line,
    ticks: { show: false },
    font,
    size: unit === '' ? 40 : unit === 's' ? 72 : 58, // room for `1 h 30 min`
    space: 28,
    gap: 4,
    incrs: unit === 's' ? SPANS : ROUND,
    values: (_, values) => values.map((value) => valueText(value, unit)),
  });
  const left = curves.find((one) => !one.right);
  const right = curves.find((one) => one.right);
  return {
    width: box.clientWidth,
    height: HIGH,
    padding: [8, right ? 0 : 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: true }, left: fromZero, right: fromZero },
    hooks: { setCursor: [({ cursor: { idx } }) => onPoint(idx ?? undefined)] },
    axes: [
      {
        stroke: text,
        grid: { show: false },
        ticks: line,
        font,
        size: 26,
        gap: 2,
        space: 56,
        values: ({ data: [times] }, at) => at.map((s) => shortTime(s, spanOf(times))),
      },
      ...(left ? [axis('left', left.unit, false)] : []),
      ...(right ? [axis('right', right.unit, true)] : []),
    ],
    series: [
      {},
      ...curves.map(
        ({ label, tone, right: atRight = false }): uPlot.Series => ({
          label,
          scale: atRight ? 'right' : 'left',
          stroke: colour(`var(--${tone})`),
          width: 1.5,
          ...(atRight ? { dash: [4, 3] } : { fill: colour(`color-mix(in srgb, var(--${tone}) 12%, transparent)`) }),
          points: { size: 5, fill: colour(`var(--${tone})`), filter: ({ data }, at) => lonely(data[at] ?? []) },
        }),
      ),
    ],
  };
}

/** Steps of an axis: 1, 2, 5, 10, … and those of a clock. */
const ROUND = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
const SPANS = [
  1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 2_592_000,
  8_640_000, 31_536_000,
];

/** Values without a neighbour: a line needs two, so these are drawn as points. */
function lonely(values: ArrayLike<number | null | undefined>): number[] {
  const isKnown = (i: number) => (values[i] ?? null) !== null;
  return Array.from(values, (_, i) => i).filter((i) => isKnown(i) && !isKnown(i - 1) && !isKnown(i + 1));
}

/** A canvas takes colours, not the properties of the style sheet. */
function resolved(box: HTMLElement, value: string): string {
  box.style.color = value;
  const { color } = getComputedStyle(box);
  box.style.color = '';
  return color;
}

/** The figures as a table, newest first. It is made when it is opened. */
function AsTable({ title, times, curves }: Pick<PlotProps, 'title' | 'times' | 'curves'>) {
  const [open, setOpen] = useState(false);
  const toRow = (_: number, i: number) => [
    timeText(times, i),
    ...curves.map(({ unit, values }) => valueText(values[i], unit)),
  ];
  return h('details', { onToggle: (event) => setOpen(event.currentTarget.open) }, [
    h('summary', 'Show as table'),
    open &&
      h(Table, {
        label: title,
        columns: ['Time', ...curves.map(({ label }) => label)],
        rows: times.map(toRow).toReversed(),
      }),
  ]);
}

/** A value in its unit. */
export function valueText(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return '\u2013';
  if (unit === 's') return value === 0 ? '0 s' : span(value * 1000);
  if (unit === 'ms') return value < 10 ? `${Math.round(value * 10) / 10} ms` : span(value);
  if (unit === 'bytes') return size(value);
  return number(Math.round(value * 10) / 10);
}

const spanOf = (times: ArrayLike<number>) => (times[times.length - 1] ?? 0) - (times[0] ?? 0);

/** A time of an axis: of the day, or the day if there are many. */
function shortTime(s: number, long: number): string {
  return long < TWO_DAYS_S ? clockTime(s * 1000).slice(0, 5) : localTime(s * 1000).slice(5, 10);
}

function timeText(times: readonly number[], at: number): string {
  const ms = (times[at] ?? 0) * 1000;
  return spanOf(times) < TWO_DAYS_S ? clockTime(ms).slice(0, 5) : localTime(ms).slice(0, 16);
}
