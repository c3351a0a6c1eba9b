import { truncate } from '../../base/characters.ts';
import { toPlainText } from '../compose/plain-text.ts';
import { type ParsedMessage, startOfText } from '../message.ts';
import { quotesOf } from './reply-html.ts';
import {
  attributionIn,
  isForwardedLine,
  isForwardedSubject,
  isHeader,
  isOriginalLine,
  type Label,
  labelOf,
  MAX_WRAPPED,
} from './reply-marks.ts';

/** A text in two parts: each of its lines is in exactly one of them. */
interface ReplySplit {
  /** The sender's own text, signature included. */
  readonly reply: string;
  /** The part that the mail program added of the original message; '' if none. */
  readonly quoted: string;
}

/** The parts as in the payload, and whether something is cut off. */
export interface ShownReply extends ReplySplit {
  readonly cut: boolean;
}

/**
 * Characters of a text that are searched, and of each part. People do not write more above a quote; and the parts
 * repeat a text of the payload, so a text of 25 MB must not be there twice.
 */
const MAX_SEARCHED = 512 * 1024;
const MAX_REPLY = 256 * 1024;
const MAX_QUOTED = 64 * 1024;

/** The reply and what it quotes, of the text of a message, or of its HTML if it has no text. Bounded. */
export function replyOf({ text, html, subject }: Pick<ParsedMessage, 'text' | 'html' | 'subject'>): ShownReply {
  const isPlain = text !== undefined;
  const { start, whole } = startOfText(text ?? html ?? '', MAX_SEARCHED);
  const { reply, quoted } = isPlain ? splitReply(start, subject) : splitHtmlReply(start, subject);
  return {
    reply: truncate(reply, MAX_REPLY),
    quoted: truncate(quoted, MAX_QUOTED),
    cut: !whole || reply.length > MAX_REPLY || quoted.length > MAX_QUOTED,
  };
}

/**
 * Splits a plain text with LF line ends into the reply and what it quotes. Linear.
 *
 * A quote is marked by `>`, or by a line of the mail program. It is removed at the end, below the reply; and if it is
 * the only one, at the start, or below its attribution in the middle. Between replies it stays, because they refer to
 * it. Forwarded text stays too, and so does everything if the sender wrote nothing: unclear text counts as reply.
 */
export function splitReply(text: string, subject = ''): ReplySplit {
  return split(text, subject, []);
}

/** As `splitReply`, for an HTML page, whose elements mark quotes. */
export function splitHtmlReply(html: string, subject = ''): ReplySplit {
  let text = '';
  const marked: Span[] = [];
  for (const { start, end, isQuote, isAttribution = false } of quotesOf(html)) {
    const part = toPlainText(html.slice(start, end));
    if (part === '') continue;
    const from = text.length;
    text += part;
    const isForwarded = isForwardedLine(part.slice(0, part.indexOf('\n')));
    if (isQuote && !isForwarded) marked.push({ start: from, end: text.length, isAttribution });
  }
  return split(text, subject, marked);
}

interface Span {
  readonly start: number;
  readonly end: number;
  /** Whether it stands above a quote. */
  readonly isAttribution: boolean;
}

/** A quote in the text, its attribution included. */
interface Quote {
  /** Where its last line ends. */
  end: number;
  /** Whether a line of the mail program stands above it. */
  readonly isAttributed: boolean;
  /** Where the last own line above it ends; 0: there is none. */
  readonly ownBefore: number;
}

/** The state before a line. */
interface OwnSoFar {
  /** Where the last own line ends; 0: there is none. */
  readonly ownEnd: number;
  /** Whether own lines follow the last quote. */
  readonly ownSince: boolean;
}

/** A line of the mail program that may stand above a quote; the lines after it decide. */
interface Pending extends OwnSoFar {
  readonly isStrong: boolean;
  /** Where own text ends if it does not. */
  readonly end: number;
}

/** Own lines without an empty one between them. */
interface Paragraph extends OwnSoFar {
  readonly start: number;
}

/** What one pass over a text finds. */
interface Found extends OwnSoFar {
  readonly first: Quote | undefined;
  readonly last: Quote | undefined;
  /** Where the original message begins, if all that follows is part of it. */
  readonly rest: number | undefined;
}

/** `marked` are parts that are known to be quotes, in order. */
function split(text: string, subject: string, marked: readonly Span[]): ReplySplit {
  const all = { reply: text, quoted: '' };
  if (isForwardedSubject(subject)) return all;
  const { first, last, ownSince, ownEnd, rest } = find(text, marked);
  const tail = rest ?? (last && !ownSince ? last.ownBefore : 0);
  if (tail > 0) return { reply: text.slice(0, tail), quoted: text.slice(tail) };
  if (!first || first !== last || !ownSince || ownEnd === 0) return all;
  if (first.ownBefore > 0 && !first.isAttributed) return all;
  const end = first.ownBefore > 0 ? first.end : startOfInk(text, first.end);
  return {
    reply: text.slice(0, first.ownBefore) + text.slice(end),
    quoted: text.slice(first.ownBefore, end),
  };
}

