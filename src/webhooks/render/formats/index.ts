import type { FormatName } from '../../../inbound/formats.ts';
import { cloudmailin } from './cloudmailin.ts';
import { json } from './json.ts';
import { type ParsedMail, rawBytes, type Written } from './mail.ts';
import { mailgun, mailgunMime } from './mailgun.ts';
import { postmark } from './postmark.ts';
import { sendgrid, sendgridRaw } from './sendgrid.ts';

/** The formats besides Mandrill's (payload.ts), which is a form of its own. */
export const WRITERS: Readonly<Record<Exclude<FormatName, 'mandrill'>, (mail: ParsedMail) => Written>> = {
  raw: (mail) => ({ type: 'message/rfc822', pieces: rawBytes(mail) }),
  json,
  postmark,
  mailgun,
  'mailgun-mime': mailgunMime,
  sendgrid,
  'sendgrid-raw': sendgridRaw,
  cloudmailin,
};
