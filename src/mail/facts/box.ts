import { BLACK, type Color, distance, over, toLegacyColor, WHITE } from './colors.ts';
import {
  type BoxDraft,
  DISPLAYS,
  type Display,
  FAR_OUTSIDE,
  MEDIUM,
  NO_ROOM,
  OUTSIDE,
  type Setters,
  type Space,
  toPixels,
} from './declarations.ts';

// How an element is displayed, as far as that decides whether a person sees its text.

/** Why text is not seen; docs/decisions/0059-facts.md defines each reason. */
export const HIDDEN_REASONS = {
  display: 'not displayed: display:none, or the attribute hidden',
  visibility: 'visibility:hidden',
  opacity: 'fully transparent',
  size: 'letters of at most 2 px',
  color: 'in the colour of its background, or nearly',
  'off-screen': 'far outside the page',
  clipped: 'clipped, or in a box that is too small',
  element: 'in an element that is never displayed, such as template or noscript',
  details: 'in a closed <details> element: displayed once a person opens it',
  comment: 'in a comment',
  'outlook-only': 'in a conditional comment: only Outlook for Windows displays it',
  'not-outlook': 'displayed by all but Outlook for Windows (mso-hide)',
} as const satisfies Readonly<Record<string, string>>;

export type HiddenReason = keyof typeof HIDDEN_REASONS;

/** Pixels: smaller letters cannot be read. */
const SMALLEST = 2;
/** Of 255: closer colours are indistinguishable. */
const NEAREST = 16;
/** Less than that is transparent. */
const FAINTEST = 0.05;

/** Immutable: elements that change nothing share that of their parent. */
export interface Box {
  readonly display: Display;
  /** Whether it has a marker, as list items have. */
  readonly isItem: boolean;
  readonly hasMarkers: boolean;
  /** How its white space is kept. */
  readonly space: Space;
  /** Why all of it is hidden, regardless of the elements in it. */
  readonly lost: HiddenReason | undefined;
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
export function whyHidden({
  lost,
  isVisible,
  opacity,
  size,
  fill,
  color: own,
  background,
}: Box): HiddenReason | undefined {
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

/** Default styles of browsers. */
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

/** Whether browsers give an element a style of its own. */
export const hasDefaultStyle = (name: string): boolean =>
  OWN_DISPLAYS.has(name) || OWN_SIZES.has(name) || KEPT_SPACE.has(name) || name === 'a' || name === 'mark';

/** The box of an element. */
export function toBox(
  name: string,
  attributes: ReadonlyMap<string, string>,
  parent: Box,
  declared: readonly Setters[],
  isQuirky: boolean,
): Box {
  const draft: BoxDraft = { parent, isQuirky, lengths: new Map() };
  applyOwn(name, attributes, draft);
  for (const { normal } of declared) for (const set of normal) set(draft);
  for (const { important } of declared) for (const set of important) set(draft);
  return finish(draft);
}

function applyOwn(name: string, attributes: ReadonlyMap<string, string>, draft: BoxDraft): void {
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

function finish(draft: BoxDraft): Box {
  const { parent, lengths } = draft;
  const { size = parent.size, isAbsolute = false, isFloating = false } = draft;
  const written = DISPLAYS.get(draft.display ?? 'inline') ?? 'inline';
  const isBlockified = (isAbsolute || isFloating) && written !== 'none' && written !== 'table';
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

function backgroundOf({ parent, background, hasPicture }: BoxDraft): Color | undefined {
  if (hasPicture) return undefined;
  if (!background || background[3] === 0) return parent.background;
  if (background[3] === 1) return background;
  return parent.background && over(background, parent.background);
}

function lostBy(
  draft: BoxDraft,
  display: Display,
  hasBox: boolean,
  pixels: (name: string) => number | undefined,
): HiddenReason | undefined {
  if (display === 'none') return 'display';
  if (draft.isMoved || isOutside(draft, pixels)) return 'off-screen';
  if (draft.isShrunk || draft.isCutOff || (draft.isAbsolute && draft.isClipped)) return 'clipped';
  const isTight = ['height', 'max-height', 'width', 'max-width'].some(
    (name) => draft.lengths.get(name)?.unit !== '%' && (pixels(name) ?? NO_ROOM + 1) <= NO_ROOM,
  );
  return hasBox && isTight && draft.overflows === false ? 'clipped' : undefined;
}

function isOutside({ isAbsolute, isRelative }: BoxDraft, pixels: (name: string) => number | undefined): boolean {
  const at = (name: string) => pixels(name) ?? 0;
  if (at('margin-left') <= -OUTSIDE || at('margin-left') >= FAR_OUTSIDE || at('margin-top') <= -FAR_OUTSIDE)
    return true;
  if (!isAbsolute && !isRelative) return false;
  const isAside = at('left') <= -OUTSIDE || at('left') >= FAR_OUTSIDE || Math.abs(at('right')) >= FAR_OUTSIDE;
  return isAside || at('top') <= -(isAbsolute ? OUTSIDE : FAR_OUTSIDE) || at('bottom') >= FAR_OUTSIDE;
}
