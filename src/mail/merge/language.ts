import type { SlicedWork } from '../../base/concurrency.ts';
import { frozen } from '../../base/frozen.ts';
import { MAX_RENDERED, TemplateError } from '../template-errors.ts';
import { readingTemplate } from './handlebars/parse.ts';
import { createStepBudget, runningTemplate, type StepBudget, toVariables } from './handlebars/run.ts';
import { type MergeOptions, merging, toVars } from './merge.ts';
import { type MergeValue, textOfValue } from './values.ts';

/** mailchimp: `*|NAME|*`; handlebars: `{{name}}`. */
export type MergeLanguage = 'mailchimp' | 'handlebars';

/** The form of a text: in HTML, handlebars escapes the values. */
export type TextForm = 'html' | 'text';

/** Replaces the merge tags of one message for one recipient. */
export interface MergeEngine {
  /** Whether a text may contain tags; if not, filling does not change it. */
  hasTags(text: string): boolean;
  /** Throws `RenderedTooLong`, and `TemplateError` if the template is invalid in this language or costs too much. */
  filling(text: string, form: TextForm, maxLength?: number): SlicedWork<string>;
}

type List = Iterable<{ readonly name: string; readonly content: MergeValue }>;

/** Creates a filler with these variables; of the same names the last counts. `budget` limits the work of handlebars. */
export function createMergeEngine(
  language: MergeLanguage | undefined,
  variables: List,
  options: Omit<MergeOptions, 'maxLength'>,
  budget = createStepBudget(),
): MergeEngine {
  return language === 'handlebars' ? handlebars(variables, options, budget) : mailchimp(variables, options);
}

function mailchimp(variables: List, options: MergeOptions): MergeEngine {
  const vars = toVars([...variables].map(({ name, content }) => ({ name, content: textOfValue(content) })));
  return frozen({
    hasTags: (text) => text.includes('*|'),
    filling: (text, _form, maxLength = MAX_RENDERED) => merging(text, vars, { ...options, maxLength }),
  });
}

function handlebars(list: List, options: MergeOptions, budget: StepBudget): MergeEngine {
  const variables = toVariables(list);
  return frozen({
    hasTags: (text) => text.includes('{{'),
    *filling(text, form, maxLength = MAX_RENDERED) {
      const body = yield* readingTemplate(text, budget);
      return yield* runningTemplate(body, { ...options, variables, escapes: form === 'html', maxLength, budget });
    },
  });
}

/** Checks texts as templates of the language. Returns the first fault with the name of its text, if there is one. */
export function* findingFault(
  language: MergeLanguage,
  texts: Iterable<readonly [name: string, text: string | null]>,
): SlicedWork<string | undefined> {
  if (language !== 'handlebars') return undefined; // in mailchimp, anything that is not a tag is text
  const budget = createStepBudget();
  for (const [name, text] of texts) {
    try {
      yield* readingTemplate(text ?? '', budget);
    } catch (error) {
      if (error instanceof TemplateError) return `${name}: ${error.message}`;
      throw error;
    }
  }
  return undefined;
}

// Names and limits of templates. regions.ts and merge/ fill them in.

/**
 * Maximum bytes of the code and of the text part of a template. MongoDB limits documents to 16 MiB, and a row holds a
 * template twice: as a draft and as published.
 */
export const MAX_CODE_BYTES = 5_000_000;
export const MAX_TEXT_BYTES = 2_000_000;

/** Longest name, in characters; a slug is never longer than its name after normalization. */
export const MAX_TEMPLATE_NAME = 255;

// Controls, invisible characters, those that reverse the text direction, private use, unassigned, and the two line
// separators of Unicode: none can be typed reliably, and some break lines in a log.
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/u;
const NOT_IN_SLUG = /[^\p{L}\p{M}\p{N}]+/gu;

/**
 * The slug of a name: lower case, every run of characters other than letters and digits replaced by one hyphen.
 * `slugOf(slugOf(x)) === slugOf(x)`, so a name can never equal another template's slug without having the same slug
 * itself.
 */
export function slugOf(name: string): string {
  // Twice, because lower-casing may leave characters that normalization would combine.
  const folded = name.normalize('NFKC').toLowerCase().normalize('NFKC').toLowerCase();
  return folded.replace(NOT_IN_SLUG, '-').replace(/^-/, '').replace(/-$/, '');
}

/** Why a template cannot have this name; undefined if it can. */
export function nameFault(name: string): string | undefined {
  if (UNSAFE.test(name))
    return 'A template name must not contain line breaks, control characters or invisible characters';
  if (slugOf(name) === '') return 'A template name must contain at least one letter or digit';
  return undefined;
}
