import type { CssDeclaration } from '../style-sheet.ts';
import type { Box } from './box.ts';
import { type Color, toColor } from './colors.ts';

// Reads the declarations of style sheets that decide how text is displayed.

/** A box of at most this number of pixels has no room. */
export const NO_ROOM = 2;
/**
 * Pixels to the left or above from which no text is left on the page; and the same to the right, and for moves from the
 * own position.
 */
export const OUTSIDE = 900;
export const FAR_OUTSIDE = 5000;
/** The default size of letters, in pixels. */
export const MEDIUM = 16;

export type Display = 'none' | 'inline' | 'block' | 'table' | 'table-part' | 'row' | 'cell';

/** How white space is kept: not, its line ends, or all of it. */
export type Space = 'normal' | 'lines' | 'all';

/** A length; percents are of something that is not known here. */
type Length = { readonly value: number; readonly unit: string };

/** The declarations for an element so far; the last one counts. */
export interface BoxDraft {
  readonly parent: Box;
  readonly isQuirky: boolean;
  display?: string;
  isVisible?: boolean;
  opacity?: number;
  size?: number;
  color?: Color;
  fill?: Color;
  linkColor?: Color;
  background?: Color;
  hasPicture?: boolean;
  space?: Space;
  hasMarkers?: boolean;
  isOutlookless?: boolean;
  isAbsolute?: boolean;
  isRelative?: boolean;
  isFloating?: boolean;
  isClipped?: boolean;
  isCutOff?: boolean;
  isMoved?: boolean;
  isShrunk?: boolean;
  overflows?: boolean;
  readonly lengths: Map<string, Length | undefined>;
}

/** A declaration that was understood. */
type Setter = (draft: BoxDraft) => void;

