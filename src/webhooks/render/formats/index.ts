import type { FormatName } from '../../../inbound/formats.ts';
import type { Piece } from '../pieces.ts';
import { cloudmailin } from './cloudmailin.ts';
import { json } from './json.ts';
import { type ParsedMail, rawBytes, type Written } from './mail.ts';
import { mailgun, mailgunMime } from './mailgun.ts';
import { postmark } from './postmark.ts';
import { sendgrid, sendgridRaw } from './sendgrid.ts';

/** The formats besides Mandrill's (payload.ts). */
export const WRITERS: Readonly<Record<Exclude<FormatName, 'mandrill'>, (mail: ParsedMail) => Written>> = {
  raw: (mail) => ({ type: 'message/rfc822', pieces: rawBytes(mail) }),
  json: asJson(json),
  postmark: asJson(postmark),
  mailgun,
  'mailgun-mime': mailgunMime,
  sendgrid,
  'sendgrid-raw': sendgridRaw,
  cloudmailin: asJson(cloudmailin),
};

function asJson(write: (mail: ParsedMail) => Iterable<Piece>): (mail: ParsedMail) => Written {
  return (mail) => ({ type: 'application/json', pieces: write(mail) });
}
