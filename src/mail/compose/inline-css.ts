import { createContext, Script } from 'node:vm';
import juice from 'juice/client';
import { canBeInlined } from './inline-cost.ts';

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
