import { namesOf } from '../base/tables.ts';

/** What the routes, the API and the road must know of a format; webhooks/render/formats/ writes it. */
interface FormatFacts {
  readonly about: string;
  /** The status by which a receiver of this format ends a delivery; null: there is none. */
  readonly stop: number | null;
}

/** The forms in which a route posts its messages. */
export const FORMATS = {
  mandrill: { about: 'a form with `mandrill_events`', stop: null },
  raw: { about: 'the message itself, `message/rfc822`', stop: null },
  json: { about: "Postern's own JSON", stop: null },
  postmark: { about: "Postmark's JSON", stop: 403 },
  mailgun: { about: "Mailgun's form of a parsed message", stop: 406 },
  'mailgun-mime': { about: "Mailgun's form with the message in `body-mime`", stop: 406 },
  sendgrid: { about: "SendGrid's form of a parsed message", stop: null },
  'sendgrid-raw': { about: "SendGrid's form with the message in `email`", stop: null },
  cloudmailin: { about: "CloudMailin's normalized JSON", stop: null },
} as const satisfies Readonly<Record<string, FormatFacts>>;

export type FormatName = keyof typeof FORMATS;

export const FORMAT_NAMES = namesOf(FORMATS);

/** How a route posts its messages. */
export interface PostStyle {
  readonly format: FormatName;
  /** Whether formats that hold the parsed message hold the raw message too. */
  readonly raw: boolean;
}

/** The form of Mandrill, with everything in it. */
export const MANDRILL: PostStyle = { format: 'mandrill', raw: true };

/** The format of this name; a route without a name, or with one of a later version, has the form of Mandrill. */
export function toFormat(name: string | undefined): FormatName {
  return FORMAT_NAMES.find((format) => format === name) ?? 'mandrill';
}
