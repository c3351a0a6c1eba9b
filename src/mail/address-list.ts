import { hasUnsafeCharacter, toAsciiDomain } from './address.ts';
import { decodeWords } from './headers.ts';
import type { Mailbox } from './message.ts';

/**
 * The one reader of address fields (RFC 5322 section 3.4, RFC 6854 for groups in From, RFC 6532 for UTF-8), with the
 * obsolete forms of RFC 5322 section 4.4: routes, white space and comments around dots and at signs, empty members of a
 * list. Everything that has to know who wrote a message or whom it is for asks it, so that nothing here can be told two
 * different things by one field.
 *
 * Encoded words are decoded when the reading is over, and in display names and comments only: what comes out of them is
 * never an address, a comma or a group (RFC 2047 sections 5 and 6.2).
 */

/** A mailbox of an address field. */
export interface ListedMailbox extends Mailbox {
  /**
   * In lower case and as A-labels, or an address literal with its brackets; undefined when it can be no name in the
   * DNS.
   */
  readonly domain: string | undefined;
}

/** What an address field holds. */
interface AddressList {
  /** In their order; the members of groups stand beside the others. */
  readonly mailboxes: readonly ListedMailbox[];
  /** Members in which no address was found, as they were written. */
  readonly unreadable: readonly string[];
  /**
   * Whether the field follows the grammar, so that every reader of RFC 5322 finds these mailboxes and no others. Beyond
   * the grammar goes what software writes every day and nobody reads in two ways: dots anywhere in a local part;
   * brackets in a display name that is not quoted; an at sign there, when it names no other domain than the address
   * does; an encoded word with a comma, a bracket or a dot.
   */
  readonly sound: boolean;
  /**
   * Domains of whatever looks like an address where the field does not follow the grammar; another reader may take any
   * of them.
   */
  readonly otherDomains: readonly string[];
}

interface Token {
  readonly kind: 'atom' | 'word' | 'quoted' | 'literal' | 'comment' | 'special';
  /** Without quotes, brackets of comments and escapes. */
  readonly text: string;
  /** Whether white space stands in front. */
  readonly spaced: boolean;
  readonly start: number;
  readonly end: number;
}

interface Reading {
  readonly text: string;
  readonly mailboxes: ListedMailbox[];
  readonly unreadable: string[];
  readonly otherDomains: Set<string>;
  sound: boolean;
}

