import { expect } from 'chai';
import { toPlot } from '../../bench/figures.ts';
import type { Cell } from '../../bench/matrix.ts';
import { toSvg } from '../../bench/plot.ts';
import { type CellOutcome, median, toPeers, toSummary, toTable } from '../../bench/report.ts';

const CELL: Cell = {
  size: '5 kB',
  bytes: 5000,
  signed: false,
  connections: 50,
  messages: 100,
  lead: true,
  quick: true,
};
const figures = (rate: number) => ({
  rate,
  accepted: rate,
  postP50: 4,
  postP99: 5,
  p50: 1,
  p95: 2,
  p99: 3,
  cpuMs: 0.5,
  toolsMs: 0.1,
  peakMb: 300,
  grownMb: 20,
});
const outcome = (name: string, ...rates: number[]) => ({ name, rounds: rates.map(figures) });
const bars = (svg: string) =>
  [...svg.matchAll(/<rect x="[^"]+" y="[^"]+" width="[^"]+" height="([^"]+)"/g)]
    .map(([, height]) => Number(height))
    .filter((height) => height !== 13);

describe('the report of the benchmark', () => {
  it('takes the median of the rounds, shows their spread, and compares Postern with the others', () => {
    const table = toTable(
      { cell: CELL, outcomes: [outcome('postern', 10, 3000, 2900), outcome('other', 1450, 1, 9000)] },
      3,
    );
    expect(table)
      .to.match(/^\| postern \| 2900 \(10–3000\) \| 1\.00 \|.* \| 3 \|$/m)
      .and.match(/^\| other \| 1450 \(1–9000\) \| 2\.00 \|/m);
    expect(median([])).to.be.NaN;
  });

  it('says why a contestant has no or fewer figures, and omits the ratio where Postern has none', () => {
    const outcomes = [
      { name: 'postern', rounds: [], fault: 'Error: it fell over' },
      { ...outcome('other', 50), fault: 'Error: 3 were lost' },
    ];
    expect(toTable({ cell: CELL, outcomes }, 2))
      .to.match(/^\| postern \|.*\| 0 of 2: Error: it fell over \|$/m)
      .and.match(/^\| other \| 50\.0 \| {2}\|.*\| 1 of 2: Error: 3 were lost \|$/m);
  });

  it('compares only under the same conditions', () => {
    const outcomes = [
      { ...outcome('postern', 900), variant: 'RSA' },
      { ...outcome('postern', 1200), variant: 'ECDSA' },
      { ...outcome('other', 300), variant: 'ECDSA' },
    ];
    expect(toTable({ cell: CELL, outcomes }, 1)).to.match(/^\| other, ECDSA \| 300 \| 4\.00 \|/m);
  });

  it('begins with the main cells: rates beside the closest ones, latency at a fixed rate', () => {
    const summary = toSummary(
      [
        { cell: CELL, outcomes: [outcome('postern', 3000), outcome('by hand, durable', 1000), outcome('haraka', 1)] },
        { cell: { ...CELL, name: '500 messages/s', rate: 500 }, outcomes: [outcome('postern', 500)] },
        { cell: { ...CELL, name: 'a detail', lead: false }, outcomes: [outcome('postern', 1)] },
      ],
      ['postern', 'by hand, durable', 'haraka'],
    );
    expect(summary)
      .to.match(/^\| 5 kB, 50 connections \| 3000 \| \*\*3\.00\*\*: 1000 \| 3 \| 300 \|$/m)
      .and.match(/^\| 500 messages\/s \| postern \| 500 \| 1\.0 \| 3\.0 \| 4\.0 \| 5\.0 \|$/m)
      .and.not.contain('detail');
  });

  it('names unavailable contestants, with the reason', () => {
    expect(toPeers([], [{ name: 'haraka', why: 'npm could not install it' }])).to.contain(
      'Without haraka: npm could not install it.',
    );
  });
});

describe('the plot of the benchmark', () => {
  const all: CellOutcome[] = [
    { cell: CELL, outcomes: [outcome('postern', 1000), outcome('slow', 250), { name: 'broken', rounds: [] }] },
    {
      cell: { ...CELL, connections: 500, lead: false },
      outcomes: [outcome('postern', 1000), outcome('slow', 2000), { name: 'broken', rounds: [] }],
    },
  ];

  it('draws shares of the rate of Postern with ratios, and a gap for a missing contestant', () => {
    const svg = toPlot(['postern', 'slow', 'broken'], all);
    const [postern = 0, slow = 0, ...more] = bars(svg);
    expect(slow / postern).to.be.closeTo(0.25, 0.01);
    expect(svg).to.contain('>4×<').and.contain('>0.5×<').and.contain('messages/s, postern = 1');
    expect(more, 'the second panel').to.have.length(4);
  });

  it('clips an outlier, so that the others stay readable', () => {
    const [small = 0, giant = 0] = bars(
      toSvg(
        ['a', 'b'],
        [
          {
            title: 't',
            axis: 'a',
            groups: [
              {
                label: 'l',
                note: '',
                bars: [
                  { value: 1, text: '1' },
                  { value: 100, text: '0.01×' },
                ],
              },
            ],
          },
        ],
      ),
    );
    expect(giant / small).to.be.closeTo(2.5, 0.01);
  });

  it('escapes names', () => {
    expect(toSvg(['<a&b>'], []))
      .to.contain('&lt;a&amp;b&gt;')
      .and.not.contain('<a&b>');
  });
});
