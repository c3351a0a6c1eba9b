import { parse, type Selector } from 'css-what';

// Style sheets of mail as rules (CSS Syntax, 5.4). Linear.

export interface CssDeclaration {
  /** In lower case, unless it is a variable. */
  readonly name: string;
  /** Without `!important`. */
  readonly value: string;
  readonly important: boolean;
}

export interface Rule {
  readonly selectors: string;
  readonly declarations: readonly CssDeclaration[];
  /** The conditions of the @media blocks that it is in, outermost first. */
  readonly media: readonly string[];
}

// A comment, a string, an escape, a bracket or other text.
const TOKEN =
  /\/\*[^]*?(?:\*\/|$)|"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?|\\[^]?|[{}()[\];]|[^"'\\{}()[\];/]+|\//g;
const MEDIA = /^@media\b/i;
const IMPORTANT = /!\s{0,100}important$/i;
/** The old comment marks around the content of a style element. */
const MARKS = /^(?:<!--|-->|\s){1,100}/;
/** Blocks inside one another; no mail has more. */
const DEEPEST = 8;

/** An open block: one of rules, one of declarations, or one that is not read. */
interface Block {
  readonly kind: 'rules' | 'declarations' | 'other';
  readonly head: string;
  readonly declarations: CssDeclaration[];
}

/** The rules of a style sheet, except for those in other @ blocks than @media, and those inside other rules. */
export function readRules(css: string): readonly Rule[] {
  const rules: Rule[] = [];
  const blocks: Block[] = [];
  let text = '';
  /** Whether `text` ends inside parentheses, as in `url(data:image/png;base64,…)`. */
  let isInside = false;
  const end = () => {
    const block = blocks.pop();
    if (block?.kind === 'declarations') {
      block.declarations.push(...readDeclaration(text));
      const media = blocks.filter(({ kind }) => kind === 'rules').map(({ head }) => head.replace(MEDIA, '').trim());
      rules.push({ selectors: block.head, declarations: block.declarations, media });
    }
    clear();
  };
  const clear = () => {
    text = '';
    isInside = false;
  };
  for (const [token] of css.matchAll(TOKEN)) {
    const inner = blocks.at(-1)?.kind ?? 'rules';
    if (token === '{') {
      const head = text.replace(MARKS, '').trim();
      blocks.push({
        kind: inner === 'rules' && blocks.length < DEEPEST ? kindOf(head) : 'other',
        head,
        declarations: [],
      });
      clear();
    } else if (token === '}') end();
    else if (token === ';' && !isInside) {
      if (inner === 'declarations') blocks.at(-1)?.declarations.push(...readDeclaration(text));
      clear();
    } else if (inner !== 'other') {
      text += token.startsWith('/*') ? ' ' : token;
      if (token === '(' || token === ')') isInside = token === '(';
    }
  }
  while (blocks.length > 0) end();
  return rules;
}

function kindOf(head: string): Block['kind'] {
  if (MEDIA.test(head)) return 'rules';
  return head.startsWith('@') ? 'other' : 'declarations';
}

function readDeclaration(text: string): readonly CssDeclaration[] {
  const colon = text.indexOf(':');
  const name = text.slice(0, Math.max(0, colon)).trim();
  const written = text.slice(colon + 1).trim();
  const value = written.replace(IMPORTANT, '').trimEnd();
  if (!/^-{0,2}[\w-]+$/.test(name) || value === '') return [];
  return [{ name: name.startsWith('--') ? name : name.toLowerCase(), value, important: value !== written }];
}

/** The declarations of a `style` attribute. */
export function readDeclarations(style: string): readonly CssDeclaration[] {
  return readRules(`x{${style}}`)[0]?.declarations ?? [];
}

export type { Selector } from 'css-what';

/** The selectors of a list. Throws if it is invalid; accepts some that browsers do not. */
export const parseSelectors = (text: string): readonly (readonly Selector[])[] => parse(text);

/** The specificity of a selector (Selectors 4, section 17): ids, then classes, then type names. */
export function rankOf(selector: readonly Selector[]): number {
  return selector.reduce((sum, part) => {
    if (part.type === 'attribute') return sum + (part.name === 'id' && part.action === 'equals' ? 1_000_000 : 1000);
    if (part.type === 'tag') return sum + 1;
    if (part.type !== 'pseudo' || part.name === 'where') return sum;
    const inside = Array.isArray(part.data) ? Math.max(0, ...part.data.map(rankOf)) : 0;
    return sum + (['is', 'not', 'has', 'matches'].includes(part.name) ? inside : 1000);
  }, 0);
}
