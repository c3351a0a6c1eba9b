import { pattern } from '../../base/pattern.ts';
import { namesOf } from '../../base/tables.ts';

// Invisible characters in texts, except those that scripts and emoji need.

interface Kind {
  readonly about: string;
  /** First and last code points. */
  readonly ranges: readonly (readonly [first: number, last: number])[];
}

/** Kinds of invisible characters. */
export const INVISIBLE = {
  tag: { about: 'the tag block, a copy of ASCII', ranges: [[0xe0000, 0xe007f]] },
  'variation-selector': {
    about: 'variation selectors that select nothing, each of which can encode a byte',
    ranges: [
      [0x180b, 0x180d],
      [0x180f, 0x180f],
      [0xfe00, 0xfe0f],
      [0xe0100, 0xe01ef],
    ],
  },
  bidi: {
    about: 'controls of the writing direction',
    ranges: [
      [0x061c, 0x061c],
      [0x200e, 0x200f],
      [0x202a, 0x202e],
      [0x2066, 0x206f],
    ],
  },
  'zero-width': {
    about: 'joiners, spaces and byte order marks without width',
    ranges: [
      [0x034f, 0x034f],
      [0x180e, 0x180e],
      [0x200b, 0x200d],
      [0x2060, 0x2060],
      [0x2065, 0x2065],
      [0xfeff, 0xfeff],
      [0xfff9, 0xfffb],
      [0x1d173, 0x1d17a],
    ],
  },
  'soft-hyphen': { about: 'displayed only where a line breaks', ranges: [[0x00ad, 0x00ad]] },
  filler: {
    about: 'blank letters, such as U+3164',
    ranges: [
      [0x115f, 0x1160],
      [0x17b4, 0x17b5],
      [0x3164, 0x3164],
      [0xffa0, 0xffa0],
    ],
  },
  blank: { about: 'the Braille pattern without dots, U+2800', ranges: [[0x2800, 0x2800]] },
  operator: { about: 'invisible mathematical operators', ranges: [[0x2061, 0x2064]] },
} as const satisfies Readonly<Record<string, Kind>>;

type InvisibleKind = keyof typeof INVISIBLE;

/** A run of invisible characters of one kind. */
export interface InvisibleRun {
  readonly kind: InvisibleKind;
  /** Characters (code points) of the text before it, and in it. */
  readonly at: number;
  readonly length: number;
  /** The decoded text, if it stands for readable characters. */
  readonly text?: string;
}

const KINDS = namesOf(INVISIBLE).flatMap((kind) =>
  INVISIBLE[kind].ranges.map(([first, last]) => ({ kind, first, last })),
);
const CLASS = KINDS.map(({ first, last }) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join('');
const FOUND = new RegExp(`[${CLASS}]`, 'u');
const ALL = new RegExp(`[${CLASS}]`, 'gu');

/** Longer runs are decoded no further. */
const LONGEST_DECODED = 2000;

const kindOf = (code: number): InvisibleKind | undefined =>
  KINDS.find(({ first, last }) => code >= first && code <= last)?.kind;

/** The runs of invisible characters in a text, in order. Linear. */
export function* invisibleIn(text: string): Iterable<InvisibleRun> {
  if (!FOUND.test(text)) return;
  let counted = 0;
  let points = 0;
  let end = 0;
  for (const { index, 0: first } of text.matchAll(ALL)) {
    if (index < end) continue;
    const kind = kindOf(first.codePointAt(0) ?? 0);
    if (kind === undefined) continue;
    end = index;
    const codes: number[] = [];
    for (;;) {
      const code = text.codePointAt(end);
      if (code === undefined || kindOf(code) !== kind) break;
      codes.push(code);
      end += code > 0xffff ? 2 : 1;
    }
    if (isNeeded(kind, codes, text, index, end)) continue;
    points += pointsIn(text, counted, index);
    counted = index;
    const said = saidBy(kind, codes);
    yield { kind, at: points, length: codes.length, ...(said !== '' && { text: said }) };
  }
}

/** Characters of a part of a text. */
function pointsIn(text: string, from: number, to: number): number {
  let points = to - from;
  for (let i = from + 1; i < to; i++) {
    const code = text.charCodeAt(i);
    if (code >= 0xdc00 && code <= 0xdfff) points--;
  }
  return points;
}

/** Scripts whose letters change their form beside each other, and so need joiners. */
const JOINED = pattern('u')`
  [\p{sc=Arab}\p{sc=Syrc}\p{sc=Mong}\p{sc=Nkoo}\p{sc=Deva}\p{sc=Beng}\p{sc=Guru}
  \p{sc=Gujr}\p{sc=Orya}\p{sc=Taml}\p{sc=Telu}\p{sc=Knda}\p{sc=Mlym}\p{sc=Sinh}
  \p{sc=Tibt}\p{sc=Khmr}\p{sc=Mymr}\p{sc=Java}\p{sc=Bali}\p{sc=Adlm}\p{sc=Rohg}]
`;
/** Scripts that write no spaces between words, and mark where a line may break. */
const UNSPACED =
  /[\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}\p{sc=Tibt}\p{sc=Java}\p{sc=Bali}\p{sc=Lana}\p{sc=Talu}]/u;
