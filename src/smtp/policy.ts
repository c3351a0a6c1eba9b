import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Match, Routed } from '../inbound/types.ts';
import { parseAddress, type Address } from '../mail/address.ts';
import { parsePath } from './command.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { ListenerDeps, ListenerSettings } from './settings.ts';

/** Somebody that the transaction is for. */
export interface Recipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  /** Null for mail that goes out. */
  readonly match: Match | null;
}

/** MAIL FROM to final dot or RSET. */
export interface Transaction {
  /** The reverse-path, empty for the null sender. */
  readonly mailFrom: string;
  /** The client asked for SMTPUTF8. */
  readonly utf8: boolean;
  /** By mailbox and domain, letters in lower case: a recipient named twice is one. */
  readonly recipients: Map<string, Recipient>;
}

/** An answer to a command: a refusal, or what was asked for. */
export type Verdict<T> = { readonly refused: Reply } | { readonly refused?: undefined; readonly value: T };

/** Decides what MAIL, RCPT and DATA are answered. */
export interface Policy {
  /** Takes what stands behind the verb. */
  mail(rest: string): Verdict<Transaction>;
  /** Adds the recipient to the transaction, or answers why not. */
  rcpt(rest: string, transaction: Transaction): Reply | undefined;
  data(transaction: Transaction | undefined): Reply | undefined;
}

const NOT_ASCII = /[\u0080-\u{10ffff}]/u;
// A mailbox that carries another address inside is the old way to ask for relaying (RFC 5321 section 3.6.1).
const RELAY_TRICK = /[@%!]/;
/** Messages to the postmaster that wait for the operator to say where he reads them: anybody may send such. */
const MOST_KEPT = 100;
const WHY = { 'no-route': REFUSALS.noMailbox, 'not-ours': REFUSALS.noRelay, 'unknown': REFUSALS.fault } as const;

export function createPolicy(
  settings: Pick<ListenerSettings, 'hostname' | 'maxMessageBytes' | 'maxRecipients' | 'maxBacklogPerAccount' | 'keepsPostmaster'>,
  deps: Pick<ListenerDeps, 'routing' | 'returnAddresses' | 'postmaster' | 'spool'>,
): Policy {
  const { routing, returnAddresses, postmaster, spool } = deps;
  const mostWaiting = (account: string) => account === POSTMASTER && settings.keepsPostmaster ? MOST_KEPT - 1 : settings.maxBacklogPerAccount;

  function route(address: Address): Verdict<Routed> {
    if (address.domain.startsWith('[') || RELAY_TRICK.test(address.mailbox)) return { refused: REFUSALS.noRelay };
    const routed = returnAddresses?.lookup(address.mailbox, address.domain) ?? routing.lookup(address.mailbox, address.domain);
    const found = postmaster.lookup(address.mailbox, address.domain, routed);
    if (found.kind !== 'matched') return { refused: WHY[found.kind] };
    if (spool.backlog(found.match.account, 'in') > mostWaiting(found.match.account)) return { refused: REFUSALS.backlog };
    return { value: { recipient: address.text, match: found.match } };
  }

  function recipientOf(rest: string, utf8: boolean): Verdict<Address> {
    const said = parsePath('TO', rest);
    if (typeof said === 'string') return { refused: said === 'path' ? REFUSALS.badRecipient : REFUSALS.badArgument };
    if (said.params.size > 0) return { refused: REFUSALS.unknownParameter };
    const address = parseAddress(withDomain(said.path, settings.hostname));
    if (!address) return { refused: REFUSALS.badRecipient };
    return !utf8 && NOT_ASCII.test(said.path) ? { refused: REFUSALS.needsUtf8 } : { value: address };
  }

  return Object.freeze({
    mail(rest: string): Verdict<Transaction> {
      if (!spool.hasRoom()) return { refused: REFUSALS.full };
      const said = parsePath('FROM', rest);
      if (typeof said === 'string') return { refused: said === 'path' ? REFUSALS.badSender : REFUSALS.badArgument };
      const { path, params } = said;
      if (path !== '' && !parseAddress(path)) return { refused: REFUSALS.badSender };
      const wrong = params.size === 0 ? undefined : badMailParam(params, settings.maxMessageBytes);
      if (wrong) return { refused: wrong };
      const utf8 = params.has('SMTPUTF8');
      if (!utf8 && NOT_ASCII.test(path)) return { refused: REFUSALS.needsUtf8 };
      return { value: { mailFrom: path, utf8, recipients: new Map() } };
    },
    rcpt(rest: string, { utf8, recipients }: Transaction): Reply | undefined {
      const address = recipientOf(rest, utf8);
      if (address.refused) return address.refused;
      const key = `${address.value.mailbox}@${address.value.domain}`.toLowerCase();
      if (recipients.has(key)) return undefined;
      if (recipients.size >= settings.maxRecipients) return REFUSALS.tooManyRecipients;
      const routed = route(address.value);
      if (routed.refused) return routed.refused;
      recipients.set(key, routed.value);
      return undefined;
    },
    data(transaction: Transaction | undefined): Reply | undefined {
      if (!transaction) return REFUSALS.noMail;
      return transaction.recipients.size === 0 ? REFUSALS.noRecipient : undefined;
    },
  });
}

/** RFC 5321 section 4.5.1 wants mail for a postmaster without a domain to be taken: it is mail to the one of our own name. */
export function withDomain(path: string, hostname: string): string {
  return /^postmaster$/i.test(path) ? `${path}@${hostname}` : path;
}

/** Why a parameter of MAIL is refused: of SIZE (RFC 1870), BODY (RFC 6152) and SMTPUTF8 (RFC 6531), or because nothing else was offered. */
export function badMailParam(params: ReadonlyMap<string, string | true>, maxBytes: number): Reply | undefined {
  for (const [name, value] of params) {
    if (name === 'SIZE') {
      if (value === true || !/^\d{1,20}$/.test(value)) return REFUSALS.badArgument;
      if (Number(value) > maxBytes) return REFUSALS.tooBig;
    } else if (name === 'BODY') {
      if (value === true || !/^(?:7BIT|8BITMIME)$/i.test(value)) return REFUSALS.badArgument;
    } else if (name === 'SMTPUTF8') {
      if (value !== true) return REFUSALS.badArgument;
    } else {
      return REFUSALS.unknownParameter;
    }
  }
  return undefined;
}
