import type { Clock } from '../base/clock.ts';
import type { Budget } from './types.ts';

/**
 * What one piece of work may spend on the DNS: so many questions, and so many milliseconds from now for all of them.
 * A question that is answered from the cache counts too: what is refused must not depend on who asked before.
 */
export function createBudget(questions: number, ms: number, clock: Clock): Budget {
  const end = clock.monotonic() + ms;
  let asked = 0;
  return Object.freeze({
    take: () => asked < questions && ++asked > 0,
    left: () => Math.max(0, end - clock.monotonic()),
  });
}

/**
 * A part of a budget, so that one piece of the work cannot spend what another one needs: a sender who makes SPF expensive
 * must not get rid of the DMARC of the name in From.
 */
export function createShare(budget: Budget, questions: number, ms: number, clock: Clock): Budget {
  const own = createBudget(questions, ms, clock);
  return Object.freeze({
    take: () => own.take() && budget.take(),
    left: () => Math.min(own.left(), budget.left()),
  });
}
