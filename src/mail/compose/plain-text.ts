import { escapeHtml } from '../../base/html.ts';
import { namesIn } from '../../base/tables.ts';
import { collapseSpaces, PARAGRAPH_ELEMENTS, readElements } from '../html-edit.ts';
import { rewriteText } from '../links.ts';
import { RenderedTooLong } from '../template-errors.ts';

/** Elements whose text is not shown. */
const HIDDEN = namesIn('style script title template noscript textarea select svg');
const APART = new Set([...PARAGRAPH_ELEMENTS, 'figure', 'article', 'section']);
const LINES = namesIn(
  'div br li tr dt dd header footer main nav aside form center address figcaption caption option body',
);
const CELLS = new Set(['td', 'th']);
const LINKED = /^(?:https?:\/\/|mailto:|tel:)/i;

/** Converts an HTML page to plain text: paragraphs, list items, and links with their targets. Linear. */
export function toPlainText(html: string): string {
  const lines = createLines();
  let hidden: string | undefined;
  let link: { readonly href: string; readonly from: number } | undefined;
  const endLink = () => {
    if (link && lines.length() > link.from && lines.since(link.from) !== link.href) lines.text(` <${link.href}>`);
    link = undefined;
  };
  readElements(html, {
    open(name, attributes, isClosed) {
      if (hidden !== undefined || (isClosed && HIDDEN.has(name))) return;
      if (HIDDEN.has(name)) hidden = name;
      else if (name === 'a') {
        endLink();
        const href = (attributes.get('href') ?? '').trim();
        if (LINKED.test(href)) link = { href, from: lines.length() };
      } else lines.begin(name, attributes.get('alt') ?? '');
    },
    close(name) {
      if (hidden === name) hidden = undefined;
      else if (hidden === undefined && name === 'a') endLink();
      else if (hidden === undefined) lines.end(name);
    },
    text(text) {
      if (hidden === undefined) lines.text(text);
    },
  });
  endLink();
  return lines.finish();
}

/** Collects text, collapses white space and breaks lines where elements begin and end. */
function createLines() {
  const pieces: string[] = [];
  let breaks = 0;
  let space = false;

  const text = (raw: string) => {
    const words = collapseSpaces(raw);
    const bare = words.trim();
    if (bare === '') {
      space ||= words !== '';
      return;
    }
    if (breaks > 0 && pieces.length > 0) pieces.push('\n'.repeat(breaks));
    else if (pieces.length > 0 && (space || words.startsWith(' ') || touches(pieces.at(-1) ?? '', bare)))
      pieces.push(' ');
    pieces.push(bare);
    breaks = 0;
    space = words.endsWith(' ');
  };
  const boundary = (name: string) => {
    if (APART.has(name)) breaks = 2;
    else if (LINES.has(name)) breaks = Math.max(breaks, 1);
    else space ||= CELLS.has(name);
  };
  return {
    text,
    begin(name: string, alt: string) {
      boundary(name);
      if (name === 'li') {
        text('* ');
      } else if (name === 'hr') {
        text('----');
        breaks = 2;
      } else if (name === 'img') text(alt);
    },
    end: boundary,
    /** Number of pieces so far. */
    length: () => pieces.length,
    since: (piece: number) => pieces.slice(piece).join('').trim(),
    finish: () => (pieces.length === 0 ? '' : `${pieces.join('')}\n`),
  };
}

/** Whether a word directly follows a link and would become part of it. */
function touches(before: string, after: string): boolean {
  return before.endsWith('>') && /^[\p{L}\p{N}]/u.test(after);
}

/** Replaces a link while the text around it is escaped: decoded text contains no lone surrogates. */
const MARK = '\udbff';
const LINK = /\udbff(\d+);/g;

/**
 * Converts a text to an equivalent HTML page: escaped, with paragraphs, line breaks and indents kept, and links
 * clickable. Linear; throws `RenderedTooLong` if the text alone exceeds `maxLength`.
 */
export function toHtmlPage(text: string, maxLength: number): string {
  const links: string[] = [];
  const decoded = text.toWellFormed().replace(/\r\n?/g, '\n');
  if (decoded.length > maxLength) throw new RenderedTooLong();
  const marked = rewriteText(decoded, (url) => `${MARK}${links.push(url) - 1};`, maxLength);
  const body = paragraphsOf(marked)
    .map((paragraph) => `<p>${toMarkup(paragraph, links)}</p>\n`)
    .join('');
  return `<!DOCTYPE html>\n<html>\n<head><meta charset="utf-8"></head>\n<body>\n${body}</body>\n</html>\n`;
}

/** Splits a text at empty lines and drops trailing white space. Works line by line to be linear. */
function paragraphsOf(text: string): string[] {
  const paragraphs: string[][] = [[]];
  for (const line of text.split('\n')) {
    if (/[^ \t]/.test(line)) paragraphs.at(-1)?.push(line);
    else if (paragraphs.at(-1)?.length !== 0) paragraphs.push([]);
  }
  return paragraphs.map((lines) => lines.join('\n').trimEnd()).filter((paragraph) => paragraph !== '');
}

function toMarkup(paragraph: string, links: readonly string[]): string {
  return (
    escapeHtml(paragraph)
      // Browsers drop spaces at the start of a line and collapse runs of them. Bounded as in `collapseSpaces`.
      .replace(/^ {1,8192}/gm, (spaces) => '&nbsp;'.repeat(spaces.length))
      .replace(/ {2,8192}/g, (spaces) => `${'&nbsp;'.repeat(spaces.length - 1)} `)
      .replaceAll('\t', '&nbsp;&nbsp;&nbsp; ')
      .replaceAll('\n', '<br>\n')
      .replace(LINK, (_, at: string) => toLink(links[Number(at)] ?? ''))
  );
}

function toLink(url: string): string {
  const shown = escapeHtml(url);
  return `<a href="${shown}">${shown}</a>`;
}
