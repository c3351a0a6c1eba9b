import type { Task } from './task.ts';

/** Finds rows that still carry events long after they should, and publishes those. */
export function sweepOutboxTask(deps: { readonly sweep: (ending?: AbortSignal) => Promise<number> }): Task {
  return {
    name: 'sweep-outbox',
    schedule: '* * * * *',
    async run(ending) {
      const rows = await deps.sweep(ending);
      return rows > 0 ? { rows } : undefined;
    },
  };
}