function find(text: string, marked: readonly Span[]): Found {
  /** The lines just above, without an empty one between: attributions are wrapped. */
  let paragraph: Paragraph | undefined;
  let first: Quote | undefined;
  let last: Quote | undefined;
  let pending: Pending | undefined;
  let ownEnd = 0;
  let ownSince = false;
  let span = 0;
  let looksLeft = MAX_LOOKED_AT;

  // A quote without an attribution, below own words and above the attribution of another one, is the sender's own.
  const isOwn = (quoted: Quote | undefined): quoted is Quote =>
    quoted !== undefined && !quoted.isAttributed && quoted.ownBefore > 0 && pending !== undefined && !pending.ownSince;
  const quote = (end: number) => {
    const own = isOwn(last) ? last : undefined;
    const ownBefore = own?.end ?? pending?.ownEnd ?? ownEnd;
    const isNew = !last || own !== undefined || (pending?.ownSince ?? ownSince);
    if (own && first === own) first = undefined;
    if (last && !isNew) last.end = end;
    else last = { end, ownBefore, isAttributed: pending !== undefined };
    first ??= last;
    ownEnd = ownBefore;
    ownSince = false;
    pending = undefined;
    paragraph = undefined;
  };

  let start = 0;
  while (start < text.length) {
    const end = endOfLine(text, start);
    const at = firstInk(text, start, end);
    while ((marked[span]?.end ?? Number.POSITIVE_INFINITY) <= start) span++;
    const isQuoted =
      (text.charCodeAt(at) === QUOTE_MARK && !(paragraph && closesAddress(text, paragraph.start, at, end))) ||
      start >= (marked[span]?.start ?? Number.POSITIVE_INFINITY);
    const lineStart = start;
    start = end;
    if (at === end) {
      paragraph = undefined;
      continue;
    }
    if (isQuoted) {
      const begun = marked[span]?.start === lineStart ? marked[span] : undefined;
      if (begun && !pending && (begun.isAttribution || isAttribution(text, at, end)))
        pending = { ownEnd, ownSince, isStrong: true, end };
      quote(end);
      continue;
    }
    if (pending?.isStrong) {
      const header = mayLead(text, at, end) ? headerEnd(text, at) : undefined;
      if (header !== undefined) {
        pending = { ...pending, end: header };
        start = header;
        continue;
      }
      // `--- Original Message ---` above `On Monday, Ann wrote:`
      if (isAttribution(text, at, end)) {
        pending = { ...pending, end };
        continue;
      }
      // The quote has no mark. Without text above, it may as well be forwarded.
      if (pending.ownEnd > 0) return { first, last, ownEnd, ownSince, rest: isOwn(last) ? last.end : pending.ownEnd };
      return { first, last, ownEnd: text.length, ownSince: true, rest: undefined };
    }
    if (pending) {
      ownEnd = pending.end;
      ownSince = true;
      pending = undefined;
    }
    paragraph ??= { start: lineStart, ownEnd, ownSince };
    if (mayLead(text, at, end) && looksLeft-- > 0) {
      const line = lineOf(text, at, end);
      if (isForwardedLine(line)) return { first, last, ownEnd: text.length, ownSince: true, rest: undefined };
      if (isRule(line)) {
        paragraph = undefined;
        continue;
      }
      const header = headerEnd(text, at);
      if (header !== undefined) {
        pending = { ownEnd, ownSince, isStrong: true, end: header };
        start = header;
        continue;
      }
      pending = leadIn(text, lineStart, end, paragraph);
      if (pending) {
        ({ ownEnd, ownSince } = pending);
        continue;
      }
    }
    ownEnd = end;
    ownSince = true;
  }
  if (!pending) return { first, last, ownEnd, ownSince, rest: undefined };
  if (pending.isStrong && pending.ownEnd > 0)
    return { first, last, ownEnd, ownSince, rest: isOwn(last) ? last.end : pending.ownEnd };
  return { first, last, ownEnd: pending.end, ownSince: true, rest: undefined };
}

/** Whether a line is an attribution, whatever follows it. */
const isAttribution = (text: string, at: number, end: number): boolean =>
  mayLead(text, at, end) && attributionIn([lineOf(text, at, end)])?.strength === 'strong';

