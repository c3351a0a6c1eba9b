import { FaultyTemplate } from '../faulty-template.ts';

/** Work that a message may cost, for reading its templates and running them: some half a second at the worst. */
const MOST_STEPS = 1_000_000;

/** Work that is left. All texts of a message share one, so that many small ones cannot cost what one large one may not. */
export interface Budget {
  /** Throws `FaultyTemplate` when more is asked for than is left. */
  spend(steps: number): void;
  /** How much was. */
  spent(): number;
}

export function createBudget(steps = MOST_STEPS): Budget {
  let spent = 0;
  return Object.freeze({
    spend(asked: number) {
      spent += asked;
      if (spent > steps) throw new FaultyTemplate(`it takes more than ${steps} steps`);
    },
    spent: () => spent,
  });
}
