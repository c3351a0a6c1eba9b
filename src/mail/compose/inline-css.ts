import { createContext, Script } from 'node:vm';
import { compile } from 'css-select';
import { DomUtils, parseDocument, QuoteType } from 'htmlparser2';
import { createBoundedCache } from '../../base/cache.ts';
import { escapeHtml } from '../../base/html.ts';
import { createEdits, readTokens, valueStart } from '../html-edit.ts';
import {
  type CssDeclaration,
  parseSelectors,
  type Rule,
  rankOf,
  readDeclarations,
  readRules,
  type Selector,
} from '../style-sheet.ts';

/** Maximum bytes of HTML; larger texts are left unchanged (documented). */
const MAX_BYTES = 256 * 1024;
/** Time limit in milliseconds; a page of many kilobytes takes some tens of them. */
const LONGEST_MS = 1000;
/** Number of results to cache: without merge tags a message has the same HTML for all its recipients. */
const MAX_KEPT = 8;
/** Limits on the declarations written into elements, on their characters, and on the result. They bound memory. */
const MAX_WRITTEN = 300_000;
const MAX_CHARACTERS = 8_000_000;
const HAS_STYLE = /<style\b/i;

/**
 * Creates a function that copies style sheets in HTML into the `style` attributes of its elements, for mail programs
 * that ignore style sheets. All other characters stay unchanged, including the style sheets: media queries and `:hover`
 * work only there. HTML without style sheets, or that is too large, too slow to process or cannot be parsed, is
 * returned unchanged. Nothing is fetched and no file is read: links to style sheets and @import stay as they are.
 */
export function createInliner(): (html: string) => string {
  const given = { html: '', inline: inlineStyles };
  const script = new Script('given.inline(given.html)');
  const context = createContext({ given });
  const kept = createBoundedCache<string>({ most: MAX_KEPT });

  function inline(html: string): string {
    given.html = html;
    try {
      // V8 interrupts code that exceeds the timeout, wherever it is.
      const inlined: unknown = script.runInContext(context, { timeout: LONGEST_MS });
      return typeof inlined === 'string' ? inlined : html;
    } catch {
      return html;
    } finally {
      given.html = '';
    }
  }
  return (html) => {
    if (!HAS_STYLE.test(html) || Buffer.byteLength(html) >= MAX_BYTES) return html;
    const inlined = kept.get(html) ?? inline(html);
    kept.set(html, inlined);
    return inlined;
  };
}

type Element = ReturnType<typeof DomUtils.getElementsByTagName>[number];

/** Elements that are not rendered. */
const INVISIBLE = new Set(['head', 'title', 'base', 'link', 'style', 'meta', 'script', 'noscript', 'template']);

function inlineStyles(html: string): string {
  const document = parseDocument(html, { withStartIndices: true });
  const all = DomUtils.getElementsByTagName('*', document);
  const rules = all.filter(isSheet).flatMap((sheet) => readRules(DomUtils.textContent(sheet)));
  const elements = all.filter(({ name }) => !INVISIBLE.has(name));
  const cascades = applyRules(rules.flatMap(toSteps), elements);
  const styles = new Map<number, string>();
  for (const [element, cascade] of cascades) styles.set(element.startIndex ?? -1, cascade.text());
  return writeStyles(html, styles);
}

/** Whether an element is a style sheet for all screens. */
function isSheet({ name, attribs }: Element): boolean {
  return name === 'style' && /^\s*(?:all|screen|)\s*$/i.test(attribs.media ?? '');
}

/** The declarations of a `style` attribute. Its own `!important` is kept. */
function readStyle(style: string): readonly CssDeclaration[] {
  return readDeclarations(style).map((one) => (one.important ? { ...one, value: `${one.value} !important` } : one));
}

/** One selector with its declarations. */
interface Step {
  readonly selector: readonly Selector[];
  readonly rank: number;
  readonly declarations: readonly CssDeclaration[];
  /** Total characters of the declarations. */
  readonly characters: number;
}

/**
 * As in browsers, one invalid selector makes the whole list invalid. Rules in @media cannot be inlined. Without
 * `!important`: the style sheet stays, and its media queries must be able to override the attribute.
 */
