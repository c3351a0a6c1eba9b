import { fold } from '../mail/address.ts';
import { allValues, type HeaderField } from '../mail/headers.ts';
import type { Scan } from '../mail/scan.ts';
import type { SenderAuth } from '../mail/trust.ts';
import type { When } from '../store/rows/domains.ts';
import { matchesAny } from './patterns.ts';

export const DMARC_RESULTS = ['pass', 'fail', 'none', 'unknown'] as const;
export type DmarcResult = (typeof DMARC_RESULTS)[number];

/** What is known of a message so far; undefined: nobody has looked. */
export interface MailFacts {
  readonly sender?: string | undefined;
  /** null: it could not be read. */
  readonly content?: ContentFacts | null | undefined;
  /** null: the verdicts could not be taken. */
  readonly auth?: Pick<SenderAuth, 'authenticated' | 'dmarc'> | null | undefined;
  /** null: no scanner has looked at it. */
  readonly scan?: Pick<Scan, 'spam' | 'virus'> | null | undefined;
}

/** What the message itself says. */
export interface ContentFacts {
  /** Null if there is no author. */
  readonly from: string | null;
  readonly subject: string;
  readonly fields: readonly HeaderField[];
  readonly size: number;
  /** The header is too large to read: this is its beginning only, and no verdict could be taken. */
  readonly cut?: true;
}

/** The facts that somebody has to look for. */
export type Fact = keyof MailFacts;

/**
 * Whether a condition holds. unknown: somebody has looked, and could not tell · unreadable: nobody can tell, because the
 * sender made the header too large to read · a fact: nobody has looked for it yet.
 */
export type Truth = true | false | 'unknown' | 'unreadable' | Fact;

/** A condition, by its name in the API, and what decides it. */
interface Condition {
  readonly name: keyof When;
  readonly truth: Truth;
}

/** The result of each condition, for people. */
export function conditionsOf(when: When, facts: MailFacts): readonly Condition[] {
  return CHECKS.flatMap(([name, check]) => {
    const truth = check(when, facts);
    return truth === undefined ? [] : [{ name, truth }];
  });
}

/**
 * Whether all conditions hold: what is surely false decides, then what is not looked for yet, then what is unknown, then
 * what is unreadable.
 */
export function holds(when: When | null, facts: MailFacts): Truth {
  if (when === null) return true;
  const truths = conditionsOf(when, facts).map(({ truth }) => truth);
  if (truths.includes(false)) return false;
  const fact = truths.find((truth) => truth !== true && truth !== 'unknown' && truth !== 'unreadable');
  return fact ?? (['unknown', 'unreadable'] as const).find((truth) => truths.includes(truth)) ?? true;
}

/** Undefined: the condition is not given. */
type Check = (when: When, facts: MailFacts) => Truth | undefined;

const CHECKS: readonly (readonly [name: keyof When, check: Check])[] = [
  ['sender', ({ sender: globs }, { sender }) => globs && (sender === undefined ? 'sender' : isFrom(globs, sender))],
  ['from', ({ from: globs }, facts) => globs && inHeader(facts, ({ from }) => matches(globs, from ?? ''))],
  ['subject', ({ subject: globs }, facts) => globs && inHeader(facts, ({ subject }) => matches(globs, subject))],
  ['header', ({ header }, facts) => header && inHeader(facts, ({ fields }) => header.every((one) => has(fields, one)))],
  ['size', ({ size }, facts) => size && inContent(facts, (content) => isWithin(size, content.size))],
  ['authenticated', ({ authenticated: is }, { auth }) => (is === undefined ? undefined : isBelieved(is, auth))],
  [
    'dmarc',
    ({ dmarc }, { auth, content }) =>
      dmarc && (auth === undefined ? 'auth' : content?.cut ? isSuspected(dmarc) : isOneOf(dmarc, toDmarc(auth))),
  ],
  ['spam', ({ spam }, { scan }) => spam && (scan === undefined ? 'scan' : isOneOf(spam, scan?.spam ?? 'unknown'))],
  ['virus', ({ virus }, { scan }) => virus && (scan === undefined ? 'scan' : isOneOf(virus, scan?.virus ?? 'unknown'))],
];

function inContent({ content }: MailFacts, check: (content: ContentFacts) => boolean): Truth {
  if (content === undefined) return 'content';
  return content === null ? 'unknown' : check(content);
}

const inHeader = (facts: MailFacts, check: (content: ContentFacts) => boolean): Truth =>
  facts.content?.cut ? 'unreadable' : inContent(facts, check);

// A hostile message must not be expensive to compare with hostile globs.
/** Characters of a text that are compared. */
const COMPARED = 300;
/** Fields of one name that are compared. */
const MOST_FIELDS = 100;

const matches = (globs: readonly string[], text: string): boolean => matchesAny(globs, fold(text.slice(0, COMPARED)));

const isFrom = (globs: readonly string[], sender: string): boolean => matches(globs, sender === '' ? '<>' : sender);

type FieldCondition = NonNullable<When['header']>[number];

function has(fields: ContentFacts['fields'], { name, is }: FieldCondition): boolean {
  const values = allValues(fields, name.toLowerCase()).slice(0, MOST_FIELDS);
  return is.length === 0 ? values.length === 0 : values.some((value) => matches(is, value));
}

const isWithin = ({ over = -1, under = Number.POSITIVE_INFINITY }: NonNullable<When['size']>, size: number): boolean =>
  size > over && size < under;

/** While DNS does not answer, nobody can tell. */
const isUndecided = (auth: NonNullable<MailFacts['auth']>): boolean => auth.dmarc.result === 'temperror';

function isBelieved(wanted: boolean, auth: MailFacts['auth']): Truth {
  if (auth === undefined) return 'auth';
  if (auth === null || (!auth.authenticated && isUndecided(auth))) return 'unknown';
  return auth.authenticated === wanted;
}

function toDmarc(auth: NonNullable<MailFacts['auth']> | null): DmarcResult {
  if (auth === null || isUndecided(auth)) return 'unknown';
  const { result } = auth.dmarc;
  return result === 'pass' || result === 'fail' ? result : 'none';
}

/** DMARC of a header that is too large to read is what the route fears most: a failure, or unknown. */
const isSuspected = (wanted: readonly DmarcResult[]): boolean => wanted.includes('fail') || wanted.includes('unknown');

/** What is unknown is so on purpose only if it is named. */
function isOneOf<T extends string>(wanted: readonly T[], is: T): Truth {
  if (wanted.includes(is)) return true;
  return is === 'unknown' ? 'unknown' : false;
}

/** Whether it asks for what a verdict does not know. Such a route must not lose mail. */
export function asksForUnknown({ dmarc, spam, virus }: When): boolean {
  return [dmarc, spam, virus].some((wanted) => wanted?.some((one) => one === 'unknown'));
}
