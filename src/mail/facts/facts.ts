import { truncate } from '../../base/characters.ts';
import { type ParsedMessage, startOfText } from '../message.ts';
import type { HiddenReason } from './box.ts';
import { type InvisibleRun, invisibleIn } from './invisible.ts';
import { type LinkFact, linkFact } from './link-hosts.ts';
import { readPage } from './page.ts';

/**
 * The text of a message that a person sees, and the rest of it: evidence for programs that show mail to people or
 * models, no verdict. The same message always has the same facts. In the form of the payload.
 */
export interface MessageFacts {
  /** The displayed text of the HTML; of the text part if there is no HTML. */
  readonly visible_text: string;
  /** Text of the HTML that is not displayed. */
  readonly hidden: readonly { readonly why: HiddenReason; readonly text: string }[];
  readonly invisible: readonly (InvisibleRun & { readonly where: TextLocation })[];
  readonly links: readonly LinkFact[];
  /** How many there are of each, also of those that are left out above. */
  readonly counts: { readonly hidden: number; readonly invisible: number; readonly links: number };
  /** Whether something was not examined, or is left out. */
  readonly cut: boolean;
}

type TextLocation = 'subject' | 'from_name' | 'visible_text';

/** Characters of HTML or text that are examined, and of the displayed text. */
const MAX_READ = 1024 * 1024;
const MAX_VISIBLE = 256 * 1024;
/** Characters of one hidden text, and of all. */
const LONGEST_HIDDEN = 10_000;
const MAX_HIDDEN_TEXT = 64 * 1024;
/** Entries of each list; links that are examined. */
const MAX_LISTED = 100;
const MAX_LINKS = 5000;

/** The facts of a message; `fromName` is the name of its author. Linear in the examined text. */
export function factsOfMessage(
  { subject, text, html }: Pick<ParsedMessage, 'subject' | 'text' | 'html'>,
  fromName: string | null,
): MessageFacts {
  const { start, whole } = startOfText(html ?? text ?? '', MAX_READ);
  const page =
    html === undefined
      ? {
          text: truncate(start, MAX_VISIBLE),
          hidden: [],
          links: [],
          base: undefined,
          isCut: start.length > MAX_VISIBLE,
        }
      : readPage(start, { mostText: MAX_VISIBLE, mostHidden: LONGEST_HIDDEN });
  const visible = page.text.toWellFormed();
  const invisible = [
    ...runsIn('subject', subject),
    ...runsIn('from_name', fromName ?? ''),
    ...runsIn('visible_text', visible),
  ];
  const links = page.links.slice(0, MAX_LINKS).flatMap((link) => linkFact(link, page.base) ?? []);
  const hidden = withinBudget(page.hidden);
  const isLong = [page.hidden, invisible, links].some((list) => list.length > MAX_LISTED);
  return {
    visible_text: visible,
    hidden,
    invisible: invisible.slice(0, MAX_LISTED),
    links: links.slice(0, MAX_LISTED),
    counts: { hidden: page.hidden.length, invisible: invisible.length, links: links.length },
    cut: !whole || page.isCut || isLong || hidden.length < page.hidden.length || page.links.length > MAX_LINKS,
  };
}

function runsIn(where: TextLocation, text: string): MessageFacts['invisible'] {
  return [...invisibleIn(text)].map(({ kind, ...run }) => ({ kind, where, ...run }));
}

/** The first of the hidden texts, as far as there is room for them. */
function withinBudget(all: MessageFacts['hidden']): MessageFacts['hidden'] {
  let left = MAX_HIDDEN_TEXT;
  return all.slice(0, MAX_LISTED).flatMap(({ why, text }) => {
    left -= text.length;
    return left < 0 ? [] : [{ why, text: text.toWellFormed() }];
  });
}
