import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { DnsBudget } from './types.ts';

/**
 * Creates a DNS budget: at most `questions` queries, all within `ms` milliseconds from now. Queries answered from the
 * cache count too, so that the result does not depend on earlier lookups.
 */
export function createDnsBudget(questions: number, ms: number, clock: Clock): DnsBudget {
  const end = clock.monotonic() + ms;
  let asked = 0;
  return frozen({
    take: () => asked < questions && ++asked > 0,
    left: () => Math.max(0, end - clock.monotonic()),
  });
}
