import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import { parseAddress } from '../../mail/address.ts';
import type { ClickTracking } from '../../mail/outgoing.ts';
import type { Spool } from '../../queue/delivery.ts';
import type { Submitting } from '../../sending/types.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import { readMailDsn, readRecipientDsn } from '../dsn.ts';
import { createListenerFor, type Listener } from '../listener.ts';
import { badMailParam, type Policy, type Transaction, type Verdict, withDomain } from '../policy.ts';
import { openReception } from '../reception.ts';
import { REFUSALS, type Reply } from '../refusal.ts';
import type { Side } from '../session.ts';
import type { ListenEntry, ListenerDeps, ListenerSettings } from '../settings.ts';
import { parsePath } from '../verbs.ts';
import { createGate, createLogins } from './login.ts';
import { createRoom, openHandingOver, type Room } from './submit-message.ts';

/** Listens for mail that accounts hand over to be sent: with STARTTLS on some ports, under TLS from the start on others. */
export function createSubmission(settings: SubmissionSettings, deps: SubmissionDeps): Listener {
  const side = createSide(settings, deps);
  const listeners = [
    ...(settings.listen.length > 0 ? [createListenerFor(side, settings, deps)] : []),
    ...(settings.tlsListen.length > 0
      ? [createListenerFor(side, { ...settings, listen: settings.tlsListen, implicitTls: true }, deps)]
      : []),
  ];

  async function stop(graceMs?: number) {
    await Promise.all(listeners.map((listener) => listener.stop(graceMs)));
  }

  return frozen({
    async start() {
      // The library would make up a certificate, and clients that do not look would believe it.
      if (settings.tlsListen.length > 0 && !settings.tls)
        throw new Error('submission with TLS from the first byte needs smtp.tls.cert and smtp.tls.key');
      try {
        for (const listener of listeners) await listener.start();
      } catch (error) {
        await stop(0);
        throw error;
      }
    },
    stop,
    addresses: () => listeners.flatMap((listener) => listener.addresses()),
    async reload(tls) {
      for (const listener of listeners) await listener.reload(tls);
    },
    healthy: () => listeners.every((listener) => listener.healthy()),
  });
}

function createSide(settings: SubmissionSettings, deps: SubmissionDeps): Side {
  const room = createRoom(settings.maxBytesInData);
  const logins = createLogins(settings, deps);
  return frozen({
    name: 'submission' as const,
    policy: createSubmissionPolicy(settings, { ...deps, room }),
    gate: (said, connection) =>
      createGate({ settings, logins, spool: deps.spool, meter: deps.meter, clock: deps.clock }, said, connection),
    receive(said, address) {
      if (!said.who) throw new Error('DATA of nobody');
      return openReception(settings, {
        log: deps.log,
        keeping: openHandingOver({ ...deps, room, tracking: settings.tracking }, said.who, said, address),
      });
    },
  });
}

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

  return frozen({
    mail: (rest): Verdict<Transaction> => (spool.hasRoom() ? openTransaction(rest) : { refused: REFUSALS.full }),
    rcpt(rest, { utf8, recipients }): Reply | undefined {
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
    data(transaction): Reply | undefined {
      if (!transaction) return REFUSALS.noMail;
      if (transaction.recipients.size === 0) return REFUSALS.noRecipient;
      return room.isFull() ? REFUSALS.full : undefined;
    },
  });
}

/** What config/default.yaml says under `submission`; the limits of sessions are those of `smtp`. */
export interface SubmissionSettings extends ListenerSettings {
  /** Where TLS begins with the first byte. */
  readonly tlsListen: readonly ListenEntry[];
  /** A login needs TLS. */
  readonly requireTls: boolean;
  /** Without a certificate, clients on loopback may log in all the same: nobody else can reach a machine whose listeners are all there. */
  readonly loopbackOnly: boolean;
  /** What is tracked when a message does not say. */
  readonly tracking: { readonly opens: boolean; readonly clicks: ClickTracking };
  /** Bytes of messages in DATA at one time. */
  readonly maxBytesInData: number;
  /** Wrong keys from one address in a minute. */
  readonly maxBadKeysPerMinute: number;
  /** Bytes that an account may have in the store; with more it may send no mail. */
  readonly maxAccountBytes: number;
}

/** What submission needs of the parts below it. */
export interface SubmissionDeps extends Pick<ListenerDeps, 'clock' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'keys' | 'accounts' | 'templates'>;
  readonly spool: Pick<Spool, 'hasRoom' | 'backlog'>;
  /** What accounts have in the store. */
  readonly meter: Pick<UsageMeter, 'of'>;
  readonly submitting: Submitting;
  readonly ids: Ids;
}
