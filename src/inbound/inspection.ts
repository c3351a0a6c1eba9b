import { type Bytes, sizeOf, toTransfer } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { PooledTask } from '../base/worker-pool.ts';
import type { ThreadTask } from '../base/worker-tasks.ts';
import { authorOf } from '../mail/addresses/author.ts';
import type { Envelope, Verdicts } from '../mail/addresses/envelope.ts';
import { automatedOf, knownSender } from '../mail/automated.ts';
import { subjectOf } from '../mail/message.ts';
import { isOverlong, readFields, readHeaderStart } from '../mail/mime/header-section.ts';
import { senderAuthOf } from '../mail/sender-auth.ts';
import type { ContentFacts, MailFacts } from './conditions.ts';
import type { CandidateMessage } from './types.ts';
import type { Authenticator } from './verdicts/authenticate.ts';

// Examines a message before acceptance, for the conditions of routes. This runs on the render threads, because a
// hostile message must not block the main thread.

/** The input of the task on the thread. */
export interface InspectionInput {
  readonly envelope: Envelope;
  readonly body: Bytes;
  /** Whether to check SPF, DKIM, DMARC and ARC, which takes DNS lookups. */
  readonly wantsVerdicts: boolean;
}

/** The findings about a message. */
export interface Inspection {
  /** Null if it could not be read. */
  readonly content: ContentFacts | null;
  /** Null if they were not requested, or failed. */
  readonly verdicts: Verdicts | null;
  readonly auth: MailFacts['auth'] | null;
}

/** Parses messages for conditions. */
export type Inspector = ReturnType<typeof createInspector>;

const NOTHING: Inspection = { content: null, verdicts: null, auth: null };

export function createInspector({
  run,
  log,
}: {
  readonly run: PooledTask<InspectionInput, Inspection>;
  readonly log: Log;
}) {
  return frozen({
    /** Throws only if the daemon stops. */
    async inspect(
      { id, envelope, body }: Pick<CandidateMessage, 'id' | 'envelope' | 'body'>,
      wantsVerdicts: boolean,
    ): Promise<Inspection> {
      try {
        // At the front of the queue: a client is waiting.
        return await run(() => {
          const { copy, transfer } = toTransfer(body);
          return { value: { envelope, body: copy, wantsVerdicts }, transfer };
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
export function createInspectionTask({
  authenticator,
}: {
  readonly authenticator: Authenticator;
}): ThreadTask<InspectionInput, Inspection> {
  return async ({ envelope, body, wantsVerdicts }, guarded) => {
    const start = await readHeaderStart(body);
    const { mailFrom } = envelope;
    const fields = await guarded(async () => readFields(start));
    const author = authorOf(fields, mailFrom);
    const from = author.mailbox?.address ?? null;
    const content = {
      from,
      subject: subjectOf(fields),
      fields,
      size: sizeOf(body),
      automated: automatedOf({ fields, author: author.mailbox, mailFrom: knownSender(envelope) }).is,
      ...(isOverlong(start) && { cut: true as const }),
    };
    if (!wantsVerdicts) return { value: { content, verdicts: null, auth: null }, transfer: [] };
    const verdicts = await authenticator.authenticate(body, envelope);
    return { value: { content, verdicts, auth: senderAuthOf(verdicts, author) }, transfer: [] };
  };
}
