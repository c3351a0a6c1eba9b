// The choices in the form of a route (inbound/formats.ts, inbound/order.ts, inbound/decision.ts).

export const MANDRILL = 'mandrill';

/** The forms of posts, by the applications that read them. */
export const FORMATS: readonly (readonly [string, string])[] = [
  [MANDRILL, 'Mandrill (a form with mandrill_events)'],
  ['raw', 'Raw message: Rails (relay), MIME libraries'],
  ['json', 'Postern JSON'],
  ['postmark', 'Postmark'],
  ['mailgun', 'Mailgun, parsed'],
  ['mailgun-mime', 'Mailgun, raw (for URLs that end in mime)'],
  ['sendgrid', 'SendGrid, parsed'],
  ['sendgrid-raw', 'SendGrid, raw'],
  ['cloudmailin', 'CloudMailin'],
];

/** Formats whose posts are the message itself, with its attachments. */
export const WHOLE = ['raw', 'mailgun-mime', 'sendgrid-raw'];

/** How attachments reach the receiver. */
export const ATTACHMENTS: readonly (readonly [string, string])[] = [
  ['auto', 'Inline; links if the receiver answers 413'],
  ['inline', 'Inline'],
  ['link', 'Links'],
  ['none', 'Name and size only'],
];

/** Which mail goes out one after another. */
export const ORDERS: readonly (readonly [string, string])[] = [
  ['none', 'None: each as soon as possible'],
  ['sender', 'By sender, in order of arrival'],
  ['thread', 'By conversation, in order of arrival'],
];

/** What a route does with mail. */
export const ACTIONS: readonly (readonly [string, string])[] = [
  ['post', 'Post to the URL'],
  ['tag', 'Add tags and try the next route'],
  ['hold', 'Hold until released'],
  ['discard', 'Accept and discard'],
  ['reject', 'Reject with 550'],
];
