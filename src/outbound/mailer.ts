import MailComposer from 'nodemailer/lib/mail-composer';
import type { Mail, MailAttempt, MailCarrier, Mailer, MailOutcome } from './types.ts';

export interface MailerSettings {
  /** What Message-IDs end in. */
  readonly hostname: string;
  /** The sender, in the header and in the envelope. */
  readonly from: string;
}

/** Writes mail of our own and has it carried. */
export function createMailer(
  { hostname, from }: MailerSettings,
  { carrier }: { readonly carrier: MailCarrier },
): Mailer {
  const compose = (mail: Mail): Promise<Buffer> =>
    new MailComposer({
      from,
      to: mail.to,
      subject: mail.subject,
      text: mail.text,
      date: mail.at,
      messageId: `<${mail.id}@${hostname}>`,
      // RFC 3834 section 5: no vacation notices, please.
      headers: { 'Auto-Submitted': 'auto-generated' },
      disableFileAccess: true,
      disableUrlAccess: true,
    })
      .compile()
      .build();

  return Object.freeze({
    async send(mail: Mail) {
      return toOutcome(
        await carrier.carry({
          composed: { bytes: await compose(mail), mailFrom: from, links: [] },
          recipient: mail.to,
          sourceAddresses: [],
        }),
      );
    },
    stop() {
      void carrier.stop();
    },
  });
}

/** A refusal of the message by a 5xx is final, and so is a domain that takes no mail; everything else may be better later. */
function toOutcome(attempt: MailAttempt): MailOutcome {
  if (attempt.kind === 'unanswered') return { kind: attempt.permanent ? 'failed' : 'deferred', reason: attempt.reason };
  const { code, diag, host, address } = attempt;
  if (code < 300) return { kind: 'sent' };
  return { kind: code >= 500 ? 'failed' : 'deferred', reason: `${host} (${address}): ${code} ${diag}` };
}
