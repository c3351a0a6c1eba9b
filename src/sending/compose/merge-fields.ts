import { type Steps, toEnd } from '../../base/turns.ts';
import { FaultyTemplate, TooLong } from '../../mail/faults.ts';
import { createBudget } from '../../mail/merge/handlebars/run.ts';
import { createFiller, type Filler } from '../../mail/merge/language.ts';
import type { MergeVar, Outgoing } from '../../mail/outgoing.ts';
import type { ComposeJob } from '../types.ts';

/** What fills the texts of one message. */
export interface Filling {
  /** Whether merge tags are replaced. */
  readonly merges: boolean;
  /** Whether a text may have some. */
  hasTags(text: string): boolean;
  fill(text: string, type: 'text/html' | 'text/plain'): string;
  /** The same for what stands in a header: a value cannot end the line. */
  fillLine(text: string): string;
}

/** A subject or a name is far shorter; servers cut a header at some ten thousand octets. */
const LONGEST_LINE = 20_000;
const BREAKS = /[\p{Cc}\p{Zl}\p{Zp}]+/gu;

/**
 * What everybody's tags become, overlaid by the recipient's own; nothing is replaced when the account gave neither.
 * `most`: characters of all texts together, for a document may have a thousand.
 */
export function createFilling(job: ComposeJob, unsubUrl: string, most: number): Filling {
  const list = variablesOf(job);
  if (!list) return { merges: false, hasTags: () => false, fill: (text) => text, fillLine: oneLine };
  const { mergeLanguage, subject } = job.outgoing;
  const options = { now: new Date(job.at), onUnsub: () => unsubUrl };
  const lineOf = (filler: Filler, text: string) => oneLine(toEnd(filler.filling(text, 'text', LONGEST_LINE)));
  const given = createFiller(mergeLanguage, list, options);
  const named = list.some(({ name }) => name.toLowerCase() === 'subject');
  let left = most;
  const filler = named
    ? given
    : createFiller(mergeLanguage, [...list, { name: 'subject', content: lineOf(given, subject) }], options);
  return {
    merges: true,
    hasTags: filler.hasTags,
    fill(text, type) {
      const filled = toEnd(filler.filling(text, type === 'text/html' ? 'html' : 'text', left));
      left -= filled.length;
      return filled;
    },
    fillLine: (text) => lineOf(filler, text),
  };
}

/**
 * Steps that a subject may cost here: some milliseconds, on the thread that takes mail. Composing has more, on a thread
 * of its own.
 */
const SUBJECT_STEPS = 10_000;

/**
 * The subject as it is written to one recipient. What cannot be merged stays as the account gave it: composing says
 * what is wrong with it.
 */
export function* fillingSubject(outgoing: Outgoing, recipient: string, now: Date): Steps<string> {
  const { subject, mergeLanguage } = outgoing;
  const list = /\*\||\{\{/.test(subject) ? variablesOf({ outgoing, recipient }) : undefined;
  if (!list) return subject;
  const filler = createFiller(mergeLanguage, list, { now }, createBudget(SUBJECT_STEPS));
  try {
    return oneLine(yield* filler.filling(subject, 'text', LONGEST_LINE));
  } catch (error) {
    if (error instanceof TooLong || error instanceof FaultyTemplate) return subject;
    throw error;
  }
}

function variablesOf({
  outgoing: { globalVars, rcptVars },
  recipient,
}: Pick<ComposeJob, 'outgoing' | 'recipient'>): readonly MergeVar[] | undefined {
  if (globalVars === null && Object.keys(rcptVars).length === 0) return undefined;
  const own = Object.hasOwn(rcptVars, recipient.toLowerCase()) ? rcptVars[recipient.toLowerCase()] : undefined;
  return [{ name: 'email', content: recipient }, ...(globalVars ?? []), ...(own ?? [])];
}

/** Text for one line of a header. */
export function oneLine(text: string): string {
  return text.replace(BREAKS, ' ').trim();
}
