import { truncate } from '../../base/characters.ts';
import { PARAGRAPH_ELEMENTS } from '../html-edit.ts';
import type { Box } from './box.ts';
import type { OpenElement } from './tree.ts';

// Text as it is displayed: white space as a browser shows it, blocks on lines of their own, a tab between cells.

/** Collects at most this number of characters. */
export function createVisibleText(most: number) {
  const pieces: string[] = [];
  let left = most;
  let isCut = false;
  /** Separators between the last text and the next. */
  let breaks = 0;
  let isTabbed = false;
  let isSpaced = false;
  let marker = '';
  /** The numbers of the lists that are open. */
  const counts: (number | undefined)[] = [];

  const put = (text: string) => {
    if (text.length <= left) pieces.push(text);
    else {
      if (left > 0) pieces.push(truncate(text, left));
      isCut = true;
    }
    left = Math.max(0, left - text.length);
  };
  const separate = () => {
    if (pieces.length > 0) {
      if (breaks > 0) put('\n'.repeat(breaks));
      else if (isTabbed) put('\t');
      else if (isSpaced) put(' ');
    }
    if (marker !== '') put(marker);
    breaks = 0;
    isTabbed = false;
    isSpaced = false;
    marker = '';
  };
  const border = (lines: number) => {
    breaks = Math.max(breaks, lines);
    isSpaced = false;
  };
  const ofBlock = ({ name, box: { display } }: OpenElement) => {
    if (display === 'cell') isTabbed ||= breaks === 0;
    else if (display !== 'table-part' && display !== 'none')
      border(PARAGRAPH_ELEMENTS.has(name) && (name.length > 2 || counts.length <= 1) ? 2 : 1);
  };

  return {
    text(piece: string, space: Box['space']) {
      if (isCut) return;
      if (space !== 'normal' && /[\r\n]/.test(piece)) {
        for (const [i, line] of piece.split(/\r\n?|\n/).entries()) {
          if (i > 0) this.line();
          if (line !== '') this.text(line, space);
        }
        return;
      }
      if (space === 'all') {
        separate();
        return put(piece);
      }
      const words = piece.replace(/[ \t\n\r\f]{1,8192}/g, ' ').replace(/ {2,8192}/g, ' ');
      const bare = words.slice(words.startsWith(' ') ? 1 : 0, words.endsWith(' ') ? -1 : undefined);
      if (words.startsWith(' ')) isSpaced = true;
      if (bare === '') return;
      separate();
      put(bare);
      isSpaced = words.endsWith(' ');
    },
    /** A line ends. */
    line() {
      // At most two line ends are kept.
      breaks = Math.min(2, breaks + 1);
      isSpaced = false;
    },
    /** A block, a row or a cell begins or ends. */
    open(node: OpenElement) {
      const { name, attributes, box } = node;
      if (name === 'ul' || name === 'ol')
        counts.push(name === 'ol' ? Number.parseInt(attributes.get('start') ?? '1', 10) || 1 : undefined);
      ofBlock(node);
      if (!box.isItem || node.hidden) return;
      const own = Number.parseInt(attributes.get('value') ?? '', 10);
      const last = counts.at(-1);
      const count = last === undefined || Number.isNaN(own) ? last : own;
      if (count !== undefined) counts[counts.length - 1] = count + 1;
      marker = box.hasMarkers ? (count === undefined ? '\u2022 ' : `${count}. `) : '';
    },
    close(node: OpenElement) {
      ofBlock(node);
      if (node.name === 'ul' || node.name === 'ol') counts.pop();
      if (node.box.isItem) marker = '';
    },
    finish: (): { readonly text: string; readonly isCut: boolean } => ({ text: pieces.join(''), isCut }),
  };
}
