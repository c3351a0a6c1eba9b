import { TooLong } from '../too-long.ts';

/** A text with pieces of it replaced, from the first to the last. */
export interface Output {
  replace(start: number, end: number, text: string): void;
  /** The whole; `insert` stands at the place `at` of the old text, behind everything that was replaced before it. */
  finish(insert: string, at: number): string;
}

/** Throws `TooLong` as soon as the whole would be longer than `maxLength`. */
export function createOutput(source: string, maxLength: number): Output {
  const pieces: { readonly start: number; readonly end: number; readonly text: string }[] = [];
  let length = source.length;
  const grow = (by: number) => {
    length += by;
    if (length > maxLength) throw new TooLong();
  };
  return {
    replace(start, end, text) {
      grow(text.length - (end - start));
      pieces.push({ start, end, text });
    },
    finish(insert, at) {
      grow(insert.length);
      if (pieces.length === 0 && insert === '') return source;
      const parts: string[] = [];
      let kept = 0;
      const put = (start: number, end: number, text: string) => {
        parts.push(source.slice(kept, start), text);
        kept = end;
      };
      let inserted = insert === '';
      for (const piece of pieces) {
        if (!inserted && piece.start >= at) {
          put(at, at, insert);
          inserted = true;
        }
        put(piece.start, piece.end, piece.text);
      }
      if (!inserted) put(at, at, insert);
      return parts.join('') + source.slice(kept);
    },
  };
}
