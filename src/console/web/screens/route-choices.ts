import type { WholeFormat } from '../../../inbound/formats.ts';
import type { Params } from '../operations.ts';
import type { FormField } from '../parts/form.ts';
import type { InboundRoute } from '../records.ts';

// The choices in the form of a route. What a choice may be is declared where routes are; the compiler names what
// lacks words here.

type Words<T extends string> = Readonly<Record<T, string>>;

/** The forms of posts, by the applications that read them. */
export const FORMATS: Words<InboundRoute['format']> = {
  mandrill: 'Mandrill (a form with mandrill_events)',
  raw: 'Raw message: Rails (relay), MIME libraries',
  json: 'Postern JSON',
  postmark: 'Postmark',
  mailgun: 'Mailgun, parsed',
  'mailgun-mime': 'Mailgun, raw (for URLs that end in mime)',
  sendgrid: 'SendGrid, parsed',
  'sendgrid-raw': 'SendGrid, raw',
  cloudmailin: 'CloudMailin',
};

/** The format that posts may be grouped in, and what consumers of Mandrill read. */
export const MANDRILL: InboundRoute['format'] = 'mandrill';

const WHOLE: Readonly<Record<WholeFormat, true>> = { raw: true, 'mailgun-mime': true, 'sendgrid-raw': true };

/** Whether posts in this format are the message itself, with its attachments. */
export const isWhole = (format: string): boolean => Object.hasOwn(WHOLE, format);

/** How attachments reach the receiver. */
export const ATTACHMENTS: Words<InboundRoute['attachments']> = {
  auto: 'Inline; links if the receiver answers 413',
  inline: 'Inline',
  link: 'Links',
  none: 'Name and size only',
};

/** Which mail goes out one after another. */
export const ORDERS: Words<InboundRoute['order']> = {
  none: 'None: each as soon as possible',
  sender: 'By sender, in order of arrival',
  thread: 'By conversation, in order of arrival',
};

/** What a route does with mail: to choose, and of a route that does not post. */
export const ACTIONS: Readonly<Record<InboundRoute['action'], { readonly choice: string; readonly does: string }>> = {
  post: { choice: 'Post to the URL', does: 'Posts' },
  tag: { choice: 'Add tags and try the next route', does: 'Adds tags and tries the next route' },
  hold: { choice: 'Hold until released', does: 'Holds until released' },
  discard: { choice: 'Accept and discard', does: 'Accepts and discards' },
  reject: { choice: 'Reject with 550', does: 'Rejects (550)' },
};

type When = NonNullable<Params<'inbound/add-route'>['when']>;

export type Condition = Pick<FormField, 'label' | 'help' | 'options'>;

const ANY = ['', 'Any'] as const;
export const YES_NO: readonly (readonly [string, string])[] = [ANY, ['true', 'Yes'], ['false', 'No']];
const named = (...names: readonly string[]): readonly (readonly [string, string])[] => [
  ANY,
  ...names.map((name) => [name, name] as const),
];

/**
 * How the form asks for each condition: with `options` for a result, else for texts. Null: it does not, and keeps
 * what there is.
 */
export const CONDITIONS: Readonly<Record<keyof When, Condition | null>> = {
  sender: {
    label: 'MAIL FROM',
    help:
      'All conditions must match; leave blank to ignore. * matches any characters, commas separate ' +
      'alternatives: *@example.com, <>.',
  },
  from: { label: 'From' },
  subject: { label: 'Subject', help: 'For example *invoice*.' },
  automated: {
    label: 'Automated',
    options: YES_NO,
    help: 'Auto-replies, bounces, newsletters, mailing lists and notifications.',
  },
  authenticated: { label: 'Sender authenticated', options: YES_NO },
  dmarc: { label: 'DMARC', options: named('pass', 'fail', 'none', 'unknown') },
  spam: { label: 'Spam', options: named('ham', 'spam', 'unknown') },
  virus: { label: 'Virus', options: named('clean', 'infected', 'unknown') },
  header: null,
  size: null,
};
