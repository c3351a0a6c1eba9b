import type { Declaration } from '../style-sheet.ts';
import { BLACK, type Color, distance, over, toColor, toLegacyColor, WHITE } from './colors.ts';

// How an element is displayed, as far as that decides whether a person sees its text.

/** Why text is not seen; docs/decisions/0059-facts.md says what each of them asks. */
export const WHY = {
  display: 'not displayed: display:none, or the attribute hidden',
  visibility: 'visibility:hidden',
  opacity: 'transparent as a whole',
  size: 'letters of at most 2 px',
  color: 'in the colour of its background, or nearly',
  'off-screen': 'far outside of the page',
  clipped: 'in a box without room, or clipped away',
  element: 'in an element that is never displayed, such as template or noscript',
  details: 'in closed details: displayed once they are opened',
  comment: 'in a comment',
  'outlook-only': 'in a conditional comment: only Outlook for Windows displays it',
  'not-outlook': 'displayed by all but Outlook for Windows (mso-hide)',
} as const satisfies Readonly<Record<string, string>>;

export type Why = keyof typeof WHY;

/** Pixels: smaller letters cannot be read. */
const SMALLEST = 2;
/** A box of so many pixels has no room. */
const NO_ROOM = 2;
/** Of 255: nearer colours cannot be told apart. */
const NEAREST = 16;
/** Less than that is transparent. */
const FAINTEST = 0.05;
/** Pixels to the left or above from where nothing of a text is left on the page; to the right, and for what is moved from its own place. */
const OUTSIDE = 900;
const FAR_OUTSIDE = 5000;
const MEDIUM = 16;

type Display = 'none' | 'inline' | 'block' | 'table' | 'table-part' | 'row' | 'cell';

/** Immutable: elements that change nothing share that of their parent. */
export interface Box {
  readonly display: Display;
  /** Whether it has a marker, as list items have. */
  readonly isItem: boolean;
  readonly hasMarkers: boolean;
  /** How its white space is kept. */
  readonly space: 'normal' | 'lines' | 'all';
  /** Why all of it is hidden, whatever the elements in it say. */
  readonly lost: Why | undefined;
  readonly isVisible: boolean;
  readonly opacity: number;
  /** Pixels. */
  readonly size: number;
  readonly indent: number;
  readonly color: Color;
  /** -webkit-text-fill-color, which comes before the colour. */
  readonly fill: Color | undefined;
  readonly linkColor: Color;
  /** Undefined: a picture, or not known. */
  readonly background: Color | undefined;
  readonly isOutlookless: boolean;
}

export const ROOT_BOX: Box = {
  display: 'block',
  isItem: false,
  hasMarkers: true,
  space: 'normal',
  lost: undefined,
  isVisible: true,
  opacity: 1,
  size: MEDIUM,
  indent: 0,
  color: BLACK,
  fill: undefined,
  linkColor: [0, 0, 238, 1],
  background: WHITE,
  isOutlookless: false,
};

/** Why text directly in an element is not seen. */
export function whyHidden({ lost, isVisible, opacity, size, fill, color: own, background }: Box): Why | undefined {
  const color = fill ?? own;
  if (lost) return lost;
  if (!isVisible) return 'visibility';
  if (opacity < FAINTEST) return 'opacity';
  if (size <= SMALLEST) return 'size';
  if (color[3] < FAINTEST) return 'color';
  return background && distance(over(color, background), background) <= NEAREST ? 'color' : undefined;
}

/** Whether the first line of a text is moved out of the page. */
export const isIndentedAway = ({ indent }: Box): boolean => indent <= -OUTSIDE;

/** A length; percents are of something that is not known here. */
type Length = { readonly value: number; readonly unit: string };

