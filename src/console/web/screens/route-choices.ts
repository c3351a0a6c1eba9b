// The choices in the form of a route (inbound/formats.ts, inbound/order.ts, inbound/decision.ts).

export const MANDRILL = 'mandrill';

/** The forms of posts, by the applications that read them. */
export const FORMATS: readonly (readonly [string, string])[] = [
  [MANDRILL, 'Mandrill: a form with mandrill_events'],
  ['raw', 'the message itself: Rails (relay), MIME libraries'],
  ['json', "Postern's own JSON"],
  ['postmark', 'Postmark'],
  ['mailgun', 'Mailgun, parsed'],
  ['mailgun-mime', 'Mailgun, raw (URLs that end in mime)'],
  ['sendgrid', 'SendGrid, parsed'],
  ['sendgrid-raw', 'SendGrid, raw'],
  ['cloudmailin', 'CloudMailin'],
];

/** Formats whose posts are the message itself, with its attachments. */
export const WHOLE = ['raw', 'mailgun-mime', 'sendgrid-raw'];

/** How attachments reach the receiver. */
export const ATTACHMENTS: readonly (readonly [string, string])[] = [
  ['auto', 'in the POST, as links once the receiver finds it too large'],
  ['inline', 'in the POST'],
  ['link', 'as links'],
  ['none', 'name and size only'],
];

/** Which mail goes out one after another. */
export const ORDERS: readonly (readonly [string, string])[] = [
  ['none', 'none: each as soon as it can be'],
  ['sender', 'of each sender, as it came'],
  ['thread', 'of each conversation, as it came'],
];

/** What a route does with mail. */
export const ACTIONS: readonly (readonly [string, string])[] = [
  ['post', 'post it to the URL'],
  ['tag', 'add tags, and try the next route'],
  ['hold', 'hold it until it is replayed'],
  ['discard', 'accept it, and discard it'],
  ['reject', 'refuse it with 550'],
];
