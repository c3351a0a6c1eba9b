// The modules of the page are sent without indentation and without comments on lines of their own, which are a quarter
// of their bytes. Literals are unchanged: leading spaces in a template belong to its text.

/** Removes indentation, and comments on lines of their own. Lines keep their numbers. */
export function minifyModule(module: string): string {
  let light = '';
  let at = 0;
  for (const { from, to, kind } of partsOf(module)) {
    light += module.slice(at, from).replace(BLANKS, '');
    const part = module.slice(from, to);
    light += kind === 'comment' && standsAlone(module, from, to) ? part.replace(/[^\n]+/g, '') : part;
    at = to;
  }
  return light + module.slice(at).replace(BLANKS, '');
}

/** Blanks at the beginning or the end of a line. */
const BLANKS = /(?<=\n)[ \t]+|[ \t]+(?=\n)/g;

/** A range that keeps its blanks. */
interface Part {
  readonly kind: 'literal' | 'comment';
  readonly from: number;
  readonly to: number;
}

function standsAlone(module: string, from: number, to: number): boolean {
  const before = module.slice(module.lastIndexOf('\n', from - 1) + 1, from);
  const end = module.indexOf('\n', to);
  return before.trim() === '' && module.slice(to, end === -1 ? undefined : end).trim() === '';
}

/** Where a literal or a comment begins. */
const BEGIN = /['"`/]/g;
const QUOTED = /(['"])(?:\\[^]|(?!\1)[^\\\n])*\1/y;
const REGEXP = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y;
const COMMENT = /\/\/[^\n]*|\/\*[^]*?\*\//y;
/** After these a slash begins a regular expression; after a name, a number or a closing bracket it divides. */
const BEFORE_REGEXP = /(?:^|[(,=:[!&|?{};+\-*%<>~^]|\b(?:return|typeof|case|in|of|do|else|void|delete|await))\s*$/;

/** The literals and comments of a module, in order. */
function* partsOf(module: string): Generator<Part> {
  BEGIN.lastIndex = 0;
  for (let found = BEGIN.exec(module); found; found = BEGIN.exec(module)) {
    const { index: from } = found;
    const part = partAt(module, from);
    if (part) yield part;
    BEGIN.lastIndex = part?.to ?? from + 1;
  }
}

/** The literal or comment that begins at a quote or slash; undefined if the slash divides. */
function partAt(module: string, from: number): Part | undefined {
  const literal = (to: number | undefined): Part | undefined =>
    to === undefined ? undefined : { kind: 'literal', from, to };
  const first = module[from];
  if (first === '`') return literal(endOfTemplate(module, from));
  if (first !== '/') return literal(endOf(QUOTED, module, from));
  const comment = endOf(COMMENT, module, from);
  if (comment !== undefined) return { kind: 'comment', from, to: comment };
  return BEFORE_REGEXP.test(module.slice(Math.max(0, from - 40), from))
    ? literal(endOf(REGEXP, module, from))
    : undefined;
}

function endOf(pattern: RegExp, module: string, from: number): number | undefined {
  pattern.lastIndex = from;
  return pattern.test(module) ? pattern.lastIndex : undefined;
}

/** The end of a template, whose `${…}` may contain other templates. */
function endOfTemplate(module: string, from: number): number {
  for (let at = from + 1; at < module.length; at++) {
    if (module[at] === '`') return at + 1;
    if (module[at] === '\\') at++;
    else if (module.startsWith('${', at)) at = endOfBraces(module, at + 2) - 1;
  }
  return module.length;
}

/** The position after the brace that closes the one before `from`. */
function endOfBraces(module: string, from: number): number {
  let open = 1;
  for (let at = from; at < module.length; at++) {
    const one = module[at];
    if (one === '{') open++;
    else if (one === '}' && --open === 0) return at + 1;
    else if (one === "'" || one === '"' || one === '`' || one === '/') at = (partAt(module, at)?.to ?? at + 1) - 1;
  }
  return module.length;
}
