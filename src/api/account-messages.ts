import { readFile } from 'node:fs/promises';
import type { Releasing } from '../outbound/releasing.ts';
import type { Scheduling, WishOutcome } from '../outbound/scheduling.ts';
import type { Submission, SubmitOutcome, Submitting } from '../outbound/types.ts';
import type { Message, QueuedDelivery, Spool } from '../spool/types.ts';
import type { ScheduledRow } from '../store/scheduled.ts';
import type { AccountLimits } from './account-limits.ts';

export interface MessageDeps {
  readonly limits: Pick<AccountLimits, 'check'>;
  readonly submitting: Submitting;
  readonly scheduling: Pick<Scheduling, 'cancel' | 'move'>;
  readonly releasing: Releasing;
  readonly spool: Pick<Spool, 'delivery' | 'message'>;
}

/** What this host's spool has of a message. */
export interface Kept {
  readonly delivery: QueuedDelivery;
  readonly message: Message;
  readonly bytes: Buffer;
}

/** Mail that one account sends. A row that is handed over must have been found in the account's store. */
export interface AccountMessages {
  submit(submission: Omit<Submission, 'account'>): Promise<SubmitOutcome>;
  /** What a message was made of, while this host's spool has it; undefined when it is gone, or larger than `maxBytes`. */
  kept(delivery: string, maxBytes: number): Promise<Kept | undefined>;
  cancel(row: ScheduledRow): Promise<WishOutcome>;
  move(row: ScheduledRow, at: Date): Promise<WishOutcome>;
  /** Lets no mail of a subaccount leave that was paused. */
  hold(subaccount: string): void;
  /** Lets mail of a subaccount leave that this host held back. */
  release(subaccount: string): Promise<void>;
}

/** Binds them to an account. */
export function bindMessages(
  { limits, submitting, scheduling, releasing, spool }: MessageDeps,
  account: string,
): AccountMessages {
  return {
    async submit(submission) {
      await limits.check(account, submission.sendAt === null ? undefined : 'scheduled');
      return submitting.submit({ ...submission, account });
    },
    async kept(id, maxBytes) {
      const delivery = await spool.delivery(id);
      if (delivery?.account !== account) return undefined;
      const found = await spool.message(delivery.messageId);
      if (!found || sizeOf(found.body) > maxBytes) return undefined;
      const bytes = found.body.kind === 'blob' ? await readBlob(found.body.path) : Buffer.from(found.body.bytes);
      return bytes && { delivery, message: found.message, bytes };
    },
    cancel: (row) => scheduling.cancel(row),
    move: (row, at) => scheduling.move(row, at),
    hold: (subaccount) => releasing.hold(account, subaccount),
    async release(subaccount) {
      await releasing.release(account, subaccount);
    },
  };
}

function sizeOf(
  body: { readonly kind: 'inline'; readonly bytes: Uint8Array } | { readonly kind: 'blob'; readonly size: number },
): number {
  return body.kind === 'blob' ? body.size : body.bytes.byteLength;
}

/** Undefined when it was forgotten in this moment. */
async function readBlob(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