/** What was declared for an element so far; the last one counts. */
interface Draft {
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
  space?: Box['space'];
  hasMarkers?: boolean;
  isOutlookless?: boolean;
  isPlaced?: boolean;
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
export type Setter = (draft: Draft) => void;

const DISPLAYS: ReadonlyMap<string, Display> = new Map([
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
function toPixels(length: Length | undefined, size: number): number | undefined {
  if (!length || (length.unit === '%' && length.value !== 0)) return undefined;
  if (length.value === 0) return 0;
  const { value, unit } = length;
  if (unit === 'em') return value * size;
  return unit === 'ex' || unit === 'ch' ? (value * size) / 2 : value * (PIXELS.get(unit) ?? 1);
}

function toSize(text: string, { parent, isQuirky }: Draft): number | undefined {
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

/** What is understood of each property; undefined: the value is invalid, or says nothing here. */
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
    draft.isPlaced = value === 'absolute' || value === 'fixed';
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

function colorSetter(value: string, set: (draft: Draft, color: Color) => void): Setter | undefined {
  if (value === 'inherit' || value === 'currentcolor' || value === 'unset')
    return (draft) => set(draft, draft.parent.color);
  const color = toColor(value);
  return color && ((draft) => set(draft, color));
}

/** Longer values name nothing that is asked here, but perhaps a picture. */
const LONGEST_VALUE = 1000;

/** What declarations say, those that count more last. */
export interface Setters {
  readonly normal: readonly Setter[];
  readonly important: readonly Setter[];
}

export function toSetters(declarations: readonly Declaration[]): Setters {
  const of = (isImportant: boolean) =>
    declarations.flatMap(({ name, value, important }) => {
      if (important !== isImportant || !Object.hasOwn(PROPERTIES, name)) return [];
      return PROPERTIES[name]?.(value.slice(0, LONGEST_VALUE).toLowerCase()) ?? [];
    });
  return { normal: of(false), important: of(true) };
}

/** What browsers do of themselves. */
const OWN_DISPLAYS: ReadonlyMap<string, string> = new Map([
  ...(
    'address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption figure footer ' +
    'form h1 h2 h3 h4 h5 h6 header hgroup hr html legend listing main menu nav ol optgroup option p plaintext pre ' +
    'search section summary ul xmp caption'
  )
    .split(' ')
    .map((name): [string, string] => [name, 'block']),
  ['li', 'list-item'],
  ['table', 'table'],
  ['tr', 'table-row'],
  ['td', 'table-cell'],
  ['th', 'table-cell'],
  ...['tbody', 'thead', 'tfoot', 'colgroup', 'col'].map((name): [string, string] => [name, 'table-row-group']),
  ['button', 'inline-block'],
]);
const OWN_SIZES: ReadonlyMap<string, number> = new Map([
  ['h1', 2],
  ['h2', 1.5],
  ['h3', 1.17],
  ['h5', 0.83],
  ['h6', 0.67],
  ['small', 1 / 1.2],
  ['sub', 1 / 1.2],
  ['sup', 1 / 1.2],
  ['big', 1.2],
]);
const FONT_SIZES = [10, 10, 13, 16, 18, 24, 32, 48];
const KEPT_SPACE = new Set(['pre', 'listing', 'xmp', 'plaintext', 'textarea']);
const COLORED = new Set(['body', 'table', 'tbody', 'thead', 'tfoot', 'tr', 'td', 'th']);

/** Whether an element may differ from its parent without a word of the mail. */
export const hasOwnLook = (name: string): boolean =>
  OWN_DISPLAYS.has(name) || OWN_SIZES.has(name) || KEPT_SPACE.has(name) || name === 'a' || name === 'mark';

/** The box of an element. */
export function toBox(
  name: string,
  attributes: ReadonlyMap<string, string>,
  parent: Box,
  declared: readonly Setters[],
  isQuirky: boolean,
): Box {
  const draft: Draft = { parent, isQuirky, lengths: new Map() };
  applyOwn(name, attributes, draft);
  for (const { normal } of declared) for (const set of normal) set(draft);
  for (const { important } of declared) for (const set of important) set(draft);
  return finish(draft);
}

function applyOwn(name: string, attributes: ReadonlyMap<string, string>, draft: Draft): void {
  const { parent } = draft;
  const display = OWN_DISPLAYS.get(name);
  if (display !== undefined) draft.display = display;
  const factor = OWN_SIZES.get(name);
  if (factor !== undefined) draft.size = parent.size * factor;
  if (KEPT_SPACE.has(name)) draft.space = 'all';
  if (name === 'table') {
    draft.lengths.set('text-indent', { value: 0, unit: 'px' });
    if (draft.isQuirky) Object.assign(draft, { size: MEDIUM, space: 'normal' });
  }
  if (name === 'mark') Object.assign(draft, { color: BLACK, background: [255, 255, 0, 1] });
  if (name === 'button') Object.assign(draft, { color: BLACK, background: [239, 239, 239, 1], size: 13 });
  if (attributes.size === 0) return;
  const colorOf = (attribute: string) => toLegacyColor(attributes.get(attribute) ?? '');
  if (name === 'a' && attributes.has('href')) draft.color = parent.linkColor;
  if (name === 'font') {
    const color = colorOf('color');
    if (color) draft.color = color;
    const [, sign, digits] = /^\s*([+-]?)(\d{1,3})/.exec(attributes.get('size') ?? '') ?? [];
    const step = sign === '+' ? 3 + Number(digits) : sign === '-' ? 3 - Number(digits) : Number(digits);
    if (digits !== undefined) draft.size = FONT_SIZES[Math.max(1, Math.min(7, step))] ?? MEDIUM;
  }
  if (name === 'body') {
    const [color, linkColor] = [colorOf('text'), colorOf('link')];
    if (color) draft.color = color;
    if (linkColor) draft.linkColor = linkColor;
  }
  if (COLORED.has(name)) {
    const background = colorOf('bgcolor');
    if (background) draft.background = background;
    if (attributes.get('background')?.trim()) draft.hasPicture = true;
  }
  if (attributes.has('hidden')) draft.display = 'none';
}

function finish(draft: Draft): Box {
  const { parent, lengths } = draft;
  const { size = parent.size, isPlaced = false, isFloating = false } = draft;
  const written = DISPLAYS.get(draft.display ?? 'inline') ?? 'inline';
  const isBlockified = (isPlaced || isFloating) && written !== 'none' && written !== 'table';
  const display = isBlockified ? 'block' : written;
  const pixels = (name: string) => toPixels(lengths.get(name), size);
  const hasBox = display === 'block' || (draft.display ?? '').startsWith('inline-');
  return {
    display,
    isItem: draft.display === 'list-item',
    hasMarkers: draft.hasMarkers ?? parent.hasMarkers,
    space: draft.space ?? parent.space,
    lost: parent.lost ?? lostBy(draft, display, hasBox, pixels),
    isVisible: draft.isVisible ?? parent.isVisible,
    opacity: parent.opacity * Math.min(1, draft.opacity ?? 1),
    size,
    indent: lengths.has('text-indent') ? (pixels('text-indent') ?? 0) : parent.indent,
    color: draft.color ?? parent.color,
    fill: draft.fill ?? parent.fill,
    linkColor: draft.linkColor ?? parent.linkColor,
    background: backgroundOf(draft),
    isOutlookless: draft.isOutlookless ?? parent.isOutlookless,
  };
}

function backgroundOf({ parent, background, hasPicture }: Draft): Color | undefined {
  if (hasPicture) return undefined;
  if (!background || background[3] === 0) return parent.background;
  if (background[3] === 1) return background;
  return parent.background && over(background, parent.background);
}

function lostBy(
  draft: Draft,
  display: Display,
  hasBox: boolean,
  pixels: (name: string) => number | undefined,
): Why | undefined {
  if (display === 'none') return 'display';
  if (draft.isMoved || isOutside(draft, pixels)) return 'off-screen';
  if (draft.isShrunk || draft.isCutOff || (draft.isPlaced && draft.isClipped)) return 'clipped';
  const isTight = ['height', 'max-height', 'width', 'max-width'].some(
    (name) => draft.lengths.get(name)?.unit !== '%' && (pixels(name) ?? NO_ROOM + 1) <= NO_ROOM,
  );
  return hasBox && isTight && draft.overflows === false ? 'clipped' : undefined;
}

function isOutside({ isPlaced, isRelative }: Draft, pixels: (name: string) => number | undefined): boolean {
  const at = (name: string) => pixels(name) ?? 0;
  if (at('margin-left') <= -OUTSIDE || at('margin-left') >= FAR_OUTSIDE || at('margin-top') <= -FAR_OUTSIDE)
    return true;
  if (!isPlaced && !isRelative) return false;
  const isAside = at('left') <= -OUTSIDE || at('left') >= FAR_OUTSIDE || Math.abs(at('right')) >= FAR_OUTSIDE;
  return isAside || at('top') <= -(isPlaced ? OUTSIDE : FAR_OUTSIDE) || at('bottom') >= FAR_OUTSIDE;
}
