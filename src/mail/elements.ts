/** The open elements at one place of an HTML text, as far as it matters for where an element ends. */
export interface Elements {
  /** Closes what the opening tag closes by itself; answers the depth that is left. */
  imply(name: string): number;
  /** Closes up to and with the element of that name; answers the depth that is left, or undefined when none is open. */
  close(name: string): number | undefined;
  /** Opens an element; answers its depth, the outermost has 0. */
  open(name: string): number;
}

const VOID = new Set([
  'area',
  'base',
  'basefont',
  'bgsound',
  'br',
  'col',
  'command',
  'embed',
  'frame',
  'hr',
  'image',
  'img',
  'input',
  'isindex',
  'keygen',
  'link',
  'meta',
  'param',
  'source',
  'track',
  'wbr',
]);

const BLOCKS = [
  'address',
  'article',
  'aside',
  'blockquote',
  'center',
  'details',
  'dir',
  'div',
  'dl',
  'fieldset',
  'figcaption',
  'figure',
  'footer',
  'form',
  'h1',
  'h2',
  'h3',
  'h4',
  'h5',
  'h6',
  'header',
  'hr',
  'main',
  'menu',
  'nav',
  'ol',
  'p',
  'pre',
  'section',
  'table',
  'ul',
];
const GROUPS = ['tbody', 'thead', 'tfoot'];

/** Which open elements end where a tag of that name begins (HTML, section 13.1.2.4, optional tags). */
const ENDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ...BLOCKS.map((name) => [name, new Set(['p'])] as const),
  ['li', new Set(['li', 'p'])],
  ['dt', new Set(['dt', 'dd', 'p'])],
  ['dd', new Set(['dt', 'dd', 'p'])],
  ['td', new Set(['td', 'th', 'p'])],
  ['th', new Set(['td', 'th', 'p'])],
  ['tr', new Set(['td', 'th', 'tr', 'p'])],
  ...GROUPS.map((name) => [name, new Set(['td', 'th', 'tr', 'caption', 'colgroup', ...GROUPS])] as const),
  ['option', new Set(['option'])],
  ['optgroup', new Set(['option', 'optgroup'])],
  ['body', new Set(['head'])],
]);

/** Whether an element of that name has nothing inside. */
export function isVoid(name: string): boolean {
  return VOID.has(name);
}

/**
 * Only the innermost element is looked at when a tag closes others by itself, and names that are not open are known by
 * their count: the work is linear whatever the text is.
 */
export function createElements(): Elements {
  const names: string[] = [];
  const counts = new Map<string, number>();
  const pop = () => {
    const name = names.pop() ?? '';
    counts.set(name, (counts.get(name) ?? 0) - 1);
    return name;
  };
  return {
    imply(name) {
      const ends = ENDS.get(name);
      while (ends?.has(names.at(-1) ?? '')) pop();
      return names.length;
    },
    close(name) {
      if (!counts.get(name)) return undefined;
      while (pop() !== name);
      return names.length;
    },
    open(name) {
      counts.set(name, (counts.get(name) ?? 0) + 1);
      return names.push(name) - 1;
    },
  };
}
