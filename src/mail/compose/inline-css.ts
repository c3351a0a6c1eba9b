import { createContext, Script } from 'node:vm';
import juice from 'juice/client';

/** Bytes of HTML; what is larger stays as it is (documented). */
const MOST_BYTES = 256 * 1024;
/** Milliseconds; a page of many kilobytes takes some tens of them. */
const LONGEST_MS = 1000;
/** Pages that are kept with what became of them: without merge tags a message has the same one for all its recipients. */
const MOST_KEPT = 8;
const HAS_STYLE = /<style\b/i;
// Style sheets stay in the page besides: queries about the screen and links under a pointer work only from there. Variables
// stay variables, because their values can be made to grow without end.
const OPTIONS = {
  removeStyleTags: false,
  resolveCSSVariables: false,
  applyWidthAttributes: false,
  applyHeightAttributes: false,
  applyAttributesTableElements: false,
} as const;

/**
 * Makes what writes the style sheets of an HTML text into the `style` attributes of its elements, for mail programs that do not read
 * style sheets. HTML that has none, is too large, costs too much or cannot be read stays as it is. Nothing is fetched and no file
 * is read: links to style sheets stay links.
 */
export function createInliner(): (html: string) => string {
  // What looks like the tags of template languages is set aside by the library, in time that grows with its square.
  for (const name of Object.keys(juice.codeBlocks)) delete juice.codeBlocks[name];
  const given = { html: '', inline: (html: string) => (canBeInlined(html) ? juice(html, OPTIONS) : html) };
  const script = new Script('given.inline(given.html)');
  const context = createContext({ given });
  const kept = new Map<string, string>();

  function inline(html: string): string {
    given.html = html;
    try {
      // The engine ends what runs for too long, wherever it is.
      const inlined: unknown = script.runInContext(context, { timeout: LONGEST_MS });
      return typeof inlined === 'string' ? inlined : html;
    } catch {
      return html;
    } finally {
      given.html = '';
    }
  }
  return (html) => {
    if (!HAS_STYLE.test(html) || Buffer.byteLength(html) >= MOST_BYTES) return html;
    const inlined = kept.get(html) ?? inline(html);
    const [oldest] = kept.keys();
    if (kept.size >= MOST_KEPT && oldest !== undefined) kept.delete(oldest);
    kept.set(html, inlined);
    return inlined;
  };
}

// What it would cost to write style sheets into elements, told from the text before anything is parsed: an estimate that is
// rather too high. It keeps memory small; time has a limit of its own.

/** Elements times selectors: each selector is held against each element. */
const MOST_MATCHES = 3_000_000;
/** Declarations that stay in elements, each some hundred bytes of memory while it is at work. */
const MOST_WRITTEN = 300_000;
/** Characters of these declarations. */
const MOST_CHARACTERS = 16_000_000;
/** Elements inside one another: what walks the tree calls itself for each level. */
const DEEPEST = 500;
/** Characters of a selector that are looked at; a longer one is taken to match everything. */
const LONGEST_SELECTOR = 200;

