import type { ComposeJob } from '../../outbound/types.ts';
import type { ComposeReply, Rendered, RenderJob } from '../types.ts';

/** What is to be done with a message, and who waits for it. */
export type RenderWork =
  | { readonly kind: 'post'; readonly job: RenderJob; resolve(rendered: Rendered): void }
  | { readonly kind: 'mail'; readonly job: ComposeJob; resolve(reply: ComposeReply): void };

/** A message that waits to be rendered or composed, or is being. */
export interface RenderTask {
  /** Also names its form file. */
  readonly number: number;
  readonly work: RenderWork;
  /** Set: deliver raw, for this reason. */
  parseError: string | null;
  /** Threads that ended while it was inside. */
  breaches: number;
  reject(error: Error): void;
}

/** What waits for a thread, and what waits to have a thread for itself. */
export interface RenderQueue {
  add(task: RenderTask): void;
  /** Back from a thread that ended: to the front, or, when suspect or unlucky for the second time, to be tried alone. */
  again(task: RenderTask, suspect: boolean): void;
  /** Next, and without parsing, so that it needs no thread for itself. */
  raw(task: RenderTask, reason: string): void;
  take(limit: number): RenderTask[];
  takeAlone(): RenderTask | undefined;
  waiting(): number;
  aloneWaiting(): boolean;
  /** Empties it. */
  drain(): RenderTask[];
}

export function createRenderQueue(): RenderQueue {
  let waiting: RenderTask[] = [];
  let back: RenderTask[] = [];
  let alone: RenderTask[] = [];
  return Object.freeze({
    add(task: RenderTask) {
      waiting.push(task);
    },
    again(task: RenderTask, suspect: boolean) {
      task.breaches += 1;
      if (suspect || task.breaches > 1) alone.push(task);
      else back.push(task);
    },
    raw(task: RenderTask, reason: string) {
      task.parseError = reason;
      back.unshift(task);
    },
    take(limit: number) {
      if (limit <= 0) return [];
      const taken = back.splice(0, limit);
      return taken.concat(waiting.splice(0, limit - taken.length));
    },
    takeAlone: () => alone.shift(),
    waiting: () => back.length + waiting.length,
    aloneWaiting: () => alone.length > 0,
    drain() {
      const all = [...alone, ...back, ...waiting];
      waiting = [];
      back = [];
      alone = [];
      return all;
    },
  });
}
