import { truncate } from '../../base/characters.ts';
import { collapseSpaces, readElements } from '../html-edit.ts';
import { type HiddenReason, isIndentedAway } from './box.ts';
import { createStyles } from './sheets.ts';
import { createTree, type HiddenText, type Lines, type OpenElement } from './tree.ts';
import { createVisibleText } from './visible-text.ts';

// Separates the text that a browser displays of a page from the text that it does not. Linear; nothing is fetched.

/** A link, and what a person reads of it. */
export interface PageLink {
  readonly href: string;
  readonly text: string;
}

interface PageContent {
  readonly text: string;
  readonly hidden: readonly { readonly why: HiddenReason; readonly text: string }[];
  readonly links: readonly PageLink[];
  /** Where relative links go: the address of the element base. */
  readonly base: string | undefined;
  /** Whether something was left out: style rules that take too long, the end of a long text. */
  readonly isCut: boolean;
}

interface PageLimits {
  /** Characters of the text, and of each hidden one. */
  readonly mostText: number;
  readonly mostHidden: number;
}

/** Elements whose text no program shows, and no person meant to be read. */
const DROPPED = new Set(['script', 'style', 'title', 'rp']);
const HAS_STYLE = /<style\b/i;
/** Characters of a link's text that are examined; of its address. */
const LONGEST_LINK = 2000;
const LONGEST_ADDRESS = 8000;

export function readPage(html: string, { mostText, mostHidden }: PageLimits): PageContent {
  const isQuirky = !/<!doctype\s/i.test(html.slice(0, 2000));
  const styles = createStyles(HAS_STYLE.test(html) ? sheetsIn(html) : [], isQuirky);
  const shown = createVisibleText(mostText);
  const all: HiddenText[] = [];
  const links: PageLink[] = [];
  let link: { readonly node: OpenElement; readonly href: string; text: string } | undefined;
  let dropped: string | undefined;
  let base: string | undefined;
  let isCut = false;
  /** Blocks, lines and cells that began or ended so far; and when text was hidden last. */
  let borders = 0;
  let hiddenAt = 0;

  const endLink = () => {
    if (link) links.push({ href: link.href, text: link.text });
    link = undefined;
  };
  const hide = (hidden: HiddenText, text: string) => {
    const { pieces } = hidden;
    if (pieces.length === 0) {
      if (!hasInk(text)) return;
      all.push(hidden);
    } else if (borders !== hiddenAt) pieces.push(' ');
    hiddenAt = borders;
    pieces.push(text);
  };

  const tree = createTree(styles, isQuirky, {
    opened(node) {
      const { name, box, attributes } = node;
      if (name === 'br') {
        node.lines.isFirst = false;
        borders++;
        if (!node.hidden) shown.line();
      } else if (isBlock(node)) {
        borders++;
        if (box.lost === undefined) shown.open(node);
      }
      if (name === 'a' && attributes.has('href')) {
        endLink();
        link = { node, href: (attributes.get('href') ?? '').slice(0, LONGEST_ADDRESS), text: '' };
      }
      if (name === 'base') base ??= attributes.get('href')?.slice(0, LONGEST_ADDRESS);
    },
    closed(node) {
      if (link?.node === node) endLink();
      if (!isBlock(node)) return;
      borders++;
      if (link) link.text += ' ';
      if (node.box.lost === undefined) shown.close(node);
    },
  });

  const text = (piece: string) => {
    if (dropped !== undefined || tree.isFull()) return;
    const isBlank = !/[^ \t\n\r\f]/.test(piece);
    const node = tree.parentOfText(isBlank);
    const hidden = node.hidden ?? node.folded;
    if (hidden) return hide(hidden, piece);
    if (isIndentedAway(node.box) && node.lines.isFirst) return hideIn(node, 'off-screen', piece);
    shown.text(piece, node.box.space);
    if (node.box.isOutlookless) hideIn(node, 'not-outlook', piece);
    if (link && link.text.length < LONGEST_LINK) link.text += piece.slice(0, LONGEST_LINK);
  };

  /** Text that is hidden where its element is not. */
  const own = new WeakMap<Lines, HiddenText>();
  const hideIn = (node: OpenElement, why: HiddenReason, piece: string) => {
    const known = own.get(node.lines);
    const hidden = known?.why === why ? known : { why, pieces: [] };
    own.set(node.lines, hidden);
    hide(hidden, piece);
  };

  readElements(html, {
    open(name, attributes, isClosed) {
      if (dropped !== undefined || tree.isFull()) return;
      if (DROPPED.has(name)) dropped = name;
      else tree.open(name, attributes, isClosed);
    },
    close(name) {
      if (dropped === undefined) tree.close(name);
      else if (dropped === name) dropped = undefined;
    },
    text,
    comment(comment) {
      if (dropped !== undefined || tree.isFull()) return;
      const [lead = ''] = /^\s*\[if\b[^\]]{0,200}\]>?/i.exec(comment) ?? [];
      const inside = comment.slice(lead.length).replace(/(?:<!\[endif\])?--!?$|<!\[endif\]$/i, '');
      const plain = /[<&]/.test(inside) ? textOf(inside, mostHidden) : inside;
      borders++;
      hide({ why: lead === '' ? 'comment' : 'outlook-only', pieces: [] }, plain);
    },
  });
  tree.finish();
  endLink();

  const hidden = all.map(({ why, pieces }) => {
    const whole = collapseSpaces(pieces.join('')).trim();
    isCut ||= whole.length > mostHidden;
    return { why, text: truncate(whole, mostHidden) };
  });
  const { text: visible, isCut: isTextCut } = shown.finish();
  return { text: visible, hidden, links, base, isCut: isCut || isTextCut || styles.isCut() || tree.isCut() };
}

