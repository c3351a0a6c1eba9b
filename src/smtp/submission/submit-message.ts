import { runInSlices } from '../../base/concurrency.ts';
import { frozen } from '../../base/frozen.ts';
import { toOutgoingOptions } from '../../mail/mc-headers.ts';
import { findingFault } from '../../mail/merge/language.ts';
import { type Outgoing, toExtras } from '../../mail/outgoing.ts';
import { conversationOfDraft, toConversation } from '../../mail/replies/sent-names.ts';
import type { RecipientOutcome, Submission } from '../../sending/types.ts';
import { StoreAway } from '../../store/driver/port.ts';
import type { MessageSink } from '../reception.ts';
import { faultyTemplate, REFUSALS, type Reply, unknownThing } from '../replies.ts';
import { dsnOf, type Login, type SessionState } from '../session-state.ts';
import type { SubmissionDeps, SubmissionSettings } from './submission.ts';
import { fillTemplate, parseSubmitted, type SubmittedMessage, toTemplateInput } from './submitted-message.ts';

type Parts = Pick<SubmissionDeps, 'store' | 'submitting' | 'clock' | 'ids' | 'log'> & {
  readonly memory: DataMemory;
  readonly tracking: SubmissionSettings['tracking'];
};
type Made<T> = { readonly made: T } | { readonly made?: undefined; readonly refused: Reply };

/** Keeps a message in memory until it is complete, then submits it. */
export function openSubmissionSink(parts: Parts, login: Login, state: SessionState, address: string): MessageSink {
  const { submitting, log, ids, memory } = parts;
  const messageId = ids.message();
  const buffer = createMessageBuffer(memory);
  const { helo, tls, transaction } = state;
  const recipients = [...(transaction?.recipients.values() ?? [])].map(({ recipient }) => recipient);

  async function submit(): ReturnType<MessageSink['finish']> {
    const read = parseSubmitted(buffer.bytes());
    if (read.refused) return read;
    const { document } = read;
    if (document.options.ignored.length > 0)
      log.info('submission.note', {
        account: login.account,
        client: address,
        ignored: document.options.ignored.join(', '),
      });
    const content = await toContent(document, login, parts);
    if (!content.made) return content;
    const submission = toSubmission(document, content.made, login, parts);
    const copies = document.options.bcc === null ? [] : [document.options.bcc];
    const submitted = await submitting.submit({
      ...submission,
      recipients: [...recipients, ...copies],
      client: { address, helo, tls },
      dsn: transaction && dsnOf(transaction),
    });
    if (submitted.outcome === 'accepted' && submitted.recipients.some(isForeignSender))
      return { refused: REFUSALS.foreignSender };
    if (submitted.outcome === 'accepted') return { id: submitted.recipients[0]?.id ?? messageId };
    if (submitted.outcome === 'unknown-subaccount')
      return { refused: unknownThing('No subaccount exists with the id', document.options.subaccount ?? '') };
    return { refused: submitted.outcome === 'full' ? REFUSALS.full : REFUSALS.fault };
  }

  return {
    messageId,
    write: (bytes) => (buffer.add(bytes) ? undefined : Promise.resolve(REFUSALS.full)),
    async finish() {
      try {
        return await submit();
      } catch (error) {
        // The log reports the outage once, not for every message.
        if (error instanceof StoreAway) return { refused: REFUSALS.fault };
        throw error;
      } finally {
        buffer.release();
      }
    },
    async abort() {
      buffer.release();
    },
  };
}

const isForeignSender = ({ rejectReason }: RecipientOutcome) => rejectReason === 'invalid-sender';

/** The content to send: the document, or the template filled with it. */
type Body = Pick<Outgoing, 'form' | 'template' | 'subject' | 'conversation'> & { readonly bytes: Uint8Array };

async function toContent(
  { sender, fields, bytes, subject, options: { template, mergeLanguage } }: SubmittedMessage,
  { account }: Login,
  { store }: Parts,
): Promise<Made<Body>> {
  if (template === null)
    return { made: { form: 'mime', template: null, subject, bytes, ...toConversation(fields, sender) } };
  const apart = await toTemplateInput(bytes);
  if (!apart) return { refused: REFUSALS.badBody };
  const filling = await fillTemplate(store, account, template, apart.content);
  if (!filling.filled)
    return {
      refused:
        filling.why === 'unknown' ? unknownThing('No such template', `"${template.name}"`) : REFUSALS.templateTooLong,
    };
  const { slug, html, text, subject: usual } = filling.filled;
  const fault =
    mergeLanguage &&
    (await runInSlices(
      findingFault(mergeLanguage, [
        ['html', html],
        ['text', text],
        ['subject', subject === '' ? usual : subject],
      ]),
    ));
  if (fault) return { refused: faultyTemplate(fault) };
  const draft = JSON.stringify({ ...apart.rest, html, text });
  return {
    made: {
      form: 'draft',
      template: slug,
      subject: subject === '' ? (usual ?? '') : subject,
      bytes: Buffer.from(draft),
      ...conversationOfDraft(apart.rest.headers, sender),
    },
  };
}

function toSubmission(
  { sender, fromName, otherAuthors, options }: SubmittedMessage,
  { bytes, ...content }: Body,
  login: Login,
  { clock, tracking }: Parts,
): Omit<Submission, 'recipients' | 'client' | 'dsn'> {
  const { sendAt } = options;
  const shared = toOutgoingOptions(options, tracking);
  const outgoing: Outgoing = {
    ...shared,
    sender,
    fromName,
    ...content,
    ...toExtras(options.extras),
    apiKey: login.key,
    // A document is sent as it is; a filled template gets a text part by default.
    autoText: options.autoText ?? content.form === 'draft',
    // A template has merge tags, even if the message gives no values for them.
    globalVars: shared.globalVars ?? (content.template === null ? null : []),
  };
  return {
    account: login.account,
    outgoing,
    otherAuthors,
    bytes,
    sendAt: sendAt !== null && sendAt.getTime() > clock.now() ? sendAt : null,
  };
}

/** The memory of messages in DATA, across all sessions. */
type DataMemory = ReturnType<typeof createDataMemory>;

export function createDataMemory(maxBytes: number) {
  let taken = 0;
  return frozen({
    isFull: (): boolean => taken >= maxBytes,
    /** Reserves bytes; false if fewer are left. */
    take(bytes: number): boolean {
      if (taken + bytes > maxBytes) return false;
      taken += bytes;
      return true;
    },
    give(bytes: number) {
      taken -= bytes;
    },
  });
}

const FIRST_BYTES = 16_384;

/** A growing buffer: a message that arrives in a million chunks takes no more memory than one in a single chunk. */
function createMessageBuffer(memory: DataMemory) {
  let block: Buffer = Buffer.alloc(0);
  let length = 0;

  function grow(atLeast: number): boolean {
    const size = Math.max(atLeast, block.length * 2, FIRST_BYTES);
    if (!memory.take(size - block.length)) return false;
    const larger = Buffer.allocUnsafeSlow(size);
    block.copy(larger, 0, 0, length);
    block = larger;
    return true;
  }

  return frozen({
    /** False if there is no room for the bytes. */
    add(bytes: Buffer): boolean {
      if (length + bytes.length > block.length && !grow(length + bytes.length)) return false;
      bytes.copy(block, length);
      length += bytes.length;
      return true;
    },
    bytes: (): Buffer => block.subarray(0, length),
    /** Releases the memory; may be called again. */
    release() {
      memory.give(block.length);
      block = Buffer.alloc(0);
      length = 0;
    },
  });
}
