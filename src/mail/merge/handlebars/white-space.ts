import type { Steps } from '../../../base/steps.ts';
import type { Piece } from './pieces.ts';

// Tags that show nothing themselves: alone on a line, the line goes with them, as in all implementations of the language.
const STANDALONE = new Set<Piece['kind']>(['open', 'inverse', 'else', 'close', 'comment']);

/** Pieces between two rests. */
const SLICE = 1000;

/** Takes out the white space that only makes the source readable: lines with nothing but a block's tag, and what `~` asks for. */
export function* trimmingPieces(pieces: readonly Piece[]): Steps<Piece[]> {
  const cuts = pieces.map(() => ({ start: 0, end: 0 }));
  for (const [at, piece] of pieces.entries()) {
    if (at % SLICE === 0) yield;
    if (piece.kind === 'text') continue;
    const before = pieces[at - 1];
    const behind = pieces[at + 1];
    const blanksBefore = STANDALONE.has(piece.kind) ? lineBefore(before) : undefined;
    const blanksBehind = STANDALONE.has(piece.kind) ? lineBehind(behind) : undefined;
    const alone = blanksBefore !== undefined && blanksBehind !== undefined;
    const ends = piece.trims.before && before?.kind === 'text' ? before.text.length - before.text.trimEnd().length : 0;
    const starts =
      piece.trims.behind && behind?.kind === 'text' ? behind.text.length - behind.text.trimStart().length : 0;
    const left = cuts[at - 1];
    const right = cuts[at + 1];
    if (left) left.end = Math.max(left.end, ends, alone ? blanksBefore : 0);
    if (right) right.start = Math.max(right.start, starts, alone ? blanksBehind : 0);
  }
  return pieces.map((piece, at) => {
    const { start, end } = cuts[at] ?? { start: 0, end: 0 };
    return piece.kind === 'text' && start + end > 0
      ? { kind: 'text', text: piece.text.slice(start, Math.max(start, piece.text.length - end)) }
      : piece;
  });
}

/** How many blanks stand between the beginning of the line and its end; undefined when something else does. */
function lineBefore(piece: Piece | undefined): number | undefined {
  if (piece === undefined) return 0;
  if (piece.kind !== 'text') return undefined;
  const { text } = piece;
  let at = text.length;
  while (at > 0 && isBlank(text[at - 1])) at--;
  // A text that is blank from its beginning has a tag in front of it, or is the template's first.
  return at > 0 && text[at - 1] === '\n' ? text.length - at : undefined;
}

/** How many blanks stand up to the end of the line, the end included; undefined when something else does. */
function lineBehind(piece: Piece | undefined): number | undefined {
  if (piece === undefined) return 0;
  if (piece.kind !== 'text') return undefined;
  const { text } = piece;
  let at = 0;
  while (at < text.length && isBlank(text[at])) at++;
  if (text.startsWith('\r\n', at)) return at + 2;
  return text[at] === '\n' ? at + 1 : undefined;
}

function isBlank(char: string | undefined): boolean {
  return char === ' ' || char === '\t';
}
