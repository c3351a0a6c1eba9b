import { readFile } from 'node:fs/promises';
import type { Bytes } from '../../src/base/bytes.ts';
import { MANDRILL } from '../../src/inbound/formats.ts';
import type { Verdicts } from '../../src/mail/addresses/envelope.ts';
import type { SenderAuth } from '../../src/mail/sender-auth.ts';
import type { Message } from '../../src/queue/delivery.ts';
import type { Mail, RenderJob } from '../../src/webhooks/types.ts';

/** The lines of a message, with CRLF behind each. */
export function crlf(...lines: string[]): Buffer {
  return Buffer.from(lines.map((line) => `${line}\r\n`).join(''), 'utf8');
}

/** A message whose body is a multipart of these parts, each the lines of its header, an empty line and its body. */
export function multipart(type: string, header: readonly string[], ...parts: (readonly string[])[]): Buffer {
  return crlf(
    ...header,
    `Content-Type: multipart/${type}; boundary="=_b"`,
    '',
    ...parts.flatMap((part) => ['--=_b', ...part]),
    '--=_b--',
  );
}

export const VERDICTS: Verdicts = {
  spf: { result: 'pass', detail: 'sender SPF authorized' },
  dkim: { signed: true, valid: true },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
};

export const TRACE =
  'Received: from mail.example.com ([192.0.2.1])\r\n\tby mx.example.net (Postern) with ESMTPS id m1\r\n\tfor <in@example.net>; Mon, 05 Jan 2026 12:00:00 +0000\r\n';

/** A message as the spool hands it out. */
export function spooled(change: Partial<Message> = {}): Message {
  return {
    id: 'm1',
    receivedAt: Date.UTC(2026, 0, 5, 12, 0, 0, 789),
    trace: TRACE,
    verdicts: VERDICTS,
    envelope: {
      mailFrom: 'bounce@example.com',
      client: { address: '192.0.2.1', helo: 'mail.example.com', tls: 'TLSv1.3' },
    },
    ...change,
  };
}

export const KEY = 'kJ8vQ2xLr0cYw5nTt7uZ1aBdEfGhIjKm';

/** A message as the renderer gets it. */
export function aMail(raw: Uint8Array, change: Partial<Mail> = {}): Mail {
  return {
    message: spooled(),
    body: { kind: 'memory', bytes: raw },
    delivery: { id: 'm1-abc', recipient: 'in@example.net' },
    ...change,
  };
}

/** One message, to be posted. */
export function renderJob(raw: Uint8Array, change: Partial<RenderJob & Mail> = {}): RenderJob {
  const { message, body, delivery, answers, ...rest } = change;
  const mail = { ...(message && { message }), ...(body && { body }), ...(delivery && { delivery }) };
  return {
    mails: [aMail(raw, { ...mail, answers })],
    url: 'https://example.com/hook?x=1',
    keys: [KEY],
    at: Date.now(),
    style: MANDRILL,
    ...rest,
  };
}

export interface FileRecord {
  readonly name: string;
  readonly type: string;
  readonly content: string;
  readonly base64?: boolean;
}

/** The event as a consumer reads it. */
export interface InboundEvent {
  readonly event: string;
  readonly ts: number;
  readonly _id: string;
  readonly msg: Verdicts & {
    readonly raw_msg: string;
    readonly raw_msg_base64?: string;
    readonly headers: Record<string, string | string[]>;
    readonly text?: string;
    readonly text_flowed?: boolean;
    readonly html?: string;
    readonly attachments?: Record<string, FileRecord>;
    readonly images?: Record<string, FileRecord>;
    readonly from_email: string;
    readonly from_name: string | null;
    readonly to: [string, string | null][];
    readonly cc?: [string, string | null][];
    readonly subject: string;
    readonly email: string;
    readonly tags: string[];
    readonly sender: string | null;
    readonly template: string | null;
    readonly parse_error?: string;
    readonly id: string;
    readonly envelope: object;
    readonly sender_auth: SenderAuth;
    readonly reply_text: string | null;
    readonly quoted_text: string | null;
    readonly reply_text_cut?: true;
    readonly reply_data: string | null;
    readonly captures: Readonly<Record<string, string>>;
    readonly automated: { readonly is: boolean; readonly why: string | null };
  };
}

export async function bytesOf(body: Bytes): Promise<Buffer> {
  return body.kind === 'file' ? readFile(body.path) : Buffer.from(body.bytes);
}

/** The decoded value of the one field of the form. URLSearchParams does the same, but takes seconds for 50 MB. */
export function formValue(form: Uint8Array): string {
  const [name, value, ...rest] = Buffer.from(form).toString('latin1').split('=');
  if (name !== 'mandrill_events' || value === undefined || rest.length > 0 || value.includes('&'))
    throw new Error('not the form of events');
  return decodeURIComponent(value.replaceAll('+', ' '));
}

/** The events of a form. */
export async function eventsOf(body: Bytes): Promise<InboundEvent[]> {
  return JSON.parse(formValue(await bytesOf(body)));
}

/** The one event of a form. */
export async function eventOf(body: Bytes): Promise<InboundEvent> {
  const events = await eventsOf(body);
  const event = events[0];
  if (event === undefined || events.length !== 1) throw new Error(`${events.length} events instead of one`);
  return event;
}