/** The text of a comment, read as a page. */
function textOf(html: string, most: number): string {
  const shown = createVisibleText(most);
  let dropped: string | undefined;
  readElements(html, {
    open(name) {
      if (name === 'xml' || DROPPED.has(name)) dropped ??= name;
      else shown.text(' ', 'normal');
    },
    close(name) {
      if (dropped === name) dropped = undefined;
    },
    text(piece) {
      if (dropped === undefined) shown.text(piece, 'normal');
    },
  });
  return shown.finish().text;
}

/** The contents of style elements; a mail may have them anywhere. */
function sheetsIn(html: string): readonly string[] {
  const sheets: string[] = [];
  let sheet: string[] | undefined;
  let media = '';
  readElements(startWithSheets(html), {
    open(name, attributes) {
      if (name !== 'style') return;
      const type = attributes.get('type')?.trim().toLowerCase() ?? '';
      sheet = type === '' || type === 'text/css' ? [] : undefined;
      media = attributes.get('media') ?? '';
    },
    close(name) {
      if (name !== 'style' || !sheet) return;
      const css = sheet.join('');
      sheets.push(media.trim() === '' ? css : `@media ${media.replaceAll(/[{}"'\\]/g, '')} {${css}}`);
      sheet = undefined;
    },
    text(piece) {
      sheet?.push(piece);
    },
  });
  return sheets;
}

/** A page up to its last style sheet: mostly its head. The rest need not be read twice. */
function startWithSheets(html: string): string {
  let last = -1;
  for (const { index } of html.matchAll(/<\/style/gi)) last = index;
  const end = last === -1 ? 0 : html.indexOf('>', last) + 1 || html.length;
  const rest = html.slice(end);
  return HAS_STYLE.test(rest) ? html : html.slice(0, end);
}

const isBlock = ({ box }: OpenElement): boolean => box.display !== 'inline';

/** Whether a text has anything but white space and what pads previews. */
const hasInk = (text: string): boolean => /[^\s\p{Cf}\p{Mn}\u115f\u1160\u2800\u3164\uffa0]/u.test(text);
