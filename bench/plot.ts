/** Bars that belong together: one for each series, in their order; NaN leaves a gap. */
export interface Group {
  readonly label: string;
  /** A second line under it. */
  readonly note: string;
  readonly bars: readonly { readonly value: number; readonly text: string }[];
}

/** A plot of grouped bars; several stand one under the other. */
export interface Panel {
  readonly title: string;
  readonly axis: string;
  readonly groups: readonly Group[];
}

// Told apart by people who see few colours, too (Okabe and Ito).
const COLOURS = ['#0072b2', '#e69f00', '#d55e00', '#009e73', '#cc79a7', '#777777', '#56b4e9', '#f0e442'];
const WIDTH = 1000;
const LEFT = 64;
const RIGHT = 16;
const TOP = 64;
const BARS = 230;
const PANEL = 350;
/** A bar beyond it is cut off, so that one giant leaves the others their height; the text on it says how much it is. */
const HIGHEST = 2.5;

/** An SVG with a ground of its own, so that it can be read on a light page and on a dark one. */
export function toSvg(series: readonly string[], panels: readonly Panel[]): string {
  const height = 44 + panels.length * PANEL;
  const body = panels.map(
    (panel, i) => `<g transform="translate(0 ${44 + i * PANEL})">\n${toPanel(panel, series.length)}\n</g>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="13" fill="#222222">
<rect width="${WIDTH}" height="${height}" rx="6" fill="#ffffff" stroke="#cccccc"/>
${series.map(toKey).join('\n')}
${body.join('\n')}
</svg>
`;
}

function toKey(name: string, i: number, { length }: readonly string[]): string {
  const x = LEFT + i * Math.min(150, (WIDTH - LEFT) / length);
  return `<rect x="${x}" y="18" width="13" height="13" fill="${colour(i)}"/><text x="${x + 19}" y="29">${escape(name)}</text>`;
}

function toPanel({ title, axis, groups }: Panel, series: number): string {
  const most = Math.min(
    HIGHEST,
    Math.max(...groups.flatMap(({ bars }) => bars.map(({ value }) => value)).filter(Number.isFinite), 0) || 1,
  );
  const step = stepFor(most);
  const top = Math.ceil(most / step - 1e-9) * step;
  const y = (value: number) => TOP + BARS * (1 - value / top);
  const room = (WIDTH - LEFT - RIGHT) / Math.max(1, groups.length);
  const lines = Array.from({ length: Math.round(top / step) + 1 }, (_, i) => toLine(y(i * step), i * step));
  return [
    `<text x="${LEFT}" y="24" font-size="15" font-weight="600">${escape(title)}</text>`,
    `<text transform="translate(18 ${TOP + BARS / 2}) rotate(-90)" text-anchor="middle">${escape(axis)}</text>`,
    ...lines,
    ...groups.map((group, i) => toGroup(group, { x: LEFT + i * room, room, y, top, series })),
  ].join('\n');
}

/** Lines at 1, 2 or 5 times a power of ten, four to ten of them. */
function stepFor(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most));
  return [0.1, 0.2, 0.5, 1].map((share) => share * power).find((step) => most / step <= 8) ?? 2 * power;
}

function toLine(y: number, value: number): string {
  const label = Number(value.toPrecision(3)).toLocaleString('en');
  return `<path d="M${LEFT} ${round(y)}H${WIDTH - RIGHT}" stroke="#dddddd"/><text x="${LEFT - 8}" y="${round(y + 4)}" text-anchor="end">${label}</text>`;
}

interface GroupArea {
  readonly x: number;
  readonly room: number;
  readonly y: (value: number) => number;
  readonly top: number;
  readonly series: number;
}

function toGroup({ label, note, bars }: Group, area: GroupArea): string {
  const middle = round(area.x + area.room / 2);
  const under = (line: number, text: string, fill: string) =>
    `<text x="${middle}" y="${TOP + BARS + 2 + 18 * line}" text-anchor="middle" fill="${fill}">${escape(text)}</text>`;
  return [...bars.map((bar, i) => toBar(bar, i, area)), under(1, label, '#222222'), under(2, note, '#555555')].join(
    '\n',
  );
}

function toBar({ value, text }: Group['bars'][number], i: number, { x, room, y, top, series }: GroupArea): string {
  if (!Number.isFinite(value)) return '';
  const width = (room * 0.88) / series;
  const left = x + room * 0.06 + i * width;
  const height = y(0) - y(Math.min(value, top));
  const cut =
    value > top
      ? `<path d="M${round(left - 2)} ${round(y(top) + 16)}l${round(width * 0.86 + 4)} -7v5l${round(-width * 0.86 - 4)} 7z" fill="#ffffff"/>`
      : '';
  return (
    `<rect x="${round(left)}" y="${round(y(0) - height)}" width="${round(width * 0.86)}" height="${round(height)}" fill="${colour(i)}"/>${cut}` +
    `<text x="${round(left + width * 0.43)}" y="${round(y(0) - height - 5)}" text-anchor="middle" font-size="${Math.min(12, round(width * 0.44))}">${escape(text)}</text>`
  );
}

const colour = (i: number): string => COLOURS[i % COLOURS.length] ?? '#000000';
const round = (value: number): number => Math.round(value * 10) / 10;
const escape = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
