import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Arrival, Match, RoutedRecipient } from '../inbound/types.ts';
import { type Address, parseAddress } from '../mail/address.ts';
import type { DsnRequest, RecipientDsn } from '../mail/envelope.ts';
import { type MailDsn, readMailDsn, readRecipientDsn } from './dsn.ts';
import { type Keeping, openReception } from './reception.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { Side } from './session.ts';
import type { ListenerDeps, ListenerSettings } from './settings.ts';
import { parsePath, protocolOf } from './verbs.ts';

/** Somebody that the transaction is for. */
export interface Recipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  /** Null for mail that goes out. */
  readonly match: Match | null;
  readonly dsn: RecipientDsn | undefined;
}

/** MAIL FROM to final dot or RSET. */
export interface Transaction {
  /** The reverse-path, empty for the null sender. */
  readonly mailFrom: string;
  /** The client asked for SMTPUTF8. */
  readonly utf8: boolean;
  readonly dsn: MailDsn;
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
const WHY = { 'no-route': REFUSALS.noMailbox, 'not-ours': REFUSALS.noRelay, unknown: REFUSALS.fault } as const;

export function createPolicy(
  settings: Pick<
    ListenerSettings,
    'hostname' | 'maxMessageBytes' | 'maxRecipients' | 'maxBacklogPerAccount' | 'keepsPostmaster'
  >,
  deps: Pick<ListenerDeps, 'routing' | 'returnAddresses' | 'postmaster' | 'spool'>,
): Policy {
  const { routing, returnAddresses, postmaster, spool } = deps;
  const mostWaiting = (account: string) =>
    account === POSTMASTER && settings.keepsPostmaster ? MOST_KEPT - 1 : settings.maxBacklogPerAccount;

  function route(address: Address): Verdict<RoutedRecipient> {
    if (address.domain.startsWith('[') || RELAY_TRICK.test(address.mailbox)) return { refused: REFUSALS.noRelay };
    const routed =
      returnAddresses?.lookup(address.mailbox, address.domain) ?? routing.lookup(address.mailbox, address.domain);
    const found = postmaster.lookup(address.mailbox, address.domain, routed);
    if (found.kind !== 'matched') return { refused: WHY[found.kind] };
    if (spool.backlog(found.match.account, 'in') > mostWaiting(found.match.account))
      return { refused: REFUSALS.backlog };
    return { value: { recipient: address.text, match: found.match } };
  }

  function recipientOf(
    rest: string,
    utf8: boolean,
  ): Verdict<{ readonly address: Address; readonly dsn: RecipientDsn | undefined }> {
    const said = parsePath('TO', rest);
    if (typeof said === 'string') return { refused: said === 'path' ? REFUSALS.badRecipient : REFUSALS.badArgument };
    const dsn = readRecipientDsn(said.params);
    if (dsn.refused) return dsn;
    const address = parseAddress(withDomain(said.path, settings.hostname));
    if (!address) return { refused: REFUSALS.badRecipient };
    return !utf8 && NOT_ASCII.test(said.path)
      ? { refused: REFUSALS.needsUtf8 }
      : { value: { address, dsn: dsn.value } };
  }

  return frozen({
    mail(rest): Verdict<Transaction> {
      if (!spool.hasRoom()) return { refused: REFUSALS.full };
      const said = parsePath('FROM', rest);
      if (typeof said === 'string') return { refused: said === 'path' ? REFUSALS.badSender : REFUSALS.badArgument };
      const { path, params } = said;
      if (path !== '' && !parseAddress(path)) return { refused: REFUSALS.badSender };
      const wrong = params.size === 0 ? undefined : badMailParam(params, settings.maxMessageBytes);
      if (wrong) return { refused: wrong };
      const utf8 = params.has('SMTPUTF8');
      if (!utf8 && NOT_ASCII.test(path)) return { refused: REFUSALS.needsUtf8 };
      const dsn = readMailDsn(params);
      return dsn.refused ? dsn : { value: { mailFrom: path, utf8, dsn: dsn.value, recipients: new Map() } };
    },
    rcpt(rest, { utf8, recipients }): Reply | undefined {
      const read = recipientOf(rest, utf8);
      if (read.refused) return read.refused;
      const { address, dsn } = read.value;
      const key = `${address.mailbox}@${address.domain}`.toLowerCase();
      if (recipients.has(key)) return undefined;
      if (recipients.size >= settings.maxRecipients) return REFUSALS.tooManyRecipients;
      const routed = route(address);
      if (routed.refused) return routed.refused;
      recipients.set(key, { ...routed.value, dsn });
      return undefined;
    },
    data(transaction): Reply | undefined {
      if (!transaction) return REFUSALS.noMail;
      return transaction.recipients.size === 0 ? REFUSALS.noRecipient : undefined;
    },
  });
}

/** RFC 5321 section 4.5.1 wants mail for a postmaster without a domain to be taken: it is mail to the one of our own name. */
export function withDomain(path: string, hostname: string): string {
  return /^postmaster$/i.test(path) ? `${path}@${hostname}` : path;
}

/** What a transaction asked to be told (RFC 3461); undefined when it asked for nothing. */
export function dsnOf({ mailFrom, dsn, recipients }: Transaction): DsnRequest | undefined {
  const asked = [...recipients.values()].flatMap(({ recipient, dsn: wish }) =>
    wish ? [[recipient, wish] as const] : [],
  );
  if (asked.length === 0 && dsn.ret === null && dsn.envid === null) return undefined;
  return { ...dsn, recipients: Object.fromEntries(asked), returnTo: mailFrom };
}

/** Why a parameter of MAIL is refused: of SIZE (RFC 1870), BODY (RFC 6152) and SMTPUTF8 (RFC 6531), or because nothing else was offered. */
export function badMailParam(params: ReadonlyMap<string, string | true>, maxBytes: number): Reply | undefined {
  for (const [name, value] of params) {
    if (name === 'SIZE') {
      if (value === true || !/^\d{1,20}$/.test(value)) return REFUSALS.badArgument;
      if (Number(value) > maxBytes) return REFUSALS.tooBig;
    } else if (name === 'BODY') {
      if (value === true || !/^(?:7BIT|8BITMIME)$/i.test(value)) return REFUSALS.badArgument;
    } else if (name === 'RET' || name === 'ENVID') {
    } else if (name === 'SMTPUTF8') {
      if (value !== true) return REFUSALS.badArgument;
    } else {
      return REFUSALS.unknownParameter;
    }
  }
  return undefined;
}

/** The largest message to the postmaster that waits for the operator: what anybody may leave on our disk. */
const MOST_KEPT_BYTES = 1024 * 1024;

/** Mail that comes in for the domains of accounts: from anybody, to routes only. */
export function createInbound(settings: ListenerSettings, deps: ListenerDeps): Side {
  return frozen({
    name: 'smtp' as const,
    policy: createPolicy(settings, deps),
    ownerOf: deps.routing.ownerOf,
    receive(said, address) {
      const { transaction, helo, tls } = said;
      if (!transaction) throw new Error('DATA without a transaction');
      const dsn = dsnOf(transaction);
      const arrival = {
        envelope: { mailFrom: transaction.mailFrom, client: { address, helo, tls }, ...(dsn && { dsn }) },
        protocol: protocolOf(said),
      };
      const routed = [...transaction.recipients.values()].flatMap(({ recipient, match }) =>
        match ? [{ recipient, match }] : [],
      );
      const kept = settings.keepsPostmaster && routed.some(({ match }) => match.account === POSTMASTER);
      const maxMessageBytes = kept ? Math.min(settings.maxMessageBytes, MOST_KEPT_BYTES) : settings.maxMessageBytes;
      return openReception(
        { ...settings, maxMessageBytes },
        { log: deps.log, keeping: openKeeping(deps, arrival, routed) },
      );
    },
  });
}

/** Keeps a message on the spool. */
function openKeeping(
  { acceptance }: Pick<ListenerDeps, 'acceptance'>,
  arrival: Arrival,
  routed: readonly RoutedRecipient[],
): Keeping {
  const { messageId, body } = acceptance.begin();
  return {
    messageId,
    write: (bytes) => body.write(bytes)?.then(() => undefined),
    abort: () => body.abort(),
    async finish() {
      const accepted = await acceptance.accept(messageId, arrival, routed, await body.finish());
      if (accepted.outcome === 'accepted') return { id: accepted.messageId };
      return { refused: accepted.outcome === 'full' ? REFUSALS.full : REFUSALS.fault };
    },
  };
}
