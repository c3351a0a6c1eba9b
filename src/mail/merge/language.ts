import { frozen } from '../../base/frozen.ts';
import type { Steps } from '../../base/turns.ts';
import { FaultyTemplate, MAX_RENDERED } from '../faults.ts';
import { readingTemplate } from './handlebars/parse.ts';
import { type Budget, createBudget, runningTemplate, toVariables } from './handlebars/run.ts';
import { type MergeOptions, merging, toVars } from './merge.ts';
import { type MergeValue, toText } from './values.ts';

/** mailchimp: `*|NAME|*` · handlebars: `{{name}}`. */
export type MergeLanguage = 'mailchimp' | 'handlebars';

/** What a text is: in HTML, handlebars escapes what it puts in. */
export type TextForm = 'html' | 'text';

/** Replaces the merge tags of one message for one recipient. */
export interface Filler {
  /** Whether a text may have tags; if not, filling it changes nothing. */
  hasTags(text: string): boolean;
  /** Throws `TooLong`, and `FaultyTemplate` for what is no template in this language or costs too much. */
  filling(text: string, form: TextForm, maxLength?: number): Steps<string>;
}

type List = Iterable<{ readonly name: string; readonly content: MergeValue }>;

/** A filler with these variables: of two with one name, the last. `budget`: what handlebars may cost. */
export function createFiller(
  language: MergeLanguage | undefined,
  variables: List,
  options: Omit<MergeOptions, 'maxLength'>,
  budget = createBudget(),
): Filler {
  return language === 'handlebars' ? handlebars(variables, options, budget) : mailchimp(variables, options);
}

function mailchimp(variables: List, options: MergeOptions): Filler {
  const vars = toVars([...variables].map(({ name, content }) => ({ name, content: toText(content) })));
  return frozen({
    hasTags: (text) => text.includes('*|'),
    filling: (text, _form, maxLength = MAX_RENDERED) => merging(text, vars, { ...options, maxLength }),
  });
}

function handlebars(list: List, options: MergeOptions, budget: Budget): Filler {
  const variables = toVariables(list);
  return frozen({
    hasTags: (text) => text.includes('{{'),
    *filling(text, form, maxLength = MAX_RENDERED) {
      const body = yield* readingTemplate(text, budget);
      return yield* runningTemplate(body, { ...options, variables, escapes: form === 'html', maxLength, budget });
    },
  });
}

/**
 * What is wrong with texts as templates of the language, with the name of the first that is; undefined when nothing is.
 */
export function* findingFault(
  language: MergeLanguage,
  texts: Iterable<readonly [name: string, text: string | null]>,
): Steps<string | undefined> {
  if (language !== 'handlebars') return undefined; // in the other one, what is no tag is text
  const budget = createBudget();
  for (const [name, text] of texts) {
    try {
      yield* readingTemplate(text ?? '', budget);
    } catch (error) {
      if (error instanceof FaultyTemplate) return `${name}: ${error.message}`;
      throw error;
    }
  }
  return undefined;
}

// Names and limits of templates. What a template holds is filled in by regions.ts and merge/.

/**
 * Bytes of the code and of the text part of a template. MongoDB takes documents of 16 MiB, and a template is in its row
 * twice: as a draft and as published.
 */
export const MAX_CODE_BYTES = 5_000_000;
export const MAX_TEXT_BYTES = 2_000_000;

/** Longest name, in characters; a slug is never longer than what its name becomes under normalization. */
export const MAX_TEMPLATE_NAME = 255;

// Controls, what is invisible or turns the order of text around, private use, unassigned, and the two line ends of
// Unicode: none can be typed twice alike, and some break lines in a log.
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/u;
const NOT_IN_SLUG = /[^\p{L}\p{M}\p{N}]+/gu;

/**
 * The code name that belongs to a name: lower case, every run of other characters than letters and digits one hyphen.
 * `slugOf(slugOf(x)) === slugOf(x)`, so a name can never be another template's slug without having the same slug
 * itself.
 */
export function slugOf(name: string): string {
  // Twice, because lower-casing may leave what the normal form would put together.
  const folded = name.normalize('NFKC').toLowerCase().normalize('NFKC').toLowerCase();
  return folded.replace(NOT_IN_SLUG, '-').replace(/^-/, '').replace(/-$/, '');
}

/** Why a template cannot have this name; undefined when it can. */
export function nameFault(name: string): string | undefined {
  if (UNSAFE.test(name)) return 'A template name has no line ends, control characters and invisible characters';
  if (slugOf(name) === '') return 'A template name has at least one letter or digit';
  return undefined;
}
