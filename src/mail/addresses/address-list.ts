import type { Mailbox } from '../message.ts';
import { decodeWords, singleLine } from '../mime/headers.ts';
import { hasUnsafeCharacter, toAsciiDomain } from './address.ts';

/**
 * The only parser of address fields (RFC 5322 section 3.4, RFC 6854 for groups in From, RFC 6532 for UTF-8), including
 * the obsolete forms of RFC 5322 section 4.4: routes, white space and comments around dots and at signs, empty list
 * members. All code that needs to know who wrote a message or whom it is for uses it, so that one field is never read
 * in two ways.
 *
 * Encoded words are decoded after parsing, and only in display names and comments: their content is never an address, a
 * comma or a group (RFC 2047 sections 5 and 6.2).
 */

/** A mailbox of an address field. */
export interface FieldMailbox extends Mailbox {
  /** Lower-case A-labels, or an address literal with its brackets; undefined if it cannot be a name in the DNS. */
  readonly domain: string | undefined;
}

/** The parsed content of an address field. */
interface AddressList {
  /** In order of appearance; members of groups are listed like the others. */
  readonly mailboxes: readonly FieldMailbox[];
  /** Members without an address, as written. */
  readonly unreadable: readonly string[];
  /**
   * Whether the field follows the grammar, so that every parser of RFC 5322 finds these mailboxes and no others. Some
   * deviations are common and unambiguous, and allowed: dots anywhere in a local part; brackets in an unquoted display
   * name; an at sign in one, if it names no other domain than the address; an encoded word with a comma, a bracket or a
   * dot.
   */
  readonly sound: boolean;
  /** Domains of what looks like an address where the field breaks the grammar; another parser may pick any of them. */
  readonly otherDomains: readonly string[];
}

interface Token {
  readonly kind: 'atom' | 'word' | 'quoted' | 'literal' | 'comment' | 'special';
  /** Without quotes, comment parentheses and escapes. */
  readonly text: string;
  /** Whether it is preceded by white space. */
  readonly spaced: boolean;
  readonly start: number;
  readonly end: number;
}

interface Reading {
  readonly text: string;
  readonly mailboxes: FieldMailbox[];
  readonly unreadable: string[];
  readonly otherDomains: Set<string>;
  sound: boolean;
}

