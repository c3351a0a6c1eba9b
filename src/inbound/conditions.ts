import { foldCase } from '../mail/addresses/address.ts';
import { allValues, type HeaderField } from '../mail/mime/headers.ts';
import type { Scan } from '../mail/scan.ts';
import type { SenderAuth } from '../mail/sender-auth.ts';
import type { When } from '../store/rows/domains.ts';
import { matchesAny } from './patterns.ts';

export const DMARC_RESULTS = ['pass', 'fail', 'none', 'unknown'] as const;
type DmarcResult = (typeof DMARC_RESULTS)[number];

/** The facts about a message so far; undefined: not obtained yet. */
export interface MailFacts {
  readonly sender?: string | undefined;
  /** Whether the brake on loops marked it for this recipient. */
  readonly loop?: true | undefined;
  /** null: it could not be read. */
  readonly content?: ContentFacts | null | undefined;
  /** null: there are no verdicts. */
  readonly auth?: Pick<SenderAuth, 'authenticated' | 'dmarc'> | null | undefined;
  /** null: it was not scanned. */
  readonly scan?: Pick<Scan, 'spam' | 'virus'> | null | undefined;
}

/** The facts in the message itself. */
export interface ContentFacts {
  /** Null if there is no author. */
  readonly from: string | null;
  readonly subject: string;
  readonly fields: readonly HeaderField[];
  readonly size: number;
  /** Whether its header or its envelope sender says that a program wrote or distributed it (mail/automated.ts). */
  readonly automated: boolean;
  /** The header is too large to read: only its beginning is here, and there are no verdicts. */
  readonly cut?: true;
}

/** The facts that must be obtained. */
export type FactName = Exclude<keyof MailFacts, 'loop'>;

/**
 * Whether a condition is met. unknown: its fact has no result · unreadable: the header is too large to read · a fact:
 * it must be obtained first.
 */
export type ConditionResult = true | false | 'unknown' | 'unreadable' | FactName;

/** A condition of the route, by its name in the API, and its result. */
interface NamedResult {
  readonly name: string;
  readonly truth: ConditionResult;
}

/** The result of each condition, for people. */
export function conditionResults(when: When, facts: MailFacts): readonly NamedResult[] {
  return ENTRIES.flatMap(([name, { check }]) => {
    const truth = check(when, facts);
    return truth === undefined ? [] : [{ name, truth }];
  });
}

/**
 * Whether all conditions are met. The first of these that occurs is the result: false, a fact to obtain, unknown,
 * unreadable.
 */
export function evaluateConditions(when: When | null, facts: MailFacts): ConditionResult {
  if (when === null) return true;
  const truths = conditionResults(when, facts).map(({ truth }) => truth);
  if (truths.includes(false)) return false;
  const fact = truths.find((truth) => truth !== true && truth !== 'unknown' && truth !== 'unreadable');
  return fact ?? (['unknown', 'unreadable'] as const).find((truth) => truths.includes(truth)) ?? true;
}

interface Condition {
  /** The condition in words, for the API. */
  readonly about: string;
  /** Undefined: the condition is not given. */
  readonly check: (when: When, facts: MailFacts) => ConditionResult | undefined;
}

/**
 * Every condition of `When`. Its values are in the schema (api/operations/route-rules.ts), and its field in the form of
 * the console (console/web/screens/routes.ts).
 */
