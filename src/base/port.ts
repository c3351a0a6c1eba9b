import type { MessagePort, Transferable } from 'node:worker_threads';
import { errorText } from './errors.ts';
import { frozen } from './frozen.ts';
import { callByName, createThreadCalls, type ThreadCall, type ThreadReply } from './worker.ts';

// Calls functions of another thread by name, over a port. worker.ts does this for threads that it started; this module
// is for the other direction. Calls and replies are batched, because each message wakes a thread.

/** The calling end. */
export type PortCaller = ReturnType<typeof callOver>;

type Kind = 'done' | 'failed';

export function callOver(port: MessagePort) {
  const calls = createThreadCalls<Kind>('turn', (batch, transfer) => port.postMessage(batch, transfer));
  port.on('message', (replies: readonly ThreadReply<Kind>[]) => calls.settle(replies));
  return frozen({
    /** Calls a function; rejects with the text of the error it throws. */
    // biome-ignore lint/suspicious/noExplicitAny: values lose their types between threads; the caller knows them
    ask: (name: string, args: readonly unknown[], transfer?: readonly Transferable[]): Promise<any> =>
      new Promise((resolve, reject) => {
        const settle = ({ kind, value }: { readonly kind: Kind | 'died'; readonly value: unknown }) =>
          kind === 'done' ? resolve(value) : reject(new Error(`${name}: ${value}`));
        calls.call(name, args, settle, transfer);
      }),
    /** A call without a reply. It waits some milliseconds to share a batch with others. */
    tell: (name: string, args: readonly unknown[]): void => calls.tell(name, args, true),
    close() {
      port.close();
      calls.giveUp('the port is closed');
    },
  });
}

/** The answering end, with the functions of `table`. Errors of calls without a reply go to `fault`. */
export function serveOver(port: MessagePort, table: object, fault: (error: unknown) => void): { close(): void } {
  let replies: ThreadReply<Kind>[] = [];

  function reply(one: ThreadReply<Kind>): void {
    replies.push(one);
    if (replies.length > 1) return;
    // Replies of one turn of the event loop share a message.
    setImmediate(() => {
      const batch = replies;
      replies = [];
      port.postMessage(batch);
    });
  }

  function answer(call: ThreadCall): void {
    const [n] = call;
    const failed = (error: unknown) => {
      if (n === 0) fault(error);
      else reply([n, 'failed', errorText(error)]);
    };
    try {
      const found = callByName(table, call);
      if (found instanceof Promise) found.then((value) => reply([n, 'done', value])).catch(failed);
      else if (n !== 0) reply([n, 'done', found]);
    } catch (error) {
      failed(error);
    }
  }

  port.on('message', (calls: readonly ThreadCall[]) => {
    for (const call of calls) answer(call);
  });
  return { close: () => port.close() };
}
