import { z } from 'zod';
import { runInSlices } from '../../../base/concurrency.ts';
import { createMergeEngine, type TextForm } from '../../../mail/merge/language.ts';
import { parseMessage } from '../../../mail/message.ts';
import { scanStructure } from '../../../mail/mime/structure.ts';
import type { Draft, Outgoing } from '../../../mail/outgoing.ts';
import { type PreviewImage, toPreviewMessage } from '../../../mail/sanitize/preview.ts';
import { RenderedTooLong, TemplateError } from '../../../mail/template-errors.ts';
import type { SentMessageRow } from '../../../store/rows/messages.ts';
import type { Mail } from '../../../webhooks/types.ts';
import type { AccountParts } from '../../account/account.ts';
import type { MessageContent } from '../../account/account-queue.ts';
import { operation } from '../../operation.ts';
import { int, listOf, record, str, strOrNull } from '../fields.ts';
import { findMessage, messageId } from './info.ts';
import { attachmentRecord, headersRecord, toParsedRecord } from './raw.ts';

// The content of a sent message, as its recipient gets it.

/** Content is parsed and merged in the process that also serves SMTP. */
const MAX_CONTENT_BYTES = 4 * 1024 * 1024;

const contentRecord = record('message content', {
  ts: int('when it was submitted, in seconds since 1970'),
  _id: str('the id of the message'),
  from_email: str('address of the sender'),
  from_name: strOrNull('name of the sender'),
  subject: str('the subject'),
  to: z.object({ email: str('the address'), name: strOrNull('the display name') }).describe('the recipient'),
  tags: listOf(z.string(), 'its tags'),
  headers: headersRecord,
  text: strOrNull('the text part'),
  html: strOrNull('the HTML part'),
  attachments: z.array(attachmentRecord),
});

const content = operation({
  path: '/messages/content',
  access: 'content',
  summary: 'Shows the content of a message.',
  notes:
    'Content is kept while the message is queued and for some time after delivery (24 hours by default). After that, ' +
    'and for messages sent with view_content_link false, the error is Unknown_Message. Merge tags are replaced; ' +
    'links are as submitted. ' +
    `Content of more than ${MAX_CONTENT_BYTES / 1024 / 1024} MiB is not shown.`,
  params: { id: messageId },
  returns: contentRecord,
  notHereError: 'Unknown_Message',
  example: { id: '5c1e0d0000000000000000000000000a' },
  async handle({ id }, call) {
    const row = await findMessage(id, call);
    const found = await shownContent(row, call);
    const { outgoing, kept } = call.orRefuse(found, 'Unknown_Message', `${id}: its content is not kept any more`);
    const { images: _, ...parts } = await partsOf(outgoing, kept, call.now());
    const { sender, fromName } = outgoing;
    return {
      ts: Math.floor(row.createdAt.getTime() / 1000),
      _id: id,
      from_email: sender,
      from_name: fromName,
      tags: [...row.tags],
      ...parts,
    };
  },
});

/** The content of a sent message, for display. */
interface Parts
  extends Pick<z.input<typeof contentRecord>, 'subject' | 'to' | 'headers' | 'text' | 'html' | 'attachments'> {
  /** Files of the HTML. */
  readonly images: readonly PreviewImage[];
}

/** The HTML of a sent message as a document with its pictures, for the console. Undefined if none can be shown. */
export async function htmlOf(
  id: string,
  { store, messages, now }: Pick<AccountParts, 'store' | 'messages' | 'now'>,
): Promise<Mail | undefined> {
  const row = await store.messages.one({ id });
  const found = row && (await shownContent(row, { messages }));
  if (!found) return undefined;
  const { outgoing, kept } = found;
  const { html, images } = await partsOf(outgoing, kept, now());
  const { message, delivery } = kept;
  return html === null
    ? undefined
    : { message, delivery, body: { kind: 'memory', bytes: toPreviewMessage(html, images) } };
}

/** The content of a message with its options; undefined if it is not kept, or must not be shown. */
async function shownContent({ delivery }: SentMessageRow, { messages }: Pick<AccountParts, 'messages'>) {
  const kept = delivery ? await messages.content(delivery, MAX_CONTENT_BYTES) : undefined;
  const outgoing = kept?.message.envelope.outgoing;
  return kept && outgoing && outgoing.extras?.hideContent !== true ? { outgoing, kept } : undefined;
}

async function partsOf(outgoing: Outgoing, kept: MessageContent, now: Date): Promise<Parts> {
  const fill = filler(outgoing, kept.delivery.recipient, now);
  const parts = outgoing.form === 'draft' ? draftParts(kept) : await documentParts(kept);
  return {
    ...parts,
    subject: (await fill(outgoing.subject)) ?? '',
    text: await fill(parts.text),
    html: await fill(parts.html, 'html'),
  };
}

/** Reads the draft, which messages/send wrote as JSON. */
function draftParts({ bytes, delivery: { recipient } }: MessageContent): Parts {
  const draft: Draft = JSON.parse(bytes.toString());
  const name = draft.to.find(({ email }) => email.toLowerCase() === recipient.toLowerCase())?.name ?? null;
  return {
    subject: '',
    to: { email: recipient, name },
    headers: Object.fromEntries(draft.headers),
    text: draft.text,
    html: draft.html,
    attachments: draft.attachments.map(({ name: file, type, content: base64 }) => ({
      name: file,
      type,
      content: base64,
      binary: true,
    })),
    images: draft.images,
  };
}

async function documentParts({ bytes, delivery: { recipient } }: MessageContent): Promise<Parts> {
  const nobody = { email: recipient, name: null };
  const scan = scanStructure(bytes);
  if (scan.breach !== undefined)
    return { subject: '', to: nobody, headers: {}, text: null, html: null, attachments: [], images: [] };
  const { to, ...parsed } = toParsedRecord(parseMessage(bytes, scan.root));
  return { ...parsed, to: to.find(({ email }) => email.toLowerCase() === recipient.toLowerCase()) ?? nobody };
}

/** Replaces merge tags as sending does; text that cannot be merged is returned unchanged. */
function filler(
  { globalVars, rcptVars, mergeLanguage }: Outgoing,
  recipient: string,
  now: Date,
): (text: string | null, form?: TextForm) => Promise<string | null> {
  const own = rcptVars[recipient.toLowerCase()];
  if (globalVars === null && own === undefined) return async (text) => text;
  const { filling } = createMergeEngine(mergeLanguage, [...(globalVars ?? []), ...(own ?? [])], { now });
  return async (text, form = 'text') => {
    try {
      return text === null ? null : await runInSlices(filling(text, form));
    } catch (error) {
      if (error instanceof RenderedTooLong || error instanceof TemplateError) return text;
      throw error;
    }
  };
}

export const messagesContent = [content];
