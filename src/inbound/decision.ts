import type { When } from '../store/rows/domains.ts';
import { type Fact, holds, type MailFacts } from './conditions.ts';
import type { Match } from './types.ts';

/** What a route does with the mail that it takes. */
export const ACTIONS = {
  post: { about: 'post it to `url` and to the URLs of `also`', takes: true, loses: false },
  tag: { about: 'add `tags` to it, and continue with the next matching route', takes: false, loses: false },
  hold: { about: 'keep it until it is released with /inbound/replay', takes: true, loses: false },
  discard: { about: 'accept it without posting it', takes: true, loses: true },
  reject: { about: 'refuse it with 550 5.7.1', takes: true, loses: true },
} as const satisfies Readonly<
  Record<string, { readonly about: string; readonly takes: boolean; readonly loses: boolean }>
>;

export type Action = keyof typeof ACTIONS;

export const ACTION_NAMES = ['post', 'tag', 'hold', 'discard', 'reject'] as const satisfies readonly Action[];

/** The action of this name; a route without one, or with one of a later version, posts. */
export const toAction = (name: string | undefined): Action => ACTION_NAMES.find((action) => action === name) ?? 'post';

/** A route that matches a mailbox. */
export interface Choice {
  readonly match: Match;
  /** Null: it takes every message. */
  readonly when: When | null;
  readonly action: Action;
  readonly tags: readonly string[];
}

/**
 * What becomes of a message for one recipient. matched: the route that takes it · rejected: by a route · none: no route
 * takes it · open: this fact must be looked for first.
 */
export type Decision =
  | { readonly kind: 'matched'; readonly match: Match }
  | { readonly kind: 'rejected'; readonly match: Match }
  | { readonly kind: 'none' }
  | { readonly kind: 'open'; readonly fact: Fact };

/**
 * Goes through the routes in their order: the first whose conditions hold takes the message. What is unknown does not
 * hold, so no verdict that is unknown rejects or discards. But who makes a header too large to read does not get past a
 * route that would stop the message: it is rejected, or held instead of discarded (decision 0050).
 */
export function decide(choices: readonly Choice[], facts: MailFacts): Decision {
  const tags: string[] = [];
  for (const choice of choices) {
    const truth = holds(choice.when, facts);
    if (truth === false || truth === 'unknown') continue;
    if (truth === 'unreadable') {
      if (choice.action === 'post' || choice.action === 'tag') continue;
      return choice.action === 'reject'
        ? { kind: 'rejected', match: choice.match }
        : { kind: 'matched', match: taken({ ...choice, action: 'hold' }, [...tags, ...choice.tags]) };
    }
    if (truth !== true) return { kind: 'open', fact: truth };
    if (choice.action === 'reject') return { kind: 'rejected', match: choice.match };
    tags.push(...choice.tags);
    if (choice.action !== 'tag') return { kind: 'matched', match: taken(choice, tags) };
  }
  return { kind: 'none' };
}

function taken({ match, action }: Choice, tags: readonly string[]): Match {
  const tagged = tags.length > 0 ? { ...match, tags: [...new Set(tags)] } : match;
  if (action === 'hold') return { ...tagged, fate: 'held' };
  return action === 'discard' ? { ...tagged, fate: 'dropped' } : tagged;
}

/** The routes that may still take a message from this sender; those after one that takes everything are left out. */
export function openChoices(choices: readonly Choice[], facts: MailFacts): readonly Choice[] {
  const open: Choice[] = [];
  for (const choice of choices) {
    const truth = holds(choice.when, facts);
    if (truth === false) continue;
    open.push(truth === true ? { ...choice, when: null } : choice);
    if (truth === true && ACTIONS[choice.action].takes) break;
  }
  return open;
}

/** Whether a message may be refused once its content is known: then it must not have other recipients. */
export function mayRefuse(choices: readonly Choice[]): boolean {
  const last = choices.at(-1);
  const isCovered = last !== undefined && last.when === null && ACTIONS[last.action].takes;
  return !isCovered || choices.some(({ action }) => action === 'reject');
}