export const CONDITIONS: Readonly<Record<keyof When, Condition>> = {
  sender: {
    about: 'MAIL FROM matches; `<>` matches an empty one',
    check: ({ sender: globs }, { sender }) => globs && (sender === undefined ? 'sender' : isFrom(globs, sender)),
  },
  from: {
    about: 'the address in From matches',
    check: ({ from: globs }, facts) => globs && inHeader(facts, ({ from }) => matches(globs, from ?? '')),
  },
  subject: {
    about: 'the subject matches',
    check: ({ subject: globs }, facts) => globs && inHeader(facts, ({ subject }) => matches(globs, subject)),
  },
  header: {
    about: 'each of these fields exists with a matching value; false: the field does not exist',
    check: ({ header }, facts) => header && inHeader(facts, ({ fields }) => header.every((one) => has(fields, one))),
  },
  size: {
    about: 'the size of the message',
    check: ({ size }, facts) => size && inContent(facts, (content) => isWithin(size, content.size)),
  },
  automated: {
    about: '`automated.is` has this value',
    check: ({ automated: is }, facts) => (is === undefined ? undefined : isAutomated(is, facts)),
  },
  authenticated: {
    about: '`sender_auth.authenticated` has this value',
    check: ({ authenticated: is }, { auth }) => (is === undefined ? undefined : isBelieved(is, auth)),
  },
  dmarc: {
    about: 'the result of DMARC is one of these',
    check: ({ dmarc }, { auth, content }) =>
      dmarc && (auth === undefined ? 'auth' : content?.cut ? isSuspected(dmarc) : isOneOf(dmarc, toDmarc(auth))),
  },
  spam: {
    about: 'the spam result of the scanners is one of these',
    check: ({ spam }, { scan }) => spam && (scan === undefined ? 'scan' : isOneOf(spam, scan?.spam ?? 'unknown')),
  },
  virus: {
    about: 'the virus result of the scanners is one of these',
    check: ({ virus }, { scan }) => virus && (scan === undefined ? 'scan' : isOneOf(virus, scan?.virus ?? 'unknown')),
  },
};

const ENTRIES = Object.entries(CONDITIONS);

function inContent({ content }: MailFacts, check: (content: ContentFacts) => boolean): ConditionResult {
  if (content === undefined) return 'content';
  return content === null ? 'unknown' : check(content);
}

const inHeader = (facts: MailFacts, check: (content: ContentFacts) => boolean): ConditionResult =>
  facts.content?.cut ? 'unreadable' : inContent(facts, check);

// A hostile message must not be expensive to compare with hostile globs.
/** Characters of a text that are compared. */
const COMPARED = 300;
/** Fields of one name that are compared. */
const MAX_FIELDS = 100;

const matches = (globs: readonly string[], text: string): boolean =>
  matchesAny(globs, foldCase(text.slice(0, COMPARED)));

const isFrom = (globs: readonly string[], sender: string): boolean => matches(globs, sender === '' ? '<>' : sender);

type FieldCondition = NonNullable<When['header']>[number];

function has(fields: ContentFacts['fields'], { name, is }: FieldCondition): boolean {
  const values = allValues(fields, name.toLowerCase()).slice(0, MAX_FIELDS);
  return is.length === 0 ? values.length === 0 : values.some((value) => matches(is, value));
}

const isWithin = ({ over = -1, under = Number.POSITIVE_INFINITY }: NonNullable<When['size']>, size: number): boolean =>
  size > over && size < under;

/** Mail that the brake marked is automated, whatever its header says. */
const isAutomated = (wanted: boolean, facts: MailFacts): ConditionResult =>
  facts.loop ? wanted : inHeader(facts, ({ automated }) => automated === wanted);

/** Unknown while DNS does not answer. */
const isUndecided = (auth: NonNullable<MailFacts['auth']>): boolean => auth.dmarc.result === 'temperror';

function isBelieved(wanted: boolean, auth: MailFacts['auth']): ConditionResult {
  if (auth === undefined) return 'auth';
  if (auth === null || (!auth.authenticated && isUndecided(auth))) return 'unknown';
  return auth.authenticated === wanted;
}

function toDmarc(auth: NonNullable<MailFacts['auth']> | null): DmarcResult {
  if (auth === null || isUndecided(auth)) return 'unknown';
  const { result } = auth.dmarc;
  return result === 'pass' || result === 'fail' ? result : 'none';
}

/** A header that is too large to read counts as a failure of DMARC, and as unknown. */
const isSuspected = (wanted: readonly DmarcResult[]): boolean => wanted.includes('fail') || wanted.includes('unknown');

/** Only a condition that names `unknown` matches an unknown value. */
function isOneOf<T extends string>(wanted: readonly T[], is: T): ConditionResult {
  if (wanted.includes(is)) return true;
  return is === 'unknown' ? 'unknown' : false;
}

/** Whether it matches unknown results. Such a route must not lose mail. */
export function matchesUnknown({ dmarc, spam, virus }: When): boolean {
  return [dmarc, spam, virus].some((wanted) => wanted?.some((one) => one === 'unknown'));
}
