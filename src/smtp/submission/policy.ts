import { parseAddress } from '../../mail/address.ts';
import { parsePath } from '../command.ts';
import { readMailDsn, readRecipientDsn } from '../dsn.ts';
import { badMailParam, type Policy, type Transaction, type Verdict, withDomain } from '../policy.ts';
import { REFUSALS, type Reply } from '../refusal.ts';
import type { Room } from './room.ts';
import type { SubmissionDeps, SubmissionSettings } from './settings.ts';

const NOT_ASCII = /[\u0080-\u{10ffff}]/u;

/**
 * What an account may ask, once it is known who it is: mail from any address (the From field decides who the sender is) to any
 * mailbox. A local part is never looked into: `a%b@c`, `b!a@c` and `"a@b"@c` are mailboxes of c, whatever they mean there.
 */
export function createSubmissionPolicy(
  settings: Pick<SubmissionSettings, 'hostname' | 'maxMessageBytes' | 'maxRecipients'>,
  deps: Pick<SubmissionDeps, 'spool'> & { readonly room: Room },
): Policy {
  const { spool, room } = deps;

  function openTransaction(rest: string): Verdict<Transaction> {
    const said = parsePath('FROM', rest);
    if (typeof said === 'string') return { refused: said === 'path' ? REFUSALS.badSender : REFUSALS.badArgument };
    if (said.path !== '' && !parseAddress(said.path)) return { refused: REFUSALS.badSender };
    const params = new Map(said.params);
    // Who sent it first (RFC 4954 section 5) is of no interest here, but a server that offers AUTH has to take it.
    if (params.get('AUTH') !== true) params.delete('AUTH');
    const wrong = badMailParam(params, settings.maxMessageBytes);
    if (wrong) return { refused: wrong };
    const utf8 = params.has('SMTPUTF8');
    if (!utf8 && NOT_ASCII.test(said.path)) return { refused: REFUSALS.needsUtf8 };
    const dsn = readMailDsn(params);
    return dsn.refused ? dsn : { value: { mailFrom: said.path, utf8, dsn: dsn.value, recipients: new Map() } };
  }

  return Object.freeze({
    mail: (rest: string): Verdict<Transaction> =>
      spool.hasRoom() ? openTransaction(rest) : { refused: REFUSALS.full },
    rcpt(rest: string, { utf8, recipients }: Transaction): Reply | undefined {
      const said = parsePath('TO', rest);
      if (typeof said === 'string') return said === 'path' ? REFUSALS.badRecipient : REFUSALS.badArgument;
      const dsn = readRecipientDsn(said.params);
      if (dsn.refused) return dsn.refused;
      const address = parseAddress(withDomain(said.path, settings.hostname));
      if (!address) return REFUSALS.badRecipient;
      if (address.domain.startsWith('[')) return REFUSALS.noLiteral;
      if (!utf8 && NOT_ASCII.test(said.path)) return REFUSALS.needsUtf8;
      const key = `${address.mailbox}@${address.domain}`.toLowerCase();
      if (recipients.has(key)) return undefined;
      if (recipients.size >= settings.maxRecipients) return REFUSALS.tooManyRecipients;
      recipients.set(key, { recipient: address.text, match: null, dsn: dsn.value });
      return undefined;
    },
    data(transaction: Transaction | undefined): Reply | undefined {
      if (!transaction) return REFUSALS.noMail;
      if (transaction.recipients.size === 0) return REFUSALS.noRecipient;
      return room.isFull() ? REFUSALS.full : undefined;
    },
  });
}
