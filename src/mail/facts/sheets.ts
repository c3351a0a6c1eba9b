import { createBoundedCache } from '../../base/cache.ts';
import { parseSelectors, rankOf, readDeclarations, readRules, type Selector } from '../style-sheet.ts';
import { type Setters, toSetters } from './declarations.ts';
import { isShown } from './media.ts';

// Which rules of a mail's style sheets apply to an element. The work is bounded: what goes beyond it is left out.

/** An element as selectors see it. */
export interface Element {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly parent: Element | undefined;
  /** The element before it, whose own is not kept. */
  readonly previous: Element | undefined;
}

export type Styles = ReturnType<typeof createStyles>;

/** Tests of a selector's parts, for the whole mail; some hundred milliseconds at worst. */
const MAX_TESTS = 3_000_000;
/** Longer lists of selectors are left out. */
const LONGEST_SELECTORS = 20_000;
/** Different `style` attributes that are kept; newsletters repeat a few dozen of them. */
const MAX_KEPT = 500;

/** A selector with what it declares. */
interface Step {
  readonly selector: readonly Selector[];
  readonly rank: number;
  readonly order: number;
  readonly setters: Setters;
}

/** `sheets` are the contents of style elements. */
export function createStyles(sheets: readonly string[], isQuirky: boolean) {
  const index = new Map<string, Step[]>();
  const kept = createBoundedCache<Setters>({ most: MAX_KEPT });
  let testsLeft = MAX_TESTS;
  let isCut = false;
  let order = 0;

  for (const { selectors, declarations, media } of sheets.flatMap(readRules)) {
    const setters = toSetters(declarations);
    if (setters.normal.length + setters.important.length === 0 || !media.every(isShown)) continue;
    if (selectors.length > LONGEST_SELECTORS) isCut = true;
    else
      for (const selector of toSelectors(selectors)) {
        const key = keyOf(selector);
        const step = { selector, rank: rankOf(selector), order: order++, setters };
        const others = index.get(key);
        if (others) others.push(step);
        else index.set(key, [step]);
      }
  }

  function fits(step: Step, element: Element): boolean {
    testsLeft -= step.selector.length;
    return fitsFrom(step.selector, step.selector.length - 1, element);
  }

  /** Whether the parts of a selector up to `last` fit an element. */
  function fitsFrom(selector: readonly Selector[], last: number, element: Element): boolean {
    for (let i = last; i >= 0; i--) {
      const part = selector[i];
      if (part === undefined) return true;
      if (part.type === 'child') return element.parent !== undefined && fitsFrom(selector, i - 1, element.parent);
      if (part.type === 'adjacent')
        return element.previous !== undefined && fitsFrom(selector, i - 1, element.previous);
      if (part.type === 'descendant') {
        for (let above = element.parent; above; above = above.parent) {
          if (testsLeft-- <= 0) return false;
          if (fitsFrom(selector, i - 1, above)) return true;
        }
        return false;
      }
      if (!partFits(part, element)) return false;
    }
    return true;
  }

  function partFits(part: Selector, element: Element): boolean {
    if (part.type === 'universal') return true;
    if (part.type === 'tag') return part.name.toLowerCase() === element.name;
    if (part.type === 'attribute') {
      const value = element.attributes.get(part.name.toLowerCase());
      if (value === undefined) return false;
      testsLeft -= value.length >> 6;
      const ignoreCase = part.ignoreCase === true || (part.ignoreCase === 'quirks' && isQuirky);
      return ignoreCase
        ? attributeFits(part.action, value.toLowerCase(), part.value.toLowerCase())
        : attributeFits(part.action, value, part.value);
    }
    if (part.type !== 'pseudo') return false;
    const inner = Array.isArray(part.data) ? part.data : [];
    const some = () => inner.some((one) => fitsFrom(one, one.length - 1, element));
    if (part.name === 'not') return !some();
    if (part.name === 'is' || part.name === 'where' || part.name === 'matches') return some();
    if (part.name === 'first-child') return element.previous === undefined;
    if (part.name === 'root') return element.parent === undefined;
    return (part.name === 'link' || part.name === 'any-link') && element.name === 'a' && element.attributes.has('href');
  }

  function matching(element: Element): Step[] {
    const found: Step[] = [];
    const { name, attributes } = element;
    const classes = attributes.get('class');
    const keys = ['*', name, `#${folded(attributes.get('id') ?? '')}`];
    if (classes !== undefined) keys.push(...new Set(classes.split(/\s+/).map((one) => `.${folded(one)}`)));
    for (const key of keys) {
      for (const step of index.get(key) ?? []) {
        if (testsLeft <= 0) {
          isCut = true;
          return [];
        }
        if (!fits(step, element)) continue;
        testsLeft -= step.setters.normal.length + step.setters.important.length;
        found.push(step);
      }
    }
    return found.sort((a, b) => a.rank - b.rank || a.order - b.order);
  }

  function ofAttribute(style: string): Setters {
    const known = kept.get(style);
    if (known) return known;
    const setters = toSetters(readDeclarations(style));
    if (style.length <= 1000) kept.set(style, setters);
    return setters;
  }

  return {
    /** The declarations for an element, of its attribute and of rules; those that count more come last. */
    of(element: Element): readonly Setters[] {
      const rules = index.size === 0 ? [] : matching(element).map(({ setters }) => setters);
      const style = element.attributes.get('style');
      return style === undefined ? rules : [...rules, ofAttribute(style)];
    },
    /** Whether something was left out, because it would have taken too long. */
    isCut: (): boolean => isCut || testsLeft <= 0,
  };
}

