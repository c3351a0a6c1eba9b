import {
  type BreakerState,
  type Learned,
  learn as learnReally,
  type Occasion,
} from '../../../src/queue/schedule/breaker.ts';
import type { Lesson } from '../../../src/queue/settle.ts';

export * from '../../../src/queue/schedule/breaker.ts';

/** Learns nothing from failures: no endpoint is ever thought to be away. */
export function learn(before: BreakerState, lesson: Lesson, occasion: Occasion): Learned {
  return lesson.kind === 'passed' ? learnReally(before, lesson, occasion) : { state: before, change: null };
}
