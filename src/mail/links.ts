import { QuoteType, type TokenizerCallbacks } from 'htmlparser2';
import { formPairs } from '../base/form-pairs.ts';
import { escapeHtml } from '../base/html.ts';
import { createEdits, type Edits, readTokens, valueStart } from './html-edit.ts';
import type { Analytics } from './outgoing.ts';

/** Returns the replacement for a link; undefined leaves it unchanged. */
export type LinkRewrite = (url: string) => string | undefined;

interface HtmlChanges {
  /** Called for each http link of an `a` or `area`, with entities decoded. */
  readonly relink?: LinkRewrite | undefined;
  /** Markup to insert at the end of the body. */
  readonly atEnd?: string | undefined;
}

/** A URL without its query, as reported when a message asks for that (url_strip_qs). */
export function withoutQuery(url: string): string {
  return url.replace(/^([^?#]*)\?[^#]*/, '$1');
}

const LINKED = new Set(['a', 'area']);
/** The attribute that excludes a link from tracking. */
const DISABLED = 'mc:disable-tracking';
const HTTP = /^https?:\/\/[^/?#]/i;
const SINGLE = "'";

/**
 * Replaces links in HTML and inserts markup at its end; all other characters stay. Linear. Throws `RenderedTooLong`.
 */
export function rewriteHtml(html: string, changes: HtmlChanges, maxLength: number): string {
  const output = createEdits(html, maxLength);
  const end = { body: -1, html: -1 };
  if (changes.relink || changes.atEnd) {
    readTokens(html, createReader(html, changes.relink ?? (() => undefined), output, end));
  }
  return output.finish(changes.atEnd ?? '', end.body >= 0 ? end.body : end.html >= 0 ? end.html : html.length);
}

interface Link {
  href: { readonly start: number; readonly end: number; readonly url: string } | undefined;
  disabled: boolean;
}

function createReader(
  html: string,
  relink: LinkRewrite,
  output: Edits,
  end: { body: number; html: number },
): Partial<TokenizerCallbacks> {
  let link: Link | undefined;
  let attribute = '';
  let nameEnd = 0;
  let value: string[] = [];

  const finishTag = () => {
    const href = link?.href;
    if (!href || link?.disabled) return;
    const changed = HTTP.test(href.url) ? relink(href.url) : undefined;
    if (changed !== undefined) output.replace(href.start, href.end, inQuotes(changed, html.charAt(href.start)));
  };
  return {
    onopentagname(start, stop) {
      link =
        stop - start <= 4 && LINKED.has(html.slice(start, stop).toLowerCase())
          ? { href: undefined, disabled: false }
          : undefined;
    },
    onattribname(start, stop) {
      attribute = link ? html.slice(start, stop).toLowerCase() : '';
      nameEnd = stop;
      value = [];
      if (link && attribute === DISABLED) link.disabled = true;
    },
    onattribdata(start, stop) {
      if (attribute === 'href') value.push(html.slice(start, stop));
    },
    onattribentity(point) {
      if (attribute === 'href') value.push(String.fromCodePoint(point));
    },
    onattribend(quote, stop) {
      // Of two attributes with the same name, the first counts.
      if (!link || attribute !== 'href' || link.href || quote === QuoteType.NoValue) return;
      link.href = { start: valueStart(html, nameEnd), end: stop, url: toUrl(value.join('')) };
    },
    onopentagend: finishTag,
    onselfclosingtag: finishTag,
    onclosetag(start, stop) {
      const name = stop - start === 4 ? html.slice(start, stop).toLowerCase() : '';
      if (name === 'body' || name === 'html') end[name] = start - '</'.length;
    },
  };
}

/** As in browsers (URL Standard, 4.4): trimmed, with line breaks and tabs removed. */
function toUrl(value: string): string {
  return value.trim().replace(/[\t\n\r]+/g, '');
}

/** Keeps the original quotes. An unquoted value gets some: `=`, which all our links contain, is not allowed in one. */
function inQuotes(url: string, quote: string): string {
  return quote === SINGLE ? `'${escapeHtml(url)}'` : `"${escapeHtml(url)}"`;
}

// Chinese and Japanese brackets may touch a link without a space.
const IN_TEXT = /https?:\/\/[^\s<>"\u3000-\u303f\uff00-\uff65“”«»]+/gi;
const WORD_BEFORE = /[\p{L}\p{N}_]/u;
const CLOSING = new Map([
  [')', '('],
  [']', '['],
  ['}', '{'],
]);
const PUNCTUATION = new Set(['.', ',', ';', ':', '!', '?', "'", '*', '_', '~', '’', '…', '|']);

/** Replaces links in plain text; every other character stays unchanged. Linear. Throws `RenderedTooLong`. */
export function rewriteText(text: string, relink: LinkRewrite, maxLength: number): string {
  const output = createEdits(text, maxLength);
  for (const { 0: found, index } of text.matchAll(IN_TEXT)) {
    if (index > 0 && WORD_BEFORE.test(text.charAt(index - 1))) continue;
    const url = withoutTail(found);
    const changed = HTTP.test(url) ? relink(url) : undefined;
    if (changed !== undefined) output.replace(index, index + url.length, changed);
  }
  return output.finish('', text.length);
}

/** Removes punctuation at the end, which is the sentence's, and closing brackets that were not opened in the link. */
function withoutTail(found: string): string {
  const open = new Map<string, number>();
  for (const char of found) if (/[()[\]{}]/.test(char)) open.set(char, (open.get(char) ?? 0) + 1);
  let end = found.length;
  for (; end > 0; end--) {
    const last = found.charAt(end - 1);
    const opening = CLOSING.get(last);
    if (opening !== undefined && (open.get(last) ?? 0) > (open.get(opening) ?? 0))
      open.set(last, (open.get(last) ?? 0) - 1);
    else if (!PUNCTUATION.has(last)) break;
  }
  return found.slice(0, end);
}

/** The source that analytics shows for a visitor. */
const SOURCE = 'transactional';
const MEDIUM = 'email';
/** Maximum number of URL parameters to check: each takes time, and real URLs have far fewer. */
const MAX_PARAMETERS = 1000;

/**
 * Adds analytics parameters to links whose host is one of `domains`. Parameters of the link win; its other characters
 * stay unchanged. Undefined leaves the link unchanged.
 */
export function createAnalyticsTagging(
  { domains, campaign }: Analytics,
  sender: string,
): (url: string) => string | undefined {
  const hosts = new Set(domains);
  const wanted = [
    ['utm_source', SOURCE],
    ['utm_medium', MEDIUM],
    ['utm_campaign', campaign ?? sender],
  ].map(([name = '', value = '']) => ({ name, text: `${name}=${encodeURIComponent(value.toWellFormed())}` }));
  return (url) => {
    const parsed = URL.parse(url);
    if (!parsed || !hosts.has(parsed.hostname.replace(/\.$/, ''))) return undefined;
    const said = namesIn(parsed.search);
    const added = wanted
      .filter(({ name }) => !said.has(name))
      .map(({ text }) => text)
      .join('&');
    if (added === '' || said.size >= MAX_PARAMETERS) return undefined;
    const hash = url.indexOf('#');
    const [front, fragment] = hash < 0 ? [url, ''] : [url.slice(0, hash), url.slice(hash)];
    return `${front}${joint(front)}${added}${fragment}`;
  };
}

function joint(front: string): string {
  if (!front.includes('?')) return '?';
  return /[?&]$/.test(front) ? '' : '&';
}

/** The parameter names in a query, in lower case. */
function namesIn(search: string): ReadonlySet<string> {
  const names = new Set<string>();
  for (const [name] of formPairs(search.slice(1))) {
    names.add(name.toLowerCase());
    if (names.size >= MAX_PARAMETERS) break;
  }
  return names;
}
