import { runToEnd, type SlicedWork } from '../../base/concurrency.ts';
import { createStepBudget } from '../../mail/merge/handlebars/run.ts';
import { createMergeEngine, type MergeEngine } from '../../mail/merge/language.ts';
import type { MergeVar, Outgoing } from '../../mail/outgoing.ts';
import { RenderedTooLong, TemplateError } from '../../mail/template-errors.ts';
import type { ComposeJob } from '../types.ts';

/** Fills the texts of one message. */
interface Filling {
  /** Whether merge tags are replaced. */
  readonly merges: boolean;
  /** Whether a text may contain merge tags. */
  hasTags(text: string): boolean;
  fill(text: string, type: 'text/html' | 'text/plain'): string;
  /** `fill` for header values: the result is a single line. */
  fillLine(text: string): string;
}

/** Subjects and names are far shorter; servers limit headers to some ten thousand octets. */
const LONGEST_LINE = 20_000;
const BREAKS = /[\p{Cc}\p{Zl}\p{Zp}]+/gu;

/**
 * Creates the filler from the global variables, overridden by the recipient's; nothing is replaced if the account gave
 * neither. `most`: characters of all texts together, because a document may have a thousand.
 */
export function createFilling(job: ComposeJob, unsubUrl: string, most: number): Filling {
  const list = variablesOf(job);
  if (!list) return { merges: false, hasTags: () => false, fill: (text) => text, fillLine: oneLine };
  const { mergeLanguage, subject } = job.outgoing;
  const options = { now: new Date(job.at), onUnsub: () => unsubUrl };
  const lineOf = (engine: MergeEngine, text: string) => oneLine(runToEnd(engine.filling(text, 'text', LONGEST_LINE)));
  const given = createMergeEngine(mergeLanguage, list, options);
  const named = list.some(({ name }) => name.toLowerCase() === 'subject');
  let left = most;
  const engine = named
    ? given
    : createMergeEngine(mergeLanguage, [...list, { name: 'subject', content: lineOf(given, subject) }], options);
  return {
    merges: true,
    hasTags: engine.hasTags,
    fill(text, type) {
      const filled = runToEnd(engine.filling(text, type === 'text/html' ? 'html' : 'text', left));
      left -= filled.length;
      return filled;
    },
    fillLine: (text) => lineOf(engine, text),
  };
}

/** Step limit for a subject: some milliseconds, on the thread that accepts mail. Composing has a thread of its own. */
const SUBJECT_STEPS = 10_000;

/** The merged subject for one recipient. If merging fails, it stays as submitted; composing reports the error. */
export function* fillingSubject(outgoing: Outgoing, recipient: string, now: Date): SlicedWork<string> {
  const { subject, mergeLanguage } = outgoing;
  const list = /\*\||\{\{/.test(subject) ? variablesOf({ outgoing, recipient }) : undefined;
  if (!list) return subject;
  const engine = createMergeEngine(mergeLanguage, list, { now }, createStepBudget(SUBJECT_STEPS));
  try {
    return oneLine(yield* engine.filling(subject, 'text', LONGEST_LINE));
  } catch (error) {
    if (error instanceof RenderedTooLong || error instanceof TemplateError) return subject;
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

/** Puts text on one line, for a header. */
export function oneLine(text: string): string {
  return text.replace(BREAKS, ' ').trim();
}
