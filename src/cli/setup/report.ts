import { frozen } from '../../base/frozen.ts';
import { printable } from '../../base/log.ts';
import type { Finding } from '../../examination/finding.ts';
import type { Invocation, Io } from '../command.ts';
import { findingLines } from '../doctor.ts';

/** done: changed now · already: no change needed · planned: --dry-run would change it · skipped: not possible. */
type StepState = 'done' | 'already' | 'planned' | 'skipped';

const MARKS: Readonly<Record<StepState, string>> = {
  done: 'done   ',
  already: 'already',
  planned: 'planned',
  skipped: '-      ',
};

/** Prints findings and steps: text immediately, JSON at the end. */
export type Report = ReturnType<typeof createReport>;

export function createReport(call: Pick<Invocation, 'format' | 'print'>, { out }: Pick<Io, 'out'>) {
  const records: object[] = [];
  const say = (text: string) => {
    if (call.format === 'text') out(text);
  };
  return frozen({
    say,
    finding(found: Finding): void {
      records.push(found);
      say(findingLines(found));
    },
    /** `secret`: shown in the line, and a field of its own in JSON. */
    step(state: StepState, step: string, seen: string, secret?: { readonly key: string }): void {
      records.push({ step, state, seen, ...secret });
      say(`${MARKS[state]}  ${step}: ${printable(seen)}${secret === undefined ? '' : `: ${secret.key}`}\n`);
    },
    /** Ends with the records to publish and one sentence. */
    end(next: string, rest: readonly object[] = []): void {
      say(`\nnext: ${next}\n`);
      if (call.format !== 'text') call.print([...records, ...rest, { next }], () => '');
    },
  });
}