const WHITE = /[ \t\r\n]*/y;
// atext of RFC 5322 section 3.2.3, and everything beyond ASCII (RFC 6532 section 3.2).
const ATOM = /[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+/uy;
const DOT_ATOM = /^[\w!#$%&'*+/=?^`{|}~.\u0080-\u{10ffff}-]+$/u;
// RFC 2047 section 2. In a name it may hold letters, digits and few others (section 5, rule 3), but senders forget to
// encode commas and brackets. What could be read as an address is left out.
const ENCODED_WORD = /=\?[\w-]+(?:\*[\w-]*)?\?(?:[Bb]\?[\w+/=]*|[Qq]\?[^?\s<>@:;"\\]*)\?=/y;

/** Reads the value of an address field, folds taken out. Takes a time that grows with its length, whatever it holds. */
export function parseAddressList(text: string): AddressList {
  const tokens: Token[] = [];
  const whole = scan(text, tokens);
  const reading: Reading = { text, mailboxes: [], unreadable: [], otherDomains: new Set(), sound: whole };
  readList(tokens, reading);
  const { mailboxes, unreadable, sound, otherDomains } = reading;
  return { mailboxes, unreadable, sound, otherDomains: [...otherDomains] };
}

/**
 * Splits a list into its members, which are addresses; the name of a group is no member, the addresses inside it are.
 */
function readList(tokens: readonly Token[], reading: Reading): void {
  let member: Token[] = [];
  let place: 'list' | 'group' | 'behind a group' = 'list';
  let inAngle = false;
  const end = (): void => {
    if (place === 'behind a group' && member.some(isWord)) reading.sound = false;
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
      if (place !== 'group') place = 'list';
    } else if (token.text === ':') {
      if (place !== 'list' || !isPhrase(member.filter(isWord))) {
        reading.sound = false;
        end();
      }
      member = [];
      place = 'group';
    } else {
      end();
      if (place !== 'group') reading.sound = false;
      place = 'behind a group';
    }
  }
  end();
  if (place === 'group') reading.sound = false;
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

/** An old way to name somebody: `jane@example.com (Jane)`. */
function lastComment(member: readonly Token[]): Token[] {
  return member.filter(({ kind }) => kind === 'comment').slice(-1);
}

function add(mailbox: ListedMailbox, reading: Reading): void {
  reading.mailboxes.push(mailbox);
  if (mailbox.domain === undefined) reading.sound = false;
}

/** Out of a member that is none: the first address in it is shown, all domains in it are kept. */
function recover(words: readonly Token[], reading: Reading, phrase: readonly Token[] = []): void {
  reading.sound = false;
  const found = [...addressesIn(words), ...addressesIn(phrase)];
  const [shown] = found;
  if (shown) reading.mailboxes.push({ ...shown, name: isPhrase(phrase) ? toName(phrase) : null });
  const [start, end] = [(phrase[0] ?? words[0])?.start, words.at(-1)?.end];
  if (!shown && start !== undefined) reading.unreadable.push(reading.text.slice(start, end));
  for (const { domain } of found) if (domain !== undefined) reading.otherDomains.add(domain);
}

/** Every `local@domain` among the words, whatever stands around it. */
function addressesIn(words: readonly Token[]): ListedMailbox[] {
  const found: ListedMailbox[] = [];
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
    // A name that goes on in a way that none does is no name: half of it would be somebody else's.
    const mailbox = isDot(words[to + 1]) ? undefined : toMailbox(words.slice(from, to + 1), null);
    if (mailbox) found.push(mailbox);
  }
  return found;
}

function domainsIn(words: readonly Token[]): (string | undefined)[] {
  return addressesIn(words).map(({ domain }) => domain);
}

/** Without the route in front of an address (`@a,@b:c@d`), which says nothing any more (RFC 5322 section 4.4). */
function withoutRoute(words: readonly Token[]): readonly Token[] {
  if (!isSpecial(words[0], '@')) return words;
  const colon = words.findIndex((token) => isSpecial(token, ':'));
  const route = words.slice(0, Math.max(colon, 0));
  const isRoute = route.every(({ kind, text }) => kind === 'atom' || kind === 'literal' || '@.,'.includes(text));
  return isRoute ? words.slice(colon + 1) : words;
}

/** An addr-spec; undefined when the words are none. */
function toMailbox(words: readonly Token[], name: string | null): ListedMailbox | undefined {
  const at = words.findIndex((token) => isSpecial(token, '@'));
  const local = at === -1 ? undefined : toLocalPart(words.slice(0, at));
  const domain = words.slice(at + 1);
  const [first] = domain;
  if (local === undefined || first === undefined) return undefined;
  if (first.kind === 'literal') {
    if (domain.length > 1) return undefined;
    return { address: `${local}@${first.text}`, name, domain: first.text.toLowerCase() };
  }
  const alternating = domain.every((token, place) => (place % 2 === 0 ? token.kind === 'atom' : isDot(token)));
  if (!alternating || domain.length % 2 === 0) return undefined;
  const written = domain.map(({ text }) => text).join('');
  return { address: `${local}@${written}`, name, domain: toAsciiDomain(written) };
}

/** The local part in the shortest form that means the same: quoted only where it has to be. */
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

/** What a display name or a comment says, encoded words decoded. */
function toName(words: readonly Token[]): string | null {
  let text = '';
  for (const word of words) text += `${word.spaced && text !== '' ? ' ' : ''}${word.text}`;
  const name = decodeWords(text).trim();
  return name === '' ? null : name;
}

/** A display name as RFC 5322 has it, dots included (section 4.1). */
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
 * Splits a value into its tokens (RFC 5322 section 3.2); false when something has no end, whose opening then stands for
 * itself.
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

/**
 * Where the quoted string, literal or comment ends that begins here; none: it has no end; undefined: nothing of that
 * kind begins.
 */
function endOfOpened(text: string, start: number): OpenEnclosure | 'none' | undefined {
  const kind = OPENINGS[text.charAt(start)];
  if (kind === undefined) return undefined;
  let depth = 1; // comments nest; they are counted, not called
  for (let at = start + 1; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '\\') at += 1;
    else if (kind === 'comment' && char === '(') depth += 1;
    else if (char === CLOSINGS[kind] && --depth === 0) return { kind, end: at + 1 };
  }
  return 'none';
}

/** Where the pattern ends that is looked for at one place; the place itself when it is not there. */
function match(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}