function toSteps({ selectors, declarations, media }: Rule): readonly Step[] {
  if (declarations.length === 0 || media.length > 0) return [];
  const characters = declarations.reduce((sum, { name, value }) => sum + name.length + value.length, 0);
  try {
    return parseSelectors(selectors)
      .filter((selector) => selector.every(({ type }) => type !== 'pseudo-element'))
      .map((selector) => ({ selector, rank: rankOf(selector), declarations, characters }));
  } catch {
    return [];
  }
}

/** Computes the declarations of each element from the weakest to the strongest, its `style` attribute included. */
function applyRules(steps: readonly Step[], elements: readonly Element[]): ReadonlyMap<Element, Cascade> {
  const matches = new Map<Element, Step[]>();
  let [written, characters] = [0, 0];
  for (const step of steps.toSorted((a, b) => a.rank - b.rank)) {
    const fits = toTest(step.selector);
    if (!fits) continue;
    for (const element of elements) {
      if (!fits(element)) continue;
      written += step.declarations.length;
      characters += step.characters;
      if (written > MAX_WRITTEN || characters > MAX_CHARACTERS) throw new RangeError('too much to write');
      const before = matches.get(element);
      if (before) before.push(step);
      else matches.set(element, [step]);
    }
  }
  const cascades = new Map<Element, Cascade>();
  for (const [element, matching] of matches) {
    const blocks = [...matching.map(({ declarations }) => declarations), readStyle(element.attribs.style ?? '')];
    const cascade = createCascade();
    for (const block of blocks) cascade.add(block.filter(({ important }) => !important));
    for (const block of blocks) cascade.add(block.filter(({ important }) => important));
    cascades.set(element, cascade);
  }
  return cascades;
}

/** Undefined if the selector cannot be tested without a browser, such as `:focus`. */
function toTest(selector: readonly Selector[]): ((element: Element) => boolean) | undefined {
  try {
    return compile<Element, Element>([[...selector]]);
  } catch {
    return undefined;
  }
}

/** Collects the declarations of one element: the last one of each property wins. */
type Cascade = ReturnType<typeof createCascade>;

function createCascade() {
  const values = new Map<string, readonly string[]>();
  return {
    add(block: readonly CssDeclaration[]) {
      // A property moves behind the earlier ones, because a later `margin` would undo `margin-top`. All values from one
      // block are kept, as fallbacks for programs that do not support the last one.
      for (const [name, same] of Map.groupBy(block, (one) => one.name)) {
        values.delete(name);
        values.set(
          name,
          same.map(({ value }) => value),
        );
      }
    },
    text: (): string => [...values].flatMap(([name, all]) => all.map((value) => `${name}: ${value};`)).join(' '),
  };
}

/** Writes `style` attributes into the tags that start at the given offsets. */
function writeStyles(html: string, styles: ReadonlyMap<number, string>): string {
  const output = createEdits(html, MAX_CHARACTERS);
  let style: string | undefined;
  let isStyle = false;
  let nameEnd = 0;
  let tagEnd = 0;
  const insert = () => {
    if (style !== undefined) output.replace(tagEnd, tagEnd, ` style="${escapeHtml(style)}"`);
    style = undefined;
  };
  readTokens(html, {
    onopentagname(start, stop) {
      style = styles.get(start - 1);
      tagEnd = stop;
    },
    onattribname(start, stop) {
      isStyle = style !== undefined && html.slice(start, stop).toLowerCase() === 'style';
      nameEnd = stop;
    },
    onattribend(quote, stop) {
      tagEnd = stop;
      if (!isStyle || style === undefined) return;
      const start = quote === QuoteType.NoValue ? nameEnd : valueStart(html, nameEnd);
      output.replace(start, stop, `${quote === QuoteType.NoValue ? '=' : ''}"${escapeHtml(style)}"`);
      style = undefined; // of two attributes with the same name, the first counts
    },
    onopentagend: insert,
    onselfclosingtag: insert,
  });
  return output.finish('', html.length);
}
