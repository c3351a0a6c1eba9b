import type { Steps } from '../../base/steps.ts';
import { MAX_RENDERED } from '../too-long.ts';
import { FaultyTemplate } from './faulty-template.ts';
import { type Budget, createBudget } from './handlebars/budget.ts';
import { runningTemplate } from './handlebars/run.ts';
import { readingTemplate } from './handlebars/template.ts';
import { toVariables } from './handlebars/variables.ts';
import { type MergeOptions, merging, toVars } from './merge.ts';
import { type MergeValue, toText } from './value.ts';

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
  return Object.freeze({
    hasTags: (text: string) => text.includes('*|'),
    filling: (text: string, _form: TextForm, maxLength = MAX_RENDERED) =>
      merging(text, vars, { ...options, maxLength }),
  });
}

function handlebars(list: List, options: MergeOptions, budget: Budget): Filler {
  const variables = toVariables(list);
  return Object.freeze({
    hasTags: (text: string) => text.includes('{{'),
    *filling(text: string, form: TextForm, maxLength = MAX_RENDERED) {
      const body = yield* readingTemplate(text, budget);
      return yield* runningTemplate(body, { ...options, variables, escapes: form === 'html', maxLength, budget });
    },
  });
}

/** What is wrong with texts as templates of the language, with the name of the first that is; undefined when nothing is. */
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
