import { parseAddress } from '../mail/address.ts';
import type { Letter } from './session.ts';
import type { MailAttempt } from './types.ts';

/** A reply that we give ourselves, because no server needs to be asked. */
export function ownAnswer(code: number, diag: string): MailAttempt {
  return { kind: 'answered', code, diag, host: '', address: '', source: null, tls: false, durationMs: 0 };
}

/** What must not get into a command: it would end the line, the path, or the argument. */
const UNSAFE = /[\s<>\p{Cc}]/u;

/**
 * The letter as the commands will say it, and the domain to carry it to; or why there is none. A domain is written in A-labels,
 * so that its letters alone need no SMTPUTF8.
 */
export function addressLetter(
  mailFrom: string,
  recipient: string,
  bytes: Uint8Array,
): { readonly letter: Letter; readonly domain: string } | { readonly answer: MailAttempt } {
  const to = UNSAFE.test(recipient) ? undefined : parseAddress(recipient);
  if (!to || to.domain.startsWith('['))
    return { answer: ownAnswer(553, '5.1.3 The recipient is no address that mail can be sent to') };
  const from = mailFrom === '' ? '' : UNSAFE.test(mailFrom) ? undefined : parseAddress(mailFrom);
  if (from === undefined) return { answer: ownAnswer(553, '5.1.7 The sender is no address') };
  const local = recipient.slice(0, recipient.lastIndexOf('@'));
  return { domain: to.domain, letter: { mailFrom, recipient: `${local}@${to.domain}`, bytes } };
}
