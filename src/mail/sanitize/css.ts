// CSS of a mail, made safe to show: what remains can load nothing. Only fully understood parts are kept, and written
// anew, so that a browser reads them the same way. Linear.

/** The functions that a value may call. None of them names a resource. */
const FUNCTIONS = new Set([
  '',
  ...'calc clamp counter cubic-bezier hsl hsla max min rgb rgba rotate scale scalex scaley skew steps'.split(' '),
  ...'translate translatex translatey var linear-gradient radial-gradient conic-gradient'.split(' '),
  ...'repeating-linear-gradient repeating-radial-gradient'.split(' '),
]);
const SELECTOR_FUNCTIONS = new Set(['', 'not', 'is', 'where', 'nth-child', 'nth-of-type', 'lang']);
/** In values and selectors; neither a backslash, which hides names, nor a brace, which would end the rule. */
const VALUE = /^[\w\s#%.,:!()+*/'"\u00a1-\uffff-]*$/;
const SELECTOR = /^[\w\s#%.,:()+*>~^$|=[\]'"\u00a1-\uffff-]*$/;
const MEDIA = /^@media\s[\w\s.,:()<>=/-]*$/i;
const PROPERTY = /^-{0,2}[a-z_][\w-]*$/i;
/** Old ways to run code from a style sheet. */
const CODE = /^(?:behavior|-moz-binding)$/i;
const CALL = /([\w-]+)\(?|\(/g;
/** Nested blocks, such as rules within @media. */
const DEEPEST = 4;

/** The declarations of a style attribute. */
export function sanitizeDeclarations(css: string): string {
  return declarations(withoutComments(css));
}

/** A style sheet: its rules, and those within @media. */
export function sanitizeSheet(css: string): string {
  return createSheetReader(withoutComments(css)).rules(0);
}

function createSheetReader(css: string) {
  const STOPS = /[{};]/g;
  let at = 0;
  const next = (): { readonly text: string; readonly stop: string } => {
    STOPS.lastIndex = at;
    const found = STOPS.exec(css);
    const text = css.slice(at, found?.index ?? css.length).trim();
    at = found ? STOPS.lastIndex : css.length;
    return { text, stop: found?.[0] ?? '' };
  };

  /** Passes the rest of a block whose content is not kept. */
  const skipBlock = () => {
    for (let open = 1; open > 0; ) {
      const { stop } = next();
      if (stop === '') return;
      if (stop === '{') open++;
      else if (stop === '}') open--;
    }
  };

  /** The text of a block of declarations; a block within it is dropped. */
  const block = (): string => {
    const kept: string[] = [];
    for (;;) {
      const { text, stop } = next();
      if (stop === '{') {
        skipBlock();
        continue;
      }
      kept.push(text);
      if (stop !== ';') return declarations(kept.join(';'));
    }
  };

  const rules = (depth: number): string => {
    const kept: string[] = [];
    for (;;) {
      const { text, stop } = next();
      if (stop === '' || (stop === '}' && depth > 0)) return kept.join('\n');
      if (stop !== '{') continue;
      // The old comment marks around the content of a style element.
      const head = text.replace(/^(?:<!--|-->|\s)+/, '');
      if (MEDIA.test(head) && depth < DEEPEST) kept.push(`${head}{${rules(depth + 1)}}`);
      else if (head !== '' && isSafe(head, SELECTOR, SELECTOR_FUNCTIONS)) kept.push(`${head}{${block()}}`);
      else skipBlock();
    }
  };
  return { rules };
}

function declarations(css: string): string {
  return css
    .split(';')
    .map((one) => {
      const colon = one.indexOf(':');
      const name = one.slice(0, colon).trim();
      const value = one.slice(colon + 1).trim();
      const kept =
        colon > 0 && PROPERTY.test(name) && !CODE.test(name) && value !== '' && isSafe(value, VALUE, FUNCTIONS);
      return kept ? `${name}:${value};` : '';
    })
    .join('');
}

/** Whether a text has only these characters and functions, and its quotes and brackets are closed. */
function isSafe(text: string, characters: RegExp, functions: ReadonlySet<string>): boolean {
  if (!characters.test(text) || text.includes('/*') || !isClosed(text)) return false;
  for (const [call, name = ''] of text.matchAll(CALL))
    if (call.endsWith('(') && !functions.has(name.toLowerCase())) return false;
  return true;
}

const CLOSING: Readonly<Record<string, string>> = { ')': '(', ']': '[' };

function isClosed(text: string): boolean {
  const open: string[] = [];
  let quote = '';
  for (const character of text) {
    if (quote !== '') {
      if (character === '\n' || character === '\r' || character === '\f') return false;
      if (character === quote) quote = '';
    } else if (character === '"' || character === "'") quote = character;
    else if (character === '(' || character === '[') open.push(character);
    else if (character in CLOSING && open.pop() !== CLOSING[character]) return false;
  }
  return quote === '' && open.length === 0;
}

/** Each comment becomes a space; an unclosed one removes the rest. */
function withoutComments(css: string): string {
  const parts: string[] = [];
  let from = 0;
  for (;;) {
    const start = css.indexOf('/*', from);
    if (start === -1) return parts.join(' ') + (parts.length > 0 ? ' ' : '') + css.slice(from);
    parts.push(css.slice(from, start));
    const end = css.indexOf('*/', start + 2);
    if (end === -1) return parts.join(' ');
    from = end + 2;
  }
}
