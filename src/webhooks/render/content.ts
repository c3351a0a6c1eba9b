import type { Guarded, ThreadTask } from '../../base/worker-tasks.ts';
import { authorOf } from '../../mail/addresses/author.ts';
import { type Automated, automatedFor } from '../../mail/automated.ts';
import { factsOfMessage, type MessageFacts } from '../../mail/facts/facts.ts';
import { parseMessage, type Text } from '../../mail/message.ts';
import { readFields, withHeader } from '../../mail/mime/header-section.ts';
import { decodeWords, type HeaderField, parseHeaders } from '../../mail/mime/headers.ts';
import { listParts, type PartFacts } from '../../mail/mime/parts.ts';
import { scanStructure } from '../../mail/mime/structure.ts';
import type { Mail } from '../types.ts';
import type { WithRaw } from './raw-bytes.ts';
import { PARSER_FAILED } from './renderer.ts';

/** The content of a message as people are shown it. */
export interface ShownMessage {
  /** In order, those that we added first. Unfolded and decoded. */
  readonly headers: readonly HeaderField[];
  readonly parts: readonly PartFacts[];
  /** Null if it has none. */
  readonly text: string | null;
  /** Whether the text is cut at `MAX_TEXT`. */
  readonly cut: boolean;
  readonly hasHtml: boolean;
  readonly automated: Automated;
  /** Null if it could not be parsed. */
  readonly facts: MessageFacts | null;
  /** Why it could not be parsed; then only its header is shown, and its parts where they were found. */
  readonly parseError: string | null;
}

export interface ContentInput {
  readonly mail: Mail;
  /** If set, do not parse the message, for this reason. */
  readonly parseError: string | null;
}

/** Bytes of text that are shown at most, in UTF-8. The caps of a message (mail/outgoing.ts) bound everything else. */
const MAX_TEXT = 5 * 1024 * 1024;

/** Creates the task of the render thread that returns the content of a message. Throws if the disk fails. */
export function createContentTask({ withRaw }: { readonly withRaw: WithRaw }): ThreadTask<ContentInput, ShownMessage> {
  return async ({ mail: { message, body, delivery }, parseError }, guarded) => {
    const trace = parseHeaders(Buffer.from(message.trace));
    const { fields, ...shown } = await withRaw(body, (raw) =>
      show(withHeader(raw), message.envelope.mailFrom, parseError, guarded),
    );
    const author = authorOf(fields, message.envelope.mailFrom).mailbox;
    const automated = automatedFor(message.envelope, delivery.recipient, { fields, author });
    const headers = await guarded(async () => toShown(fields));
    return { value: { ...shown, automated, headers: [...trace, ...headers] }, transfer: [] };
  };
}

const NOTHING = { parts: [], text: null, cut: false, hasHtml: false, facts: null };

interface Found extends Omit<ShownMessage, 'headers' | 'automated'> {
  readonly fields: readonly HeaderField[];
}

async function show(whole: Buffer, mailFrom: string, known: string | null, guarded: Guarded): Promise<Found> {
  const scanned = known === null ? await guarded(async () => scanStructure(whole)) : { breach: known };
  if (scanned.breach !== undefined) {
    const fields = await guarded(async () => readFields(whole));
    return { ...NOTHING, fields, parseError: scanned.breach };
  }
  const { root } = scanned;
  const found = await guarded(async () => ({ fields: root.fields, parts: listParts(whole, root) }));
  try {
    return await guarded(async () => {
      const parsed = parseMessage(whole, root);
      const { text, html } = parsed;
      const facts = factsOfMessage(parsed, authorOf(root.fields, mailFrom).mailbox?.name ?? null);
      return { ...found, ...upTo(MAX_TEXT, text), hasHtml: html !== undefined, facts, parseError: null };
    });
  } catch {
    return { ...NOTHING, ...found, parseError: PARSER_FAILED };
  }
}

function toShown(fields: readonly HeaderField[]): HeaderField[] {
  return fields.map(({ name, value }) => ({ name, value: decodeWords(value).toWellFormed() }));
}

/** The longest prefix of a text within this number of bytes. */
function upTo(most: number, text: Text | undefined): Pick<ShownMessage, 'text' | 'cut'> {
  if (text === undefined) return { text: null, cut: false };
  let shown = '';
  let left = most;
  for (const piece of typeof text === 'string' ? [text] : text()) {
    const size = Buffer.byteLength(piece);
    if (size > left) {
      const { read } = new TextEncoder().encodeInto(piece, new Uint8Array(left));
      return { text: (shown + piece.slice(0, read)).toWellFormed(), cut: true };
    }
    shown += piece;
    left -= size;
  }
  return { text: shown.toWellFormed(), cut: false };
}