/** The line of the mail program that a paragraph has at `end`: `-----Original Message-----`, or an attribution. */
function leadIn(text: string, start: number, end: number, paragraph: Paragraph): Pending | undefined {
  const starts = [start];
  const lines = [lineOf(text, start, end)];
  while (lines.length <= MAX_WRAPPED && (starts[0] ?? 0) > paragraph.start) {
    const below = starts[0] ?? 0;
    const above = Math.max(paragraph.start, text.lastIndexOf('\n', below - 2) + 1);
    starts.unshift(above);
    lines.unshift(lineOf(text, above, below));
  }
  const found = isOriginalLine(lines.at(-1) ?? '') ? { lines: 1, strength: 'strong' } : attributionIn(lines);
  const from = found && starts.at(-found.lines);
  if (from === undefined) return undefined;
  const isStrong = found?.strength === 'strong';
  // The lines of a paragraph are own lines: one ends where the next begins.
  return from > paragraph.start
    ? { ownEnd: from, ownSince: true, isStrong, end }
    : { ownEnd: paragraph.ownEnd, ownSince: paragraph.ownSince, isStrong, end };
}

/** Whether a line that begins with `>` ends an attribution that was wrapped within its address: `> wrote:`, or `>:`. */
function closesAddress(text: string, start: number, at: number, end: number): boolean {
  if (end - at > LONGEST_LABELLED || !/[:：]\s*$/u.test(text.slice(at, end))) return false;
  const above = text.slice(Math.max(start, at - LONGEST_LINE), at);
  return /<[^\s<>()@]{1,128}@[^\s<>()@]{1,255}(?:\s<mailto:[^\s<>]{1,400}>)?\s*$/u.test(above);
}

/** The maximum number of lines of a quoted header, including folded ones. */
const MAX_HEADER_LINES = 16;
const MAX_FOLDED = 6;

/** Where the header of a quoted message ends (`From:`, `Sent:`, `To:`, `Subject:`); undefined if there is none. */
function headerEnd(text: string, start: number): number | undefined {
  const found = new Set<Label>();
  let end = start;
  let folded = 0;
  let isEmpty = false;
  for (let at = start, lines = 0; lines < MAX_HEADER_LINES && at < text.length; lines++) {
    const next = endOfLine(text, at);
    const ink = firstInk(text, at, next);
    at = next;
    if (ink === next) {
      // Some programs write an empty line between the fields.
      if (isEmpty) break;
      isEmpty = true;
      continue;
    }
    const label = labelOf(text.slice(ink, Math.min(next, ink + LONGEST_LABELLED)));
    if (label === undefined && (found.size === 0 || isEmpty || ++folded > MAX_FOLDED)) break;
    if (label === undefined) continue;
    found.add(label);
    isEmpty = false;
    end = next;
  }
  return isHeader(found) ? end : undefined;
}

/** The most lines that are examined closely: mail of people has few that may be of a mail program. */
const MAX_LOOKED_AT = 1000;
const LONGEST_LINE = 600;
const LONGEST_LABELLED = 40;
const QUOTE_MARK = 0x3e;

/** `:`, `：` */
const isColon = (code: number): boolean => code === 0x3a || code === 0xff1a;
/** `-`, `_`, `=`, `~`, and dashes: `‐` to `―` */
const isDash = (code: number): boolean =>
  code === 0x2d || code === 0x5f || code === 0x3d || code === 0x7e || (code >= 0x2010 && code <= 0x2015);
const isSpace = (code: number): boolean => (code <= 0x20 && code >= 0x09) || code === 0xa0;
/** Spaces, direction marks and the asterisks of bold text. */
const mayTrail = (code: number): boolean => isSpace(code) || code === 0x2a || (code >= 0x200b && code <= 0x206f);

/** Whether a line can be one of a mail program; the first and last characters rule out most lines. */
function mayLead(text: string, at: number, end: number): boolean {
  if (isDash(text.charCodeAt(at))) return true;
  let last = end - 1;
  while (last > at && mayTrail(text.charCodeAt(last))) last--;
  if (isColon(text.charCodeAt(last))) return true;
  const most = Math.min(end, at + LONGEST_LABELLED);
  for (let i = at; i < most; i++) if (isColon(text.charCodeAt(i))) return true;
  return false;
}

/** Whether a line is a ruler: `________________`. It belongs to the text below. */
function isRule(line: string): boolean {
  if (line.length < 4) return false;
  for (let i = 0; i < line.length; i++) if (!isDash(line.charCodeAt(i))) return false;
  return true;
}

/** A line as text; only the start of a long one. */
const lineOf = (text: string, start: number, end: number): string =>
  text.slice(start, Math.min(end, start + LONGEST_LINE)).trim();

/** Where the line that starts there ends, its LF included. */
function endOfLine(text: string, start: number): number {
  const at = text.indexOf('\n', start);
  return at === -1 ? text.length : at + 1;
}

/** The first character that is no space; `end` if there is none. */
function firstInk(text: string, start: number, end: number): number {
  let at = start;
  while (at < end && isSpace(text.charCodeAt(at))) at++;
  return at;
}

/** The start of the next line that is not empty. */
function startOfInk(text: string, from: number): number {
  let start = from;
  while (start < text.length) {
    const end = endOfLine(text, start);
    if (firstInk(text, start, end) < end) return start;
    start = end;
  }
  return start;
}
