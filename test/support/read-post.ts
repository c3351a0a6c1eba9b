import { FORMAT_NAMES, type FormatName } from '../../src/inbound/formats.ts';
import { formValue } from './mime.ts';

/** What a receiver reads of a post, by the parsers of the platform: `JSON`, and undici's of forms. */
export interface ReadPost {
  readonly recipient: string;
  /** The message, in formats that hold it. */
  readonly raw: Buffer | undefined;
  /** The first field of a name in lower case, in formats that hold the parsed message. */
  field(name: string): string | undefined;
  readonly text: string;
}

type Fields = readonly (readonly [name: string, value: string])[];

const whole = (recipient: string, raw: Buffer | string): ReadPost => ({
  recipient,
  raw: Buffer.from(raw as string),
  field: () => undefined,
  text: '',
});
const parsed = (recipient: string, fields: Fields, text: string | null): ReadPost => ({
  recipient,
  raw: undefined,
  field: (wanted) => fields.find(([name]) => name.toLowerCase() === wanted)?.[1],
  text: text ?? '',
});

/** A text field of a form. */
const inForm = (form: FormData, name: string): string => {
  const value = form.get(name);
  if (typeof value !== 'string') throw new Error(`no field ${name}`);
  return value;
};
const envelopeIn = (form: FormData): string => JSON.parse(inForm(form, 'envelope')).to[0];
const linesOf = (headers: string): Fields =>
  headers.split('\n').map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)]);

const FROM_JSON: Partial<Record<FormatName, (post: any) => ReadPost>> = {
  json: ({ envelope, headers, text }) => parsed(envelope.to, headers, text),
  postmark: ({ OriginalRecipient, Headers, TextBody }) =>
    parsed(
      OriginalRecipient,
      Headers.map(({ Name, Value }: any) => [Name, Value]),
      TextBody,
    ),
  cloudmailin: ({ envelope, headers, plain }) =>
    parsed(
      envelope.to,
      Object.entries<string | string[]>(headers).map(([name, value]) => [
        name.replaceAll('_', '-'),
        [value].flat()[0] ?? '',
      ]),
      plain,
    ),
};
const FROM_FORM: Partial<Record<FormatName, (form: FormData) => ReadPost>> = {
  mailgun: (form) =>
    parsed(inForm(form, 'recipient'), JSON.parse(inForm(form, 'message-headers')), inForm(form, 'body-plain')),
  'mailgun-mime': (form) => whole(inForm(form, 'recipient'), inForm(form, 'body-mime')),
  sendgrid: (form) => parsed(envelopeIn(form), linesOf(inForm(form, 'headers')), String(form.get('text') ?? '')),
  'sendgrid-raw': (form) => whole(envelopeIn(form), inForm(form, 'email')),
};

/** Throws what its parsers throw. `type`: its Content-Type. */
export async function readPost(format: FormatName, type: string, body: Buffer): Promise<ReadPost> {
  if (format === 'mandrill') {
    const [{ msg }] = JSON.parse(formValue(body));
    return whole(msg.email, msg.raw_msg);
  }
  if (format === 'raw') {
    if (type !== 'message/rfc822') throw new Error(type);
    return whole(/^X-Original-To: (.*)\r\n/m.exec(body.toString('latin1'))?.[1] ?? '', body);
  }
  const fromJson = FROM_JSON[format];
  if (fromJson) {
    if (type !== 'application/json') throw new Error(type);
    return fromJson(JSON.parse(body.toString()));
  }
  const form = await new Response(Uint8Array.from(body), { headers: { 'content-type': type } }).formData();
  const fromForm = FROM_FORM[format];
  if (!fromForm) throw new Error(`nobody reads ${format} here`);
  return fromForm(form);
}

/** The format that a URL of a test names at its end; Mandrill's if none. */
export const formatAt = (url: string): FormatName =>
  FORMAT_NAMES.find((name) => url.endsWith(`/${name}`)) ?? 'mandrill';