export const DISPLAYS: ReadonlyMap<string, Display> = new Map([
  ['none', 'none'],
  ['inline', 'inline'],
  ['contents', 'inline'],
  ['table', 'table'],
  ['inline-table', 'table'],
  ['table-row', 'row'],
  ['table-cell', 'cell'],
  ...['table-row-group', 'table-header-group', 'table-footer-group', 'table-column', 'table-column-group'].map(
    (name): [string, Display] => [name, 'table-part'],
  ),
  ...['inline-block', 'inline-flex', 'inline-grid'].map((name): [string, Display] => [name, 'inline']),
  ...['block', 'flex', 'grid', 'list-item', 'flow-root', 'table-caption', '-webkit-box', 'inline-box'].map(
    (name): [string, Display] => [name, 'block'],
  ),
]);
const SIZES: ReadonlyMap<string, number> = new Map([
  ['xx-small', 9],
  ['x-small', 10],
  ['small', 13],
  ['medium', 16],
  ['large', 18],
  ['x-large', 24],
  ['xx-large', 32],
  ['xxx-large', 48],
]);
const PIXELS: ReadonlyMap<string, number> = new Map([
  ['px', 1],
  ['pt', 4 / 3],
  ['pc', 16],
  ['in', 96],
  ['cm', 96 / 2.54],
  ['mm', 96 / 25.4],
  ['q', 96 / 101.6],
  ['rem', MEDIUM],
  ['vw', 10.24],
  ['vh', 7.68],
]);
const LENGTH = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)([a-z]{1,4}|%)?$/;
/** Parts of a shorthand; functions stay whole. */
const PART = /[^\s(,/]*\([^()]*\)|[^\s,/]+/g;

function toLength(text: string, isQuirky = false): Length | undefined {
  const [, digits, unit = ''] = LENGTH.exec(text) ?? [];
  if (digits === undefined) return undefined;
  const value = Number(digits);
  if (unit === '') return value === 0 || isQuirky ? { value, unit: 'px' } : undefined;
  return unit === '%' || unit === 'em' || unit === 'ex' || unit === 'ch' || PIXELS.has(unit)
    ? { value, unit }
    : undefined;
}

/** Undefined if it is a percentage. */
export function toPixels(length: Length | undefined, size: number): number | undefined {
  if (!length || (length.unit === '%' && length.value !== 0)) return undefined;
  if (length.value === 0) return 0;
  const { value, unit } = length;
  if (unit === 'em') return value * size;
  return unit === 'ex' || unit === 'ch' ? (value * size) / 2 : value * (PIXELS.get(unit) ?? 1);
}

function toSize(text: string, { parent, isQuirky }: BoxDraft): number | undefined {
  const named = SIZES.get(text);
  if (named !== undefined) return named;
  if (text === 'smaller') return parent.size / 1.2;
  if (text === 'larger') return parent.size * 1.2;
  const length = toLength(text, isQuirky);
  if (!length || length.value < 0) return undefined;
  return length.unit === '%' ? (parent.size * length.value) / 100 : toPixels(length, parent.size);
}

const length =
  (name: string) =>
  (value: string): Setter | undefined => {
    if (/^(?:auto|none|initial|unset|max-content|min-content|fit-content)$/.test(value))
      return (draft) => void draft.lengths.set(name, undefined);
    if (!LENGTH.test(value)) return undefined;
    return (draft) => {
      const found = toLength(value, draft.isQuirky);
      if (found) draft.lengths.set(name, found);
    };
  };

const isKnownDisplay = (value: string): boolean => DISPLAYS.has(value);

/** Reads the value of each property; undefined: it is invalid, or irrelevant here. */
const PROPERTIES: Readonly<Record<string, (value: string) => Setter | undefined>> = {
  display: (value) => (isKnownDisplay(value) ? (draft) => void (draft.display = value) : undefined),
  visibility: (value) =>
    /^(?:visible|hidden|collapse)$/.test(value) ? (draft) => void (draft.isVisible = value === 'visible') : undefined,
  'content-visibility': (value) => (value === 'hidden' ? (draft) => void (draft.display = 'none') : undefined),
  opacity: (value) => {
    const found = /^(\d*\.?\d+)(%)?$/.exec(value);
    if (!found) return undefined;
    return (draft) => void (draft.opacity = Number(found[1]) / (found[2] ? 100 : 1));
  },
  filter: (value) => (/opacity\(\s*0*\.?0+%?\s*\)/.test(value) ? (draft) => void (draft.opacity = 0) : undefined),
  'font-size': (value) => (draft) => {
    draft.size = toSize(value, draft) ?? (value === 'inherit' ? draft.parent.size : draft.size) ?? draft.parent.size;
  },
  font: (value) => {
    const size = value.match(PART)?.find((part) => SIZES.has(part) || /^[\d.]+(?:[a-z]{2,4}|%)$|^0$/.test(part));
    return size === undefined ? undefined : (draft) => void (draft.size = toSize(size, draft) ?? draft.parent.size);
  },
  color: (value) => colorSetter(value, (draft, color) => void (draft.color = color)),
  '-webkit-text-fill-color': (value) => colorSetter(value, (draft, color) => void (draft.fill = color)),
  'background-color': (value) => colorSetter(value, (draft, color) => void (draft.background = color)),
  'background-image': (value) => (draft) => void (draft.hasPicture = isPicture(value)),
  background: (value) => {
    const color = (value.match(PART) ?? []).map(toColor).find((found) => found !== undefined);
    return (draft) => {
      draft.background = color ?? [0, 0, 0, 0];
      draft.hasPicture = isPicture(value);
    };
  },
  'white-space': (value) => {
    if (!/^(?:normal|nowrap|pre|pre-wrap|pre-line|break-spaces)$/.test(value)) return undefined;
    const space = value === 'pre-line' ? 'lines' : /^(?:pre|break)/.test(value) ? 'all' : 'normal';
    return (draft) => void (draft.space = space);
  },
  'list-style': (value) => (draft) => void (draft.hasMarkers = !/\bnone\b/.test(value)),
  'list-style-type': (value) => (draft) => void (draft.hasMarkers = value !== 'none'),
  'mso-hide': (value) => (value === 'all' ? (draft) => void (draft.isOutlookless = true) : undefined),
  position: (value) => (draft) => {
    draft.isAbsolute = value === 'absolute' || value === 'fixed';
    draft.isRelative = value === 'relative' || value === 'sticky';
  },
  float: (value) => (draft) => void (draft.isFloating = value !== 'none'),
  clip: (value) => {
    const sides = /^rect\(([^()]{1,100})\)$/.exec(value)?.[1];
    if (sides === undefined) return value === 'auto' ? (draft) => void (draft.isClipped = false) : undefined;
    const [top = Number.NaN, right = Number.NaN, bottom = Number.NaN, left = Number.NaN] = sides
      .split(/[\s,]+/)
      .map((side) => Number.parseFloat(side));
    return (draft) => void (draft.isClipped = right - left <= NO_ROOM || bottom - top <= NO_ROOM);
  },
  'clip-path': (value) => {
    const isNothing =
      /^inset\(\s*(?:[5-9]\d|\d{3,})(?:\.\d+)?%|^(?:circle|ellipse)\(\s*0|^polygon\((?:\s*0(?:px|%)?[\s,]?)+\)$/;
    return (draft) => void (draft.isCutOff = isNothing.test(value.slice(0, 200)));
  },
  transform: (value) => {
    const isShrunk = /scale(?:3d|x|y)?\(\s*0*(?:\.0+)?\s*[,)]|rotate[xy]\(\s*-?90deg/.test(value);
    const moved = /translate(?:3d|x|y)?\(\s*([^(),]{1,30})(?:,\s*([^(),]{1,30}))?/.exec(value) ?? [];
    const isMoved = moved.slice(1, 3).some((part = '') => {
      const pixels = toPixels(toLength(part.trim()), MEDIUM) ?? 0;
      return pixels <= -OUTSIDE || pixels >= FAR_OUTSIDE;
    });
    return (draft) => Object.assign(draft, { isShrunk, isMoved });
  },
  overflow: (value) => (draft) => void (draft.overflows = value === 'visible'),
  'overflow-x': (value) => (draft) => void (draft.overflows = value === 'visible'),
  'overflow-y': (value) => (draft) => void (draft.overflows = value === 'visible'),
  'text-indent': length('text-indent'),
  margin: (value) => (draft) => {
    const parts = value.split(/\s+/).map((part) => toLength(part, draft.isQuirky));
    draft.lengths.set('margin-top', parts[0]).set('margin-left', parts[3] ?? parts[1] ?? parts[0]);
  },
  ...Object.fromEntries(
    ['left', 'right', 'top', 'bottom', 'width', 'height', 'max-width', 'max-height', 'margin-left', 'margin-top'].map(
      (name) => [name, length(name)],
    ),
  ),
};

const isPicture = (value: string): boolean => /url\(|gradient\(|image\(|image-set\(/.test(value);

function colorSetter(value: string, set: (draft: BoxDraft, color: Color) => void): Setter | undefined {
  if (value === 'inherit' || value === 'currentcolor' || value === 'unset')
    return (draft) => set(draft, draft.parent.color);
  const color = toColor(value);
  return color && ((draft) => set(draft, color));
}

/** Longer values are irrelevant here, except for a picture. */
const LONGEST_VALUE = 1000;

/** Declarations, those with precedence last. */
export interface Setters {
  readonly normal: readonly Setter[];
  readonly important: readonly Setter[];
}

export function toSetters(declarations: readonly CssDeclaration[]): Setters {
  const of = (isImportant: boolean) =>
    declarations.flatMap(({ name, value, important }) => {
      if (important !== isImportant || !Object.hasOwn(PROPERTIES, name)) return [];
      return PROPERTIES[name]?.(value.slice(0, LONGEST_VALUE).toLowerCase()) ?? [];
    });
  return { normal: of(false), important: of(true) };
}
