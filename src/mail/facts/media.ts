// Media queries, for an assumed screen: a window on a computer, in light colours.

const WIDTH = 1024;
const HEIGHT = 768;
const EM = 16;

const NUMBERS: ReadonlyMap<string, number> = new Map([
  ['width', WIDTH],
  ['height', HEIGHT],
  ['device-width', WIDTH],
  ['device-height', HEIGHT],
  ['device-pixel-ratio', 1],
  ['resolution', 1],
]);
const WORDS: ReadonlyMap<string, string> = new Map([
  ['prefers-color-scheme', 'light'],
  ['prefers-reduced-motion', 'no-preference'],
  ['orientation', 'landscape'],
  ['hover', 'hover'],
  ['pointer', 'fine'],
]);

/** Whether a list of media queries matches; one that is not understood does not. */
export function isShown(media: string): boolean {
  const queries = media.slice(0, 1000).toLowerCase().trim();
  return queries === '' || queries.split(',').some(holds);
}

function holds(query: string): boolean {
  const [, not, rest = ''] = /^\s*(not\s|only\s)?\s*(.*)$/s.exec(query) ?? [];
  const all = rest.split(/\sand\s|\band\b(?=\s*\()/).every((part) => partHolds(part.trim()));
  return not?.trim() === 'not' ? !all : all;
}

function partHolds(part: string): boolean {
  if (part === 'screen' || part === 'all') return true;
  const inside = /^\(([^()]*)\)$/.exec(part)?.[1]?.trim();
  if (inside === undefined) return false;
  const [, feature = '', sign, value = ''] = /^([a-z-]{1,40})\s*(:|<=?|>=?|=)\s*(.{1,40})$/.exec(inside) ?? [];
  const name = feature.replace(/^-(?:webkit|moz|o|ms)-/, '');
  const [, end, base = ''] = /^(?:(min|max)-)?(.*)$/.exec(name) ?? [];
  const own = NUMBERS.get(base);
  if (own === undefined) return WORDS.get(name) === value.trim();
  const wanted = toNumber(value.trim());
  if (wanted === undefined) return false;
  if (end === 'min' || sign === '>=') return own >= wanted;
  if (end === 'max' || sign === '<=') return own <= wanted;
  return sign === '<' ? own < wanted : sign === '>' ? own > wanted : own === wanted;
}

function toNumber(text: string): number | undefined {
  const [, digits, unit] = /^(\d*\.?\d+)(px|em|rem|dppx|x|dpi)?$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  if (unit === 'em' || unit === 'rem') return Number(digits) * EM;
  return unit === 'dpi' ? Number(digits) / 96 : Number(digits);
}
