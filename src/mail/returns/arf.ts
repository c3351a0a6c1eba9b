import { firstValue } from '../headers.ts';
import { headerText, type Returned, readBlocks } from './returned.ts';

/** A complaint about a message (RFC 5965), or a message handed in by hand with words about it. */
export interface FeedbackReport {
  /** `abuse`, `fraud`, `virus`, `not-spam`, `auth-failure` …; empty when somebody just attached the message. */
  readonly type: string;
  readonly userAgent: string;
  /** Everything that the reporter has left of the original: its header section, and the fields of the report that quote its envelope. */
  readonly original: string;
}

const REPORT = 'message/feedback-report';
const ORIGINAL =
  /^(?:message\/rfc822|message\/global|text\/rfc822-headers|text\/rfc822|message\/rfc822-headers|message\/global-headers)$/;
const QUOTED = ['original-mail-from', 'original-rcpt-to', 'removal-recipient', 'original-envelope-id'];
const MOST_BLOCKS = 4;

/** Reads a feedback report; undefined when the mail is none. The fields that a reporter hides are simply not there. */
export function parseFeedback(mail: Returned): FeedbackReport | undefined {
  const leaf = mail.leaves.find(({ type }) => type === REPORT);
  return leaf && toReport(mail, readBlocks(leaf.bytes(), MOST_BLOCKS).flat());
}

/**
 * Reads a report of those who do not write the format: the message as an attachment, and that is all (the JMRP of Microsoft, people
 * who write to abuse@). Undefined when no message is attached.
 */
export function parseAttached(mail: Returned): FeedbackReport | undefined {
  return mail.leaves.some(({ type }) => ORIGINAL.test(type)) ? toReport(mail, []) : undefined;
}

function toReport(mail: Returned, fields: Parameters<typeof firstValue>[0]): FeedbackReport {
  const quoted = fields.filter(({ name }) => QUOTED.includes(name.toLowerCase())).map(({ value }) => value);
  const originals = mail.leaves.filter(({ type }) => ORIGINAL.test(type)).map((leaf) => headerText(leaf.bytes()));
  return {
    type: (firstValue(fields, 'feedback-type') ?? '').trim().toLowerCase(),
    userAgent: firstValue(fields, 'user-agent') ?? '',
    // A folded header may have cut a token in two.
    original: [...quoted, ...originals.map((text) => text.replaceAll(/\n[ \t]+/g, ' '))].join('\n'),
  };
}
