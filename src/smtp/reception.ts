import type { Log } from '../base/log.ts';
import type { Acceptance, Arrival, Routed } from '../inbound/types.ts';
import { createDataScanner } from './data.ts';
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

const MORE: Progress = {};
const NOTHING: Buffer = Buffer.alloc(0);

/**
 * Brings a message from the client onto the spool. Whatever goes wrong, the bytes are still read to their end, because
 * the client hears nothing before that; they just go nowhere.
 */
export function openReception(
  settings: { readonly maxMessageBytes: number; readonly maxReceived: number },
  deps: { readonly acceptance: Acceptance; readonly log: Log },
  arrival: Arrival,
  routed: readonly Routed[],
): Reception {
  const { messageId, body } = deps.acceptance.begin();
  const scanner = createDataScanner();
  const received = createReceivedCount();
  let size = 0;
  let refused: Reply | undefined;

  async function refuse(reply: Reply, fault?: unknown): Promise<Reply> {
    if (fault !== undefined) deps.log.error('smtp.fault', { message: messageId, fault });
    refused ??= reply;
    await body.abort();
    return refused;
  }

  /** Answers nothing when there is nothing to wait for, as with all but large messages. */
  function keep(pieces: readonly Buffer[]): Promise<unknown> | undefined {
    for (const piece of pieces) size += piece.length;
    if (refused) return undefined;
    if (size > settings.maxMessageBytes) return refuse(REFUSALS.tooBig);
    const bytes = pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
    if (bytes === undefined || bytes.length === 0) return undefined;
    received.see(bytes);
    return body.write(bytes)?.catch((fault: unknown) => refuse(REFUSALS.fault, fault));
  }

  async function finish(): Promise<Reply> {
    if (refused) return refused;
    if (received.count() > settings.maxReceived) return refuse(REFUSALS.mailLoop);
    try {
      const accepted = await deps.acceptance.accept(messageId, arrival, routed, await body.finish());
      if (accepted.outcome === 'accepted') return queued(accepted.messageId);
      return await refuse(accepted.outcome === 'full' ? REFUSALS.full : REFUSALS.fault);
    } catch (fault) {
      return refuse(REFUSALS.fault, fault);
    }
  }

  return Object.freeze({
    async take(chunk: Buffer): Promise<Progress> {
      const { pieces, state, rest } = scanner.scan(chunk);
      if (state === 'bare') {
        await body.abort();
        return { ended: { reply: REFUSALS.bareLineEnding, size }, rest: NOTHING };
      }
      const kept = keep(pieces);
      if (kept) await kept;
      if (state === 'more') return MORE;
      const reply = await finish();
      return { ended: reply.code === 250 ? { reply, messageId, size } : { reply, size }, rest };
    },
    abort: () => body.abort(),
  });
}
