import { namesOf } from '../base/tables.ts';
import type { RouteState } from '../queue/states.ts';
import type { When } from '../store/rows/domains.ts';
import { evaluateConditions, type FactName, type MailFacts } from './conditions.ts';
import type { Match } from './types.ts';

/** The properties of an action, for the router, the API and the commands. */
interface ActionFacts {
  /** For the reference. */
  readonly about: string;
  /** Its effect on one message, for testing a route. */
  readonly does: string;
  /** No later route gets the mail. */
  readonly takes: boolean;
  /** The mail cannot be recovered afterwards. */
  readonly loses: boolean;
  /** It is of no use without a URL. */
  readonly needsUrl: boolean;
  /** The state in which its mail ends at once; null: it is posted, passed to further routes, or not accepted. */
  readonly fate: RouteState | null;
}

/** The actions of routes. */
export const ACTIONS = {
  post: {
    about: 'post it to `url` and to the URLs of `also`',
    does: 'Accepts the mail.',
    takes: true,
    loses: false,
    needsUrl: true,
    fate: null,
  },
  tag: {
    about: 'add `tags` to it, and continue with the next matching route',
    does: 'Adds its tags; the next route is tried.',
    takes: false,
    loses: false,
    needsUrl: false,
    fate: null,
  },
  hold: {
    about: 'keep it until it is released with /inbound/replay',
    does: 'Accepts the mail and holds it.',
    takes: true,
    loses: false,
    needsUrl: true,
    fate: 'held',
  },
  discard: {
    about: 'accept it without posting it',
    does: 'Accepts the mail and discards it.',
    takes: true,
    loses: true,
    needsUrl: false,
    fate: 'dropped',
  },
  reject: {
    about: 'refuse it with 550 5.7.1',
    does: 'Refuses the mail.',
    takes: true,
    loses: true,
    needsUrl: false,
    fate: null,
  },
} as const satisfies Readonly<Record<string, ActionFacts>>;

export type RouteAction = keyof typeof ACTIONS;

export const ACTION_NAMES = namesOf(ACTIONS);

/** The action of this name; a route without one, or with one of a later version, posts. */
export const toAction = (name: string | undefined): RouteAction =>
  ACTION_NAMES.find((action) => action === name) ?? 'post';

/** A route that matches a mailbox. */
export interface RouteChoice {
  readonly match: Match;
  /** Null: it matches every message. */
  readonly when: When | null;
  readonly action: RouteAction;
  readonly tags: readonly string[];
}

/**
 * The decision about a message for one recipient. matched: this route gets it · rejected: by a route · none: no route
 * matches · open: this fact must be obtained first.
 */
export type RouteDecision =
  | { readonly kind: 'matched'; readonly match: Match }
  | { readonly kind: 'rejected'; readonly match: Match }
  | { readonly kind: 'none' }
  | { readonly kind: 'open'; readonly fact: FactName };

/**
 * Tries the routes in order: the first whose conditions are met gets the message. An unknown result meets no condition,
 * so it never rejects or discards. But a header that is too large to read does not get a message past a route that
 * would stop it: the message is rejected, or held instead of discarded (decision 0050).
 */
export function decide(choices: readonly RouteChoice[], facts: MailFacts): RouteDecision {
  const tags: string[] = [];
  for (const choice of choices) {
    const truth = evaluateConditions(choice.when, facts);
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
    if (ACTIONS[choice.action].takes) return { kind: 'matched', match: taken(choice, tags) };
  }
  return { kind: 'none' };
}

function taken({ match, action }: RouteChoice, tags: readonly string[]): Match {
  const tagged = tags.length > 0 ? { ...match, tags: [...new Set(tags)] } : match;
  const { fate } = ACTIONS[action];
  return fate === null ? tagged : { ...tagged, fate };
}

/** The routes that may still match a message from this sender, up to the first that matches everything. */
export function openChoices(choices: readonly RouteChoice[], facts: MailFacts): readonly RouteChoice[] {
  const open: RouteChoice[] = [];
  for (const choice of choices) {
    const truth = evaluateConditions(choice.when, facts);
    if (truth === false) continue;
    open.push(truth === true ? { ...choice, when: null } : choice);
    if (truth === true && ACTIONS[choice.action].takes) break;
  }
  return open;
}

/** Whether a message may be refused once its content is known: then it must not have other recipients. */
export function mayRefuse(choices: readonly RouteChoice[]): boolean {
  const last = choices.at(-1);
  const isCovered = last !== undefined && last.when === null && ACTIONS[last.action].takes;
  return !isCovered || choices.some(({ action }) => action === 'reject');
}
