import type { Counter, Metrics } from '../base/metrics.ts';

/** What is counted of calls. */
export interface CallMeters {
  call(operation: string, status: number, ms: number): void;
  /** Somebody asked for an operation that there is not. */
  unknown(): void;
}

/** `operations`: the paths of all there are; no other is ever a value of a label. */
export function createCallMeters(operations: readonly string[], metrics: Metrics): CallMeters {
  const groupOf = (operation: string) => operation.split('/')[1] ?? '';
  const seconds = new Map(
    [...new Set(operations.map(groupOf))].map((group) => [
      group,
      metrics.histogram('postern_api_call_seconds', { group }),
    ]),
  );
  const calls = new Map<string, Map<number, Counter>>(operations.map((operation) => [operation, new Map()]));
  const unknown = metrics.counter('postern_api_calls_total', { operation: 'unknown', status: '404' });
  return Object.freeze({
    call(operation: string, status: number, ms: number) {
      const statuses = calls.get(operation);
      if (!statuses) return;
      const counter =
        statuses.get(status) ?? metrics.counter('postern_api_calls_total', { operation, status: String(status) });
      statuses.set(status, counter);
      counter.add();
      seconds.get(groupOf(operation))?.observe(ms / 1000);
    },
    unknown: () => unknown.add(),
  });
}