const EMOJI = /\p{Extended_Pictographic}|\p{Emoji_Modifier}|\ufe0f/u;
const PICTURE = /\p{Extended_Pictographic}/u;
const KEYCAP = /^[\d#*]$/;
const ENCLOSING_KEYCAP = '\u20e3';
/** Characters that have variants. */
const VARIED = pattern('u')`
  [\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Mong}\p{sc=Mymr}\p{sc=Phag}\p{sc=Mani}
  \p{Sm}\p{So}\u3001\u3002\uff01-\uff60]
`;
/** The flags of England, Scotland and Wales are written with tags. */
const FLAG = 0x1f3f4;
const FLAGS = new Set(['gbeng', 'gbsct', 'gbwls']);
const CANCEL_TAG = 0xe007f;

/** Whether the text around a run needs it. */
function isNeeded(kind: InvisibleKind, codes: readonly number[], text: string, start: number, end: number): boolean {
  const before = characterBefore(text, start);
  if (kind === 'tag')
    return before.codePointAt(0) === FLAG && codes.at(-1) === CANCEL_TAG && FLAGS.has(saidBy(kind, codes));
  const [code = 0, second] = codes;
  if (second !== undefined) return false;
  const after = String.fromCodePoint(text.codePointAt(end) ?? 0);
  if (code === 0x200d && EMOJI.test(before) && PICTURE.test(after)) return true;
  if (code === 0x200d || code === 0x200c) return JOINED.test(before);
  if (code === 0x200b) return UNSPACED.test(before) || UNSPACED.test(after);
  if (code === 0x180e) return JOINED.test(before);
  if (kind !== 'variation-selector') return false;
  if (KEYCAP.test(before)) return after === ENCLOSING_KEYCAP;
  return VARIED.test(before) || ((code === 0xfe0f || code === 0xfe0e) && /\p{Emoji}/u.test(before));
}

/** The character that ends there; '' at the start. */
function characterBefore(text: string, at: number): string {
  const low = text.charCodeAt(at - 1);
  return low >= 0xdc00 && low <= 0xdfff ? text.slice(Math.max(0, at - 2), at) : text.slice(Math.max(0, at - 1), at);
}

/** Tags as ASCII, and selectors as bytes of UTF-8; '' if that is not text. */
function saidBy(kind: InvisibleKind, codes: readonly number[]): string {
  const all = codes.slice(0, LONGEST_DECODED);
  if (kind === 'tag')
    return all
      .map((code) => (code >= 0xe0020 && code < CANCEL_TAG ? String.fromCharCode(code - 0xe0000) : ''))
      .join('');
  if (kind !== 'variation-selector' || all.length < 2) return '';
  const bytes = all.map((code) => (code >= 0xe0100 ? code - 0xe0100 + 16 : code - 0xfe00));
  const text = Buffer.from(bytes).toString('utf8');
  return /[\p{Cc}\ufffd]/u.test(text.replace(/[\t\n\r]/g, '')) ? '' : text;
}