const TAG = /<(\/?)([a-z][a-z0-9]*)/gi;
const WORD = /[\w\u0080-\uffff-]+/g;
const PIECE = /([^{};]*)([{};])/g;
const PLAIN = /^[\w.#:\u0080-\uffff-]+$/;
const VOID = new Set([
  'area',
  'base',
  'br',
  'col',
  'embed',
  'hr',
  'img',
  'input',
  'link',
  'meta',
  'source',
  'track',
  'wbr',
]);

/** Whether the style sheets of an HTML text can be written into its elements in little memory. */
export function canBeInlined(html: string): boolean {
  const { elements, depth } = countElements(html);
  if (depth > DEEPEST) return false;
  const weight = weigh(styleSheetOf(html), countWords(html), elements);
  return (
    elements * weight.selectors <= MOST_MATCHES &&
    weight.written <= MOST_WRITTEN &&
    weight.characters <= MOST_CHARACTERS
  );
}

/** What stands in the `style` elements, without comments. */
function styleSheetOf(html: string): string {
  const lower = html.toLowerCase();
  const sheets: string[] = [];
  for (let at = lower.indexOf('<style'); at >= 0; ) {
    const end = lower.indexOf('</style', at);
    sheets.push(html.slice(at, end < 0 ? undefined : end).replace(/^[^>]*>/, ''));
    at = end < 0 ? -1 : lower.indexOf('<style', end);
  }
  return withoutComments(sheets.join('\n'));
}

function withoutComments(css: string): string {
  const [first = '', ...others] = css.split('/*');
  return (
    first + others.map((part) => ` ${part.slice(part.includes('*/') ? part.indexOf('*/') + 2 : part.length)}`).join('')
  );
}

function countElements(html: string): { elements: number; depth: number } {
  let [elements, open, depth] = [0, 0, 0];
  for (const [, slash, name = ''] of html.matchAll(TAG)) {
    if (slash !== '') {
      open = Math.max(0, open - 1);
      continue;
    }
    elements++;
    if (VOID.has(name.toLowerCase())) continue;
    open++;
    depth = Math.max(depth, open);
  }
  return { elements, depth };
}

/** How often each word stands in the text: no more elements have it for a name, a class or an id. */
function countWords(html: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [word] of html.toLowerCase().matchAll(WORD)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

/** A property, or its repetition in one rule, over the whole style sheet: later values take the place of earlier ones. */
interface Declared {
  matches: number;
  longest: number;
}

interface Rule {
  readonly matches: number;
  readonly seen: Map<string, number>;
}

/** Walks over a style sheet; what stands in `@` blocks is not written into elements. */
function weigh(
  sheet: string,
  words: ReadonlyMap<string, number>,
  elements: number,
): { selectors: number; written: number; characters: number } {
  let selectors = 0;
  const declared = new Map<string, Declared>();
  const rules: Rule[] = [];
  for (const [, text = '', mark] of sheet.matchAll(PIECE)) {
    const rule = rules.at(-1);
    if (mark === '{') {
      const parts = text.trimStart().startsWith('@') || rule?.matches === 0 ? [] : text.split(',');
      selectors += parts.length;
      rules.push({ matches: parts.reduce((all, part) => all + matchesOf(part, words, elements), 0), seen: new Map() });
      continue;
    }
    if (rule && rule.matches > 0 && text.includes(':')) declare(declared, rule, text);
    if (mark === '}') rules.pop();
  }
  const all = [...declared.values()].map(({ matches, longest }) => ({ times: Math.min(matches, elements), longest }));
  return {
    selectors,
    written: all.reduce((sum, { times }) => sum + times, 0),
    characters: all.reduce((sum, { times, longest }) => sum + times * longest, 0),
  };
}

function declare(declared: Map<string, Declared>, { matches, seen }: Rule, text: string): void {
  const name = text.slice(0, text.indexOf(':')).trim();
  const times = (seen.get(name) ?? 0) + 1;
  seen.set(name, times);
  const known = declared.get(`${name} ${times}`);
  declared.set(`${name} ${times}`, {
    matches: (known?.matches ?? 0) + matches,
    longest: Math.max(known?.longest ?? 0, text.length),
  });
}

/** How many elements a selector can match, by what its last part names. */
function matchesOf(selector: string, words: ReadonlyMap<string, number>, elements: number): number {
  if (selector.length > LONGEST_SELECTOR) return elements;
  const last =
    selector
      .trim()
      .split(/[\s>+~]+/)
      .at(-1) ?? '';
  if (!PLAIN.test(last)) return elements;
  const names =
    last
      .toLowerCase()
      .replace(/::?[\w-]+/g, '')
      .match(WORD) ?? [];
  return Math.min(elements, ...names.map((name) => words.get(name) ?? 0));
}
