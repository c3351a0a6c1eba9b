import { changeText } from '../links.ts';

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
/** In place of a link while the text around it is escaped: no text that is decoded has lone surrogates. */
const MARK = '\udbff';
const LINK = /\udbff(\d+);/g;

/**
 * A text as an HTML page that reads the same: escaped, an empty line between paragraphs, line breaks and indents kept, links
 * that can be followed. Linear; throws `TooLong` when the links alone would be longer than `maxLength`.
 */
export function toHtmlPage(text: string, maxLength: number): string {
  const links: string[] = [];
  const marked = changeText(
    text.toWellFormed().replace(/\r\n?/g, '\n'),
    (url) => `${MARK}${links.push(url) - 1};`,
    maxLength,
  );
  const paragraphs = marked
    .split(/\n(?:[ \t]*\n)+/)
    .map((paragraph) => paragraph.replace(/^\n+|\s+$/g, ''))
    .filter((paragraph) => paragraph.trim() !== '');
  const body = paragraphs.map((paragraph) => `<p>${toMarkup(paragraph, links)}</p>\n`).join('');
  return `<!DOCTYPE html>\n<html>\n<head><meta charset="utf-8"></head>\n<body>\n${body}</body>\n</html>\n`;
}

function toMarkup(paragraph: string, links: readonly string[]): string {
  return (
    escaped(paragraph)
      // At the beginning of a line a browser would show no space, and of several in a row one.
      .replace(/^ +/gm, (spaces) => '&nbsp;'.repeat(spaces.length))
      .replace(/ {2,}/g, (spaces) => `${'&nbsp;'.repeat(spaces.length - 1)} `)
      .replaceAll('\t', '&nbsp;&nbsp;&nbsp; ')
      .replaceAll('\n', '<br>\n')
      .replace(LINK, (_, at: string) => toLink(links[Number(at)] ?? ''))
  );
}

function toLink(url: string): string {
  const shown = escaped(url);
  return `<a href="${shown}">${shown}</a>`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}
