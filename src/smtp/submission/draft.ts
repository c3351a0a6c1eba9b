import { parseMessage, scanMessage } from '../../mail/message.ts';
import type { Content, FilePart, Mailbox, Parsed, Text } from '../../mail/parsed.ts';
import type { Draft, DraftFile } from '../../mail/sending.ts';

/** What becomes of a document that a template takes apart. */
export interface TakenApart {
  /** What the document says, as HTML: what goes into the template. */
  readonly content: string;
  /** All but `html` and `text`, which come from the template. */
  readonly rest: Omit<Draft, 'html' | 'text'>;
}

/** Fields that are made anew when a message is composed of its parts. */
const MADE_ANEW =
  /^(?:from|to|cc|bcc|subject|date|message-id|mime-version|content-.*|received|return-path|dkim-signature|x-mc-.*)$/i;

/** Takes a document apart; undefined when it breaks a cap and nothing may parse it. */
export async function takeApart(bytes: Buffer): Promise<TakenApart | undefined> {
  const scan = scanMessage(bytes);
  if (scan.breach !== undefined) return undefined;
  const parsed = await parseMessage(bytes, scan.root);
  const isImage = ({ type, contentId }: FilePart) => contentId !== null && type.startsWith('image/');
  return {
    content: parsed.html === undefined ? toHtml(whole(parsed.text ?? '')) : whole(parsed.html),
    rest: {
      to: [...parsed.to.map(addressed('to')), ...(parsed.cc ?? []).map(addressed('cc'))],
      headers: headersOf(parsed),
      attachments: parsed.files.filter((file) => !isImage(file)).map((file) => toFile(file, file.name)),
      images: parsed.files.filter(isImage).map((file) => toFile(file, file.contentId ?? '')),
    },
  };
}

function headersOf({ fields }: Parsed): [string, string][] {
  return fields.filter(({ name }) => !MADE_ANEW.test(name)).map(({ name, value }) => [name, value]);
}

const addressed =
  (type: 'to' | 'cc') =>
  ({ address, name }: Mailbox) => ({ email: address, name, type });

const whole = (text: Text): string => (typeof text === 'string' ? text : [...text()].join(''));

function toFile({ type, content }: FilePart, name: string): DraftFile {
  return { name, type, content: toBase64(content) };
}

function toBase64(content: Content): string {
  if (content.kind === 'bytes') return Buffer.concat(content.chunks).toString('base64');
  return Buffer.from(content.lines)
    .toString('latin1')
    .replace(/[\r\n]/g, '');
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  '\n': '<br>\n',
};

/** Plain text looks the same in HTML. */
function toHtml(text: string): string {
  return text.replace(/\r\n/g, '\n').replace(/[&<>"\n]/g, (char) => ESCAPES[char] ?? char);
}
