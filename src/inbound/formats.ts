import { namesOf } from '../base/tables.ts';

/** The properties of a format, for routes, the API and the road; webhooks/render/formats/ writes it. */
interface FormatFacts {
  readonly about: string;
  /** The status by which a receiver of this format ends a delivery without retries; null: none. */
  readonly stop: number | null;
  /** Whether its posts contain the raw message, so that no attachment can be left out. */
  readonly whole?: true;
}

/** The forms in which a route posts its messages. */
export const FORMATS = {
  mandrill: { about: 'a form with `mandrill_events`', stop: null },
  raw: { about: 'the message itself, `message/rfc822`', stop: null, whole: true },
  json: { about: "Postern's own JSON", stop: null },
  postmark: { about: "Postmark's JSON", stop: 403 },
  mailgun: { about: "Mailgun's form of a parsed message", stop: 406 },
  'mailgun-mime': { about: "Mailgun's form with the message in `body-mime`", stop: 406, whole: true },
  sendgrid: { about: "SendGrid's form of a parsed message", stop: null },
  'sendgrid-raw': { about: "SendGrid's form with the message in `email`", stop: null, whole: true },
  cloudmailin: { about: "CloudMailin's normalized JSON", stop: null },
} as const satisfies Readonly<Record<string, FormatFacts>>;

export type FormatName = keyof typeof FORMATS;

/** The formats whose posts contain the raw message. */
export type WholeFormat = {
  [F in FormatName]: (typeof FORMATS)[F] extends { readonly whole: true } ? F : never;
}[FormatName];

/**
 * How attachments reach the receiver. auto: in the post, and by links once it has answered that the post is too large ·
 * inline: in the post · link: by links · none: by name and size only.
 */
export const ATTACHMENT_MODES = ['auto', 'inline', 'link', 'none'] as const;

export type AttachmentMode = (typeof ATTACHMENT_MODES)[number];

export const FORMAT_NAMES = namesOf(FORMATS);

/** How a route posts its messages. */
export interface PostStyle {
  readonly format: FormatName;
  /** Whether formats of the parsed message include the raw message too. */
  readonly raw: boolean;
  readonly attachments: AttachmentMode;
  /** Files up to this size in bytes stay in a post whose attachments are links. */
  readonly linkOver: number;
  /** Whether posts include the facts of the message (mail/facts/facts.ts). */
  readonly facts: boolean;
}

/** Mandrill's format, with everything in it. */
export const MANDRILL: PostStyle = { format: 'mandrill', raw: true, attachments: 'auto', linkOver: 0, facts: false };

/** The facts of a format. */
export const factsOf = (format: FormatName): FormatFacts => FORMATS[format];

/** The style in a route's row; defaults, also for values of a later version, are Mandrill's. */
export function toStyle(row: {
  readonly format?: string | undefined;
  readonly raw?: boolean | undefined;
  readonly attachments?: string | undefined;
  readonly linkOver?: number | undefined;
  readonly facts?: boolean | undefined;
}): PostStyle {
  const { raw = true, linkOver = 0, facts = false } = row;
  const attachments = ATTACHMENT_MODES.find((mode) => mode === row.attachments) ?? 'auto';
  return { format: toFormat(row.format), raw, attachments, linkOver, facts };
}

/** The format of this name; Mandrill's for a route without a name, or with one of a later version. */
export function toFormat(name: string | undefined): FormatName {
  return FORMAT_NAMES.find((format) => format === name) ?? 'mandrill';
}
