import { AGREE_MS, type Clock } from '../base/clock.ts';
import type { EventRecorder } from '../events/record.ts';
import type { Numbers } from '../events/types.ts';
import type { Task } from './task.ts';

/** An event that is younger is most likely still at work with whoever recorded it. Taking it up twice would do no harm. */
const GRACE_MS = 30_000;

/** Finishes what a crash or an absent store cut off: events that are recorded and not in all numbers, tags that are deleted and not off all messages. */
export function applyEventsTask(deps: {
  recorder: Pick<EventRecorder, 'finish'>;
  numbers: Pick<Numbers, 'finishRemovals'>;
  clock: Clock;
}): Task {
  return {
    name: 'apply-events',
    schedule: '* * * * *',
    async run(ending) {
      const now = deps.clock.now();
      const events = await deps.recorder.finish(new Date(now - GRACE_MS), ending, new Date(now + AGREE_MS));
      const tags = await deps.numbers.finishRemovals(ending);
      return events + tags > 0 ? { events, tags } : undefined;
    },
  };
}
