import type { Log } from '../base/log.ts';
import { giveBack } from '../base/memory.ts';
import { type BareNewline, createDataScanner } from './data.ts';
import { createReceivedCount } from './received.ts';
import { queued, REFUSALS, type Reply } from './refusal.ts';

/** How a message ended: with a reply, and with its id and size when it is ours now. */
export interface Received {
  readonly reply: Reply;
  readonly messageId?: string;
  readonly size: number;
}

/** What a chunk brought: nothing yet, or the end and the bytes behind it. */
export type Progress = { readonly ended?: undefined } | { readonly ended: Received; readonly rest: Buffer };

/** One message between 354 and its reply. */
export interface Reception {
  /** Takes the next bytes as they came from the client; wait for the answer before the next. Never throws. */
  take(chunk: Buffer): Promise<Progress>;
  /** The client went away. */
  abort(): Promise<void>;
}

/** Where the bytes of one message go. */
export interface Keeping {
  readonly messageId: string;
  /** Nothing to wait for, or a wait; answers a refusal when no more can be held: the rest of the message is then read and dropped. */
  write(bytes: Buffer): Promise<Reply | undefined> | undefined;
  /** Takes responsibility, and only then answers the id that the client is told. */
  finish(): Promise<{ readonly id: string } | { readonly id?: undefined; readonly refused: Reply }>;
  /** Forgets what was written; may be called again, and after `finish`. */
  abort(): Promise<void>;
}

const MORE: Progress = {};
const NOTHING: Buffer = Buffer.alloc(0);

/**
 * Brings a message from the client to where it is kept. Whatever goes wrong, the bytes are still read to their end, because
 * the client hears nothing before that; they just go nowhere.
 */
export function openReception(
  settings: { readonly maxMessageBytes: number; readonly maxReceived: number; readonly bareNewline: BareNewline },
  deps: { readonly keeping: Keeping; readonly log: Log },
): Reception {
  const { keeping } = deps;
  const { messageId } = keeping;
  const scanner = createDataScanner(settings.bareNewline);
  const received = createReceivedCount();
  let size = 0;
  let refused: Reply | undefined;

  async function refuse(reply: Reply, fault?: unknown): Promise<Reply> {
    if (fault !== undefined) deps.log.error('smtp.fault', { message: messageId, fault });
    refused ??= reply;
    await keeping.abort();
    return refused;
  }

  /** Answers nothing when there is nothing to wait for, as with all but large messages. */
  function keep(pieces: readonly Buffer[]): Promise<unknown> | undefined {
    for (const piece of pieces) size += piece.length;
    if (refused) return void pieces.forEach(giveBack);
    if (size > settings.maxMessageBytes) return refuse(REFUSALS.tooBig);
    const bytes = pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
    if (bytes === undefined || bytes.length === 0) return undefined;
    received.see(bytes);
    return keeping
      .write(bytes)
      ?.then((full) => (full === undefined ? undefined : refuse(full)))
      .catch((fault: unknown) => refuse(REFUSALS.fault, fault));
  }

  async function finish(): Promise<Received> {
    if (refused) return { reply: refused, size };
    if (received.count() > settings.maxReceived) return { reply: await refuse(REFUSALS.mailLoop), size };
    try {
      const kept = await keeping.finish();
      return kept.id === undefined
        ? { reply: await refuse(kept.refused), size }
        : { reply: queued(kept.id), messageId: kept.id, size };
    } catch (fault) {
      return { reply: await refuse(REFUSALS.fault, fault), size };
    }
  }

  return Object.freeze({
    async take(chunk: Buffer): Promise<Progress> {
      const { pieces, state, rest } = scanner.scan(chunk);
      if (state === 'bare') {
        await keeping.abort();
        return { ended: { reply: REFUSALS.bareLineEnding, size }, rest: NOTHING };
      }
      const kept = keep(pieces);
      if (kept) await kept;
      if (state === 'more') return MORE;
      return { ended: await finish(), rest };
    },
    abort: () => keeping.abort(),
  });
}