/**
 * Selectors that the parser accepts and browsers do not: names that begin with a digit or dot, combinators at an end.
 */
const INVALID =
  /[.#](?![-_a-z\u0080-\uffff])|[^\w\s#.,:()+*>~^$|=[\]"'\u0080-\uffff-]|[>+~]\s{0,100}(?:,|$)|(?:^|,)\s{0,100}[>+~]/i;

/** As in browsers, one invalid selector makes the whole list invalid. */
function toSelectors(text: string): readonly (readonly Selector[])[] {
  if (INVALID.test(text.replace(/\\[^]/g, 'x').replace(/"[^"]*"|'[^']*'/g, '""'))) return [];
  try {
    return parseSelectors(text).filter((selector) => selector.every(({ type }) => type !== 'pseudo-element'));
  } catch {
    return [];
  }
}

/** In quirks mode names are compared in any case. */
const folded = (name: string): string => name.toLowerCase();

/** What an element must have for a selector to fit: an id, else a class, else a name. */
function keyOf(selector: readonly Selector[]): string {
  const from = selector.findLastIndex(({ type }) => isCombinator(type)) + 1;
  let key = '*';
  for (const part of selector.slice(from)) {
    if (part.type === 'tag' && key === '*') key = part.name.toLowerCase();
    if (part.type !== 'attribute') continue;
    if (part.name === 'id' && part.action === 'equals') return `#${folded(part.value)}`;
    if (part.name === 'class' && part.action === 'element') key = `.${folded(part.value)}`;
  }
  return key;
}

const isCombinator = (type: Selector['type']): boolean =>
  ['child', 'descendant', 'adjacent', 'sibling', 'parent', 'column-combinator'].includes(type);

function attributeFits(action: string, value: string, wanted: string): boolean {
  if (action === 'exists') return true;
  if (action === 'equals') return value === wanted;
  if (action === 'element') return wanted !== '' && value.split(/\s+/).includes(wanted);
  if (action === 'hyphen') return value === wanted || value.startsWith(`${wanted}-`);
  if (wanted === '') return false;
  if (action === 'start') return value.startsWith(wanted);
  if (action === 'end') return value.endsWith(wanted);
  return action === 'any' ? value.includes(wanted) : action === 'not' && value !== wanted;
}