const WHITE = /[ \t\r\n]*/y;
// atext of RFC 5322 section 3.2.3, plus everything beyond ASCII (RFC 6532 section 3.2).
const ATOM = /[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+/uy;
const DOT_ATOM = /^[\w!#$%&'*+/=?^`{|}~.\u0080-\u{10ffff}-]+$/u;
// RFC 2047 section 2. In a display name it may contain only letters, digits and a few other characters (section 5, rule
// 3), but senders forget to encode commas and brackets. Characters that could make it an address are not matched.
const ENCODED_WORD = /=\?[\w-]+(?:\*[\w-]*)?\?(?:[Bb]\?[\w+/=]*|[Qq]\?[^?\s<>@:;"\\]*)\?=/y;

/** Parses the unfolded value of an address field, in linear time. */
export function parseAddressList(text: string): AddressList {
  const tokens: Token[] = [];
  const whole = scan(text, tokens);
  const reading: Reading = { text, mailboxes: [], unreadable: [], otherDomains: new Set(), sound: whole };
  readList(tokens, reading);
  const { mailboxes, unreadable, sound, otherDomains } = reading;
  return { mailboxes, unreadable, sound, otherDomains: [...otherDomains] };
}

/** Splits a list into its members, each an address: those of a group are members, its name is not. */
function readList(tokens: readonly Token[], reading: Reading): void {
  let member: Token[] = [];
  let state: 'list' | 'group' | 'behind a group' = 'list';
  let inAngle = false;
  const end = (): void => {
    if (state === 'behind a group' && member.some(isWord)) reading.sound = false;
    readMember(member, reading);
    member = [];
  };
  for (const token of tokens) {
    if (isSpecial(token, '<')) inAngle = true;
    else if (isSpecial(token, '>')) inAngle = false;
    if (inAngle || !isSpecial(token, ',:;')) {
      member.push(token);
    } else if (token.text === ',') {
      end();
      if (state !== 'group') state = 'list';
    } else if (token.text === ':') {
      if (state !== 'list' || !isPhrase(member.filter(isWord))) {
        reading.sound = false;
        end();
      }
      member = [];
      state = 'group';
    } else {
      end();
      if (state !== 'group') reading.sound = false;
      state = 'behind a group';
    }
  }
  end();
  if (state === 'group') reading.sound = false;
}

/** One address: `local@domain`, or a display name with the address in angle brackets. */
function readMember(member: readonly Token[], reading: Reading): void {
  const words = member.filter(isWord);
  const [first, last] = [words[0], words.at(-1)];
  if (first === undefined || last === undefined) return;
  const open = words.findIndex((token) => isSpecial(token, '<'));
  if (open === -1) {
    const found = toMailbox(words, toName(lastComment(member)));
    if (found) add(found, reading);
    else recover(words, reading);
    return;
  }
  const phrase = words.slice(0, open);
  const inside = words.slice(open + 1, -1);
  const name = toName(phrase.length > 0 ? phrase : lastComment(member));
  const found = isSpecial(last, '>') ? toMailbox(withoutRoute(inside), name) : undefined;
  if (!found) return recover(words.slice(open), reading, phrase);
  add(found, reading);
  if (phrase.length === 0 || isPhrase(phrase)) return;
  const others = phrase.every(isTolerated) ? domainsIn(phrase) : undefined;
  if (others?.every((domain) => domain === found.domain)) return;
  reading.sound = false;
  for (const domain of others ?? domainsIn(phrase)) if (domain !== undefined) reading.otherDomains.add(domain);
}

/** The obsolete form of a display name: `jane@example.com (Jane)`. */
function lastComment(member: readonly Token[]): Token[] {
  return member.filter(({ kind }) => kind === 'comment').slice(-1);
}

function add(mailbox: FieldMailbox, reading: Reading): void {
  reading.mailboxes.push(mailbox);
  if (mailbox.domain === undefined) reading.sound = false;
}

/** Recovers from a malformed member: keeps its first address as a mailbox, and the domains of all of them. */
function recover(words: readonly Token[], reading: Reading, phrase: readonly Token[] = []): void {
  reading.sound = false;
  const found = [...addressesIn(words), ...addressesIn(phrase)];
  const [shown] = found;
  if (shown) reading.mailboxes.push({ ...shown, name: isPhrase(phrase) ? toName(phrase) : null });
  const [start, end] = [(phrase[0] ?? words[0])?.start, words.at(-1)?.end];
  if (!shown && start !== undefined) reading.unreadable.push(reading.text.slice(start, end));
  for (const { domain } of found) if (domain !== undefined) reading.otherDomains.add(domain);
}

/** Finds every `local@domain` among the words, in any context. */
function addressesIn(words: readonly Token[]): FieldMailbox[] {
  const found: FieldMailbox[] = [];
  for (const [at, token] of words.entries()) {
    if (!isSpecial(token, '@')) continue;
    let from = at;
    while (isLocalWord(words[from - 1])) {
      from -= 1;
      if (!isDot(words[from - 1])) break;
      from -= 1;
    }
    let to = at + 1;
    while (isDot(words[to + 1]) && words[to + 2]?.kind === 'atom') to += 2;
    // A dot without a label after it makes the domain invalid: a part of it could be someone else's.
    const mailbox = isDot(words[to + 1]) ? undefined : toMailbox(words.slice(from, to + 1), null);
    if (mailbox) found.push(mailbox);
  }
  return found;
}

function domainsIn(words: readonly Token[]): (string | undefined)[] {
  return addressesIn(words).map(({ domain }) => domain);
}

/** Removes the obsolete source route in front of an address (`@a,@b:c@d`, RFC 5322 section 4.4). */
function withoutRoute(words: readonly Token[]): readonly Token[] {
  if (!isSpecial(words[0], '@')) return words;
  const colon = words.findIndex((token) => isSpecial(token, ':'));
  const route = words.slice(0, Math.max(colon, 0));
  const isRoute = route.every(({ kind, text }) => kind === 'atom' || kind === 'literal' || '@.,'.includes(text));
  return isRoute ? words.slice(colon + 1) : words;
}

/** Parses an addr-spec; undefined if the words are not one. */
function toMailbox(words: readonly Token[], name: string | null): FieldMailbox | undefined {
  const at = words.findIndex((token) => isSpecial(token, '@'));
  const local = at === -1 ? undefined : toLocalPart(words.slice(0, at));
  const domain = words.slice(at + 1);
  const [first] = domain;
  if (local === undefined || first === undefined) return undefined;
  if (first.kind === 'literal') {
    if (domain.length > 1) return undefined;
    return { address: `${local}@${first.text}`, name, domain: first.text.toLowerCase() };
  }
  const alternating = domain.every((token, index) => (index % 2 === 0 ? token.kind === 'atom' : isDot(token)));
  if (!alternating || domain.length % 2 === 0) return undefined;
  const written = domain.map(({ text }) => text).join('');
  return { address: `${local}@${written}`, name, domain: toAsciiDomain(written) };
}

/** The shortest equivalent local part, quoted only if necessary. */
function toLocalPart(words: readonly Token[]): string | undefined {
  let before: Token | undefined;
  for (const token of words) {
    if (!isDot(token) && (!isLocalWord(token) || (before && !isDot(before)))) return undefined;
    before = token;
  }
  const text = words.map((token) => token.text).join('');
  if ((words.every(isDot) && text !== '') || words.length === 0 || hasUnsafeCharacter(text)) return undefined;
  const bare = DOT_ATOM.test(text) && (words.every(({ kind }) => kind !== 'quoted') || !/^\.|\.\.|\.$/.test(text));
  return bare ? text : `"${text.replace(/["\\]/g, '\\$&')}"`;
}

/** The text of a display name or a comment, with encoded words decoded. */
function toName(words: readonly Token[]): string | null {
  let text = '';
  for (const word of words) text += `${word.spaced && text !== '' ? ' ' : ''}${word.text}`;
  const name = singleLine(decodeWords(text)).trim();
  return name === '' ? null : name;
}

/** A piece of an address field, as offsets into it, and its text without quotes and with encoded words decoded. */
interface AddressPiece {
  /** `phrase`: a display name, or the name of a group. */
  readonly kind: 'phrase' | 'comment' | 'local' | 'domain';
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Splits the unfolded value of an address field into what is for people and what is an address, however badly it is
 * written: only the former may be encoded (RFC 2047 section 5, rule 3).
 */
export function addressPieces(text: string): AddressPiece[] {
  const tokens: Token[] = [];
  scan(text, tokens);
  const pieces: AddressPiece[] = [];
  let member: Token[] = [];
  let inAngle = false;
  for (const token of tokens) {
    if (isSpecial(token, '<')) inAngle = true;
    else if (isSpecial(token, '>')) inAngle = false;
    if (inAngle || !isSpecial(token, ',:;')) member.push(token);
    else {
      addPieces(member, pieces);
      member = [];
    }
  }
  addPieces(member, pieces);
  return pieces;
}

function addPieces(member: readonly Token[], pieces: AddressPiece[]): void {
  const put = (kind: AddressPiece['kind'], tokens: readonly Token[]) => {
    const [first, last] = [tokens[0], tokens.at(-1)];
    if (first && last) pieces.push({ kind, start: first.start, end: last.end, text: toName(tokens) ?? '' });
  };
  const { from, at, to } = addressWithin(member) ?? { from: 0, at: 0, to: 0 };
  let phrase: Token[] = [];
  for (const [index, token] of member.entries()) {
    const within = index >= from && index < to;
    if (!within && isWord(token) && !isSpecial(token, '<>')) {
      phrase.push(token);
      continue;
    }
    put('phrase', phrase);
    phrase = [];
    if (!isWord(token)) put('comment', [token]);
  }
  put('phrase', phrase);
  put('local', member.slice(from, at).filter(isWord));
  put('domain', member.slice(at + 1, to).filter(isWord));
}

/** Where the address of a member begins, where its at sign is, and where it ends; undefined if it has none. */
function addressWithin(member: readonly Token[]): { from: number; at: number; to: number } | undefined {
  const open = member.findIndex((token) => isSpecial(token, '<'));
  const at = member.findLastIndex((token) => isSpecial(token, '@'));
  if (at === -1 || at < open) return undefined;
  if (open >= 0) {
    const close = member.findIndex((token, index) => index > at && isSpecial(token, '>'));
    return { from: open + 1, at, to: close < 0 ? member.length : close };
  }
  let from = at;
  while (from > 0 && (from === at || !member[from]?.spaced) && isAddressWord(member[from - 1])) from -= 1;
  let to = at + 1;
  while (to < member.length && (to === at + 1 || !member[to]?.spaced) && isAddressWord(member[to])) to += 1;
  return { from, at, to };
}

function isAddressWord(token: Token | undefined): boolean {
  return isLocalWord(token) || isDot(token) || token?.kind === 'literal';
}

/** Whether the words are a display name by RFC 5322, dots included (section 4.1). */
function isPhrase(words: readonly Token[]): boolean {
  const isPart = (token: Token): boolean => isLocalWord(token) || token.kind === 'word' || isDot(token);
  return words.length > 0 && !isDot(words[0]) && words.every(isPart);
}

function isTolerated(token: Token): boolean {
  return token.kind !== 'special' || isSpecial(token, '@.');
}

function isLocalWord(token: Token | undefined): boolean {
  return token?.kind === 'atom' || token?.kind === 'quoted';
}

function isDot(token: Token | undefined): boolean {
  return isSpecial(token, '.');
}

function isSpecial(token: Token | undefined, which: string): boolean {
  return token?.kind === 'special' && which.includes(token.text);
}

function isWord({ kind }: Token): boolean {
  return kind !== 'comment';
}

/**
 * Splits a value into tokens (RFC 5322 section 3.2). Returns false if a quoted string, literal or comment is not
 * closed; its opening character is then an ordinary one.
 */
function scan(text: string, tokens: Token[]): boolean {
  let whole = true;
  for (let at = match(WHITE, text, 0), before = 0; at < text.length; at = match(WHITE, text, before)) {
    const start = at;
    const spaced = start > before;
    const put = (kind: Token['kind'], end: number, content: string): void => {
      tokens.push({ kind, text: content, spaced, start, end });
      before = end;
    };
    const encoded = match(ENCODED_WORD, text, start);
    const atom = encoded > start ? encoded : match(ATOM, text, start);
    if (atom > start) {
      const content = text.slice(start, atom);
      put(encoded > start && !DOT_ATOM.test(content) ? 'word' : 'atom', atom, content);
      continue;
    }
    const opened = whole ? endOfOpened(text, start) : undefined;
    if (opened === 'none') whole = false;
    if (opened === undefined || opened === 'none') {
      const char = String.fromCodePoint(text.codePointAt(start) ?? 0);
      put('special', start + char.length, char);
    } else {
      const content = text.slice(start + 1, opened.end - 1);
      const literal = opened.kind === 'literal';
      put(opened.kind, opened.end, literal ? `[${content.replace(/\s/g, '')}]` : content.replace(/\\([^])/g, '$1'));
    }
  }
  return whole;
}

type Enclosed = 'quoted' | 'literal' | 'comment';
interface OpenEnclosure {
  readonly kind: Enclosed;
  readonly end: number;
}

const OPENINGS: Readonly<Record<string, Enclosed>> = { '"': 'quoted', '[': 'literal', '(': 'comment' };
const CLOSINGS: Readonly<Record<Enclosed, string>> = { quoted: '"', literal: ']', comment: ')' };

/** Finds the end of a quoted string, literal or comment. `none`: it is not closed; undefined: none starts here. */
function endOfOpened(text: string, start: number): OpenEnclosure | 'none' | undefined {
  const kind = OPENINGS[text.charAt(start)];
  if (kind === undefined) return undefined;
  let depth = 1; // comments nest; a counter avoids recursion
  for (let at = start + 1; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '\\') at += 1;
    else if (kind === 'comment' && char === '(') depth += 1;
    else if (char === CLOSINGS[kind] && --depth === 0) return { kind, end: at + 1 };
  }
  return 'none';
}

/** Where a match of the pattern at `at` ends; `at` if it does not match there. */
function match(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}
