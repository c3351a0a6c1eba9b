import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { PooledTask } from '../base/worker-pool.ts';
import type { ThreadTask } from '../base/worker-tasks.ts';
import { authorOf } from '../mail/author.ts';
import { automatedOf, knownSender } from '../mail/automated.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import { isOverlong, type RawSource, readFields, readStart } from '../mail/header-section.ts';
import { subjectOf } from '../mail/message.ts';
import { senderAuthOf } from '../mail/trust.ts';
import type { ContentFacts, MailFacts } from './conditions.ts';
import type { ScannedMessage } from './types.ts';
import type { Authenticator } from './verdicts/authenticate.ts';

// Looks into a message that is not accepted yet, for the conditions of routes. It is done on the threads that render,
// because a hostile message must not hold up the main thread.

/** The input of the task on the thread. */
export interface JudgeInput {
  readonly envelope: Envelope;
  readonly source: RawSource;
  readonly size: number;
  /** Whether SPF, DKIM, DMARC and ARC are asked for, which takes DNS questions. */
  readonly wantsVerdicts: boolean;
}

/** What was found in a message. */
export interface Judged {
  /** Null if it could not be read. */
  readonly content: ContentFacts | null;
  /** Null if they were not asked for, or could not be taken. */
  readonly verdicts: Verdicts | null;
  readonly auth: MailFacts['auth'] | null;
}

/** Looks into messages. */
export type Judging = ReturnType<typeof createJudging>;

const NOTHING: Judged = { content: null, verdicts: null, auth: null };

export function createJudging({ run, log }: { readonly run: PooledTask<JudgeInput, Judged>; readonly log: Log }) {
  return frozen({
    /** Throws only if the daemon stops. */
    async judge(
      { id, envelope, body }: Pick<ScannedMessage, 'id' | 'envelope' | 'body'>,
      wantsVerdicts: boolean,
    ): Promise<Judged> {
      const size = body.kind === 'blob' ? body.size : body.bytes.byteLength;
      try {
        // At the front: a client waits for it.
        return await run(() => {
          if (body.kind === 'blob') {
            return { value: { envelope, source: { path: body.path }, size, wantsVerdicts }, transfer: [] };
          }
          // A copy: the bytes are still needed.
          const bytes = new Uint8Array(body.bytes);
          return { value: { envelope, source: { bytes }, size, wantsVerdicts }, transfer: [bytes.buffer] };
        }, true);
      } catch (error) {
        const reason = 'the conditions of its routes could not be checked';
        log.warn('message.parse_failed', { message: id, reason, error });
        return NOTHING;
      }
    },
  });
}

/** Creates the task of the thread. */
export function createJudgeTask({
  authenticator,
}: {
  readonly authenticator: Authenticator;
}): ThreadTask<JudgeInput, Judged> {
  return async ({ envelope, source, size, wantsVerdicts }, guarded) => {
    const start = await readStart(source);
    const { mailFrom } = envelope;
    const fields = await guarded(async () => readFields(start));
    const author = authorOf(fields, mailFrom);
    const from = author.mailbox?.address ?? null;
    const content = {
      from,
      subject: subjectOf(fields),
      fields,
      size,
      automated: automatedOf({ fields, author: author.mailbox, mailFrom: knownSender(envelope) }).is,
      ...(isOverlong(start) && { cut: true as const }),
    };
    if (!wantsVerdicts) return { value: { content, verdicts: null, auth: null }, transfer: [] };
    const verdicts = await authenticator.authenticate(source, envelope);
    return { value: { content, verdicts, auth: senderAuthOf(verdicts, author) }, transfer: [] };
  };
}
