import { readTokens } from '../html-edit.ts';

/** A piece of an HTML page. */
interface HtmlPiece {
  readonly start: number;
  readonly end: number;
  readonly isQuote: boolean;
  /** Whether it is an attribution, with which a quote begins. */
  readonly isAttribution?: boolean;
}

/** The role of an element. attribution: it stands above a quote · all: it and everything after it is quoted. */
type Kind = 'quote' | 'attribution' | 'all' | undefined;

/** Only these attributes matter, and no value that matters is longer. */
const TELLING = new Set(['class', 'id', 'type', 'style']);
const LONGEST_VALUE = 300;
/** Attributions in an element of their own: Gmail, Thunderbird. */
const ATTRIBUTIONS = /(?:^|\s)(?:gmail_attr|moz-cite-prefix)(?:\s|$)/;
const QUOTES = /(?:^|\s)(?:gmail_quote|protonmail_quote)(?:\s|$)/;
/** Above the message that is answered, in Outlook on the web; and the answered message in its later editions. */
const BELOW = new Set(['divRplyFwdMsg', 'mail-editor-reference-message-container']);
/** The line above the header of a quoted message in Outlook for the desktop, without spaces. */
const OUTLOOK_LINE = /border:none;border-top:solid#?\w{3,12}1\.0pt;padding:3\.0pt0/i;

/** A text that every page with a quote contains. */
const MAY_QUOTE = /blockquote|gmail_attr|moz-cite-prefix|reply-intro|divRplyFwdMsg|mail-editor-ref|border-top:/i;

/**
 * Divides a page into quotes and other pieces, by its elements: `blockquote type="cite"` of most programs, the class
 * names of Gmail, the elements that Outlook writes above the original message. Replies between two quotes belong to
 * neither; an element around both does not count.
 */
export function quotesOf(html: string): readonly HtmlPiece[] {
  if (!MAY_QUOTE.test(html)) return [{ start: 0, end: html.length, isQuote: false }];
  const pieces: HtmlPiece[] = [];
  let from = 0;
  const cut = (at: number, isQuote: boolean, isAttribution = false) => {
    if (at > from) pieces.push({ start: from, end: at, isQuote, isAttribution });
    from = at;
  };

  /** The quote that is open: its name, and how many elements of that name are open in it. */
  let open: { readonly name: string; readonly isAttribution: boolean; depth: number } | undefined;
  let isAll = false;
  let name = '';
  let nameStart = 0;
  let attribute = '';
  let value = '';
  let attributes = new Map<string, string>();

  const opened = () => {
    if (isAll) return;
    if (open) {
      if (open.name === name) open.depth++;
      return;
    }
    const kind = kindOf(name, attributes);
    if (kind === undefined) return;
    cut(nameStart - 1, false);
    if (kind === 'all') isAll = true;
    else open = { name, isAttribution: kind === 'attribution', depth: 1 };
  };
  readTokens(html, {
    onopentagname(start, end) {
      name = html.slice(start, Math.min(end, start + 20)).toLowerCase();
      nameStart = start;
      attributes = new Map();
    },
    onattribname(start, end) {
      attribute = html.slice(start, Math.min(end, start + 20)).toLowerCase();
      value = '';
    },
    onattribdata(start, end) {
      if (TELLING.has(attribute) && value.length < LONGEST_VALUE)
        value += html.slice(start, Math.min(end, start + LONGEST_VALUE));
    },
    onattribend() {
      if (TELLING.has(attribute) && !attributes.has(attribute)) attributes.set(attribute, value);
    },
    onopentagend: opened,
    onselfclosingtag: opened,
    onclosetag(start, end) {
      if (!open || html.slice(start, Math.min(end, start + 20)).toLowerCase() !== open.name || --open.depth > 0) return;
      const { isAttribution } = open;
      open = undefined;
      const close = html.indexOf('>', end);
      cut(close === -1 ? html.length : close + 1, true, isAttribution);
    },
  });
  cut(html.length, isAll || open !== undefined);
  return pieces;
}

function kindOf(name: string, attributes: ReadonlyMap<string, string>): Kind {
  if (attributes.size === 0) return undefined;
  const id = attributes.get('id') ?? '';
  const names = attributes.get('class') ?? '';
  if (BELOW.has(id) || OUTLOOK_LINE.test((attributes.get('style') ?? '').replaceAll(/\s/g, ''))) return 'all';
  if (ATTRIBUTIONS.test(names) || id === 'reply-intro') return 'attribution';
  if (name !== 'blockquote') return undefined;
  return attributes.get('type')?.toLowerCase() === 'cite' || QUOTES.test(names) ? 'quote' : undefined;
}
