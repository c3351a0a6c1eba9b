import type { Guarded, ThreadTask } from '../../base/worker-tasks.ts';
import { bytesOfContent, type ParsedMessage, parseMessage, startOfText } from '../../mail/message.ts';
import { toCidKey } from '../../mail/mime/cid.ts';
import { withHeader } from '../../mail/mime/header-section.ts';
import { listParts, partBytes } from '../../mail/mime/parts.ts';
import { scanStructure } from '../../mail/mime/structure.ts';
import { type InlinePicture, type SanitizedPage, sanitizePage } from '../../mail/sanitize/html.ts';
import type { Mail } from '../types.ts';
import type { WithRaw } from './raw-bytes.ts';

/** The part to show of a message: its HTML as a page, or one of its parts by its number in the list of parts. */
export interface ShownInput {
  readonly mail: Mail;
  readonly wanted: 'page' | number;
}

/** A part, decoded. */
interface PartFile {
  readonly kind: 'file';
  /** File name; '' if there is none. */
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** `nothing`: it has no HTML, or no such part, or cannot be parsed. */
export type Shown = ({ readonly kind: 'page' } & SanitizedPage) | PartFile | { readonly kind: 'nothing' };

/** HTML that is shown; longer mail is for the download. */
const MAX_HTML = 5 * 1024 * 1024;
/** Characters of the page: the HTML, and its pictures in base64. */
const MAX_PAGE = 10 * 1024 * 1024;

/** Creates the task of the render thread that sanitises a message for display. Throws if the disk fails. */
export function createShownTask({ withRaw }: { readonly withRaw: WithRaw }): ThreadTask<ShownInput, Shown> {
  return async ({ mail: { body }, wanted }, guarded) => {
    const value = await withRaw(body, (raw) => show(withHeader(raw), wanted, guarded));
    return { value, transfer: value.kind === 'file' ? [value.bytes.buffer] : [] };
  };
}

async function show(whole: Buffer, wanted: ShownInput['wanted'], guarded: Guarded): Promise<Shown> {
  return guarded(async () => {
    const { root, breach } = scanStructure(whole);
    if (breach !== undefined) return { kind: 'nothing' };
    if (wanted === 'page') return toPage(parseMessage(whole, root));
    const bytes = partBytes(whole, root, wanted);
    const name = listParts(whole, root)[wanted - 1]?.name ?? '';
    // A copy, because the bytes of the message are used again.
    return bytes ? { kind: 'file', name, bytes: Uint8Array.from(bytes) } : { kind: 'nothing' };
  });
}

function toPage({ html, files }: ParsedMessage): Shown {
  if (html === undefined) return { kind: 'nothing' };
  const pictures = new Map(
    files.flatMap((file) => (file.contentId === null ? [] : [[toCidKey(file.contentId), file] as const])),
  );
  const decoded = new Map<string, InlinePicture>();
  /** Each picture is decoded once, however often the page shows it. */
  const pictureOf = (contentId: string) => {
    const key = toCidKey(contentId);
    const file = pictures.get(key);
    const known = decoded.get(key) ?? (file && { bytes: bytesOfContent(file.content) });
    if (known) decoded.set(key, known);
    return known;
  };
  const { start, whole } = startOfText(html, MAX_HTML);
  const page = sanitizePage(start, pictureOf, { maxLength: MAX_PAGE });
  return { kind: 'page', ...page, cut: !whole || page.cut };
}
