import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { ClickTracking } from '../../mail/outgoing.ts';
import type { Spool } from '../../queue/delivery.ts';
import type { Submitting } from '../../sending/types.ts';
import type { KeyUses } from '../../store/key-uses.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import {
  createListenerFor,
  type ListenEntry,
  type Listener,
  type ListenerDeps,
  type ListenerSettings,
} from '../listener.ts';
import { openReception } from '../reception.ts';
import { REFUSALS } from '../replies.ts';
import type { Side } from '../session.ts';
import { createLoginGate, createLogins } from './login.ts';
import { createDataMemory, openSubmissionSink } from './submit-message.ts';

/** What config/default.yaml says under `submission`; the limits of sessions are those of `smtp`. */
export interface SubmissionSettings extends ListenerSettings {
  /** Where TLS begins with the first byte. */
  readonly tlsListen: readonly ListenEntry[];
  /** A login needs TLS. */
  readonly requireTls: boolean;
  /**
   * Without a certificate, clients on loopback may log in all the same: nobody else can reach a machine whose listeners
   * are all there.
   */
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
  readonly keyUses: Pick<KeyUses, 'note'>;
  readonly spool: Pick<Spool, 'hasRoom' | 'backlog'>;
  /** What accounts have in the store. */
  readonly meter: Pick<UsageMeter, 'of'>;
  readonly submitting: Submitting;
  readonly ids: Ids;
}

/**
 * Listens for mail that accounts hand over to be sent: with STARTTLS on some ports, under TLS from the start on others.
 */
export function createSubmission(settings: SubmissionSettings, deps: SubmissionDeps): Listener {
  const side = createSubmissionSide(settings, deps);
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

/**
 * What an account may ask, once it is known who it is: mail from any address (the From field decides who the sender is)
 * to any mailbox. A local part is never looked into: `a%b@c`, `b!a@c` and `"a@b"@c` are mailboxes of c, whatever they
 * mean there.
 */
function createSubmissionSide(settings: SubmissionSettings, deps: SubmissionDeps): Side {
  const { spool, meter, clock, log } = deps;
  const memory = createDataMemory(settings.maxBytesInData);
  const logins = createLogins(settings, deps);
  return frozen({
    name: 'submission' as const,
    mail: () => (spool.hasRoom() ? undefined : REFUSALS.full),
    recipient: ({ domain }) => (domain.startsWith('[') ? { refused: REFUSALS.noLiteral } : { value: null }),
    data: () => (memory.isFull() ? REFUSALS.full : undefined),
    gate: (state, client) => createLoginGate({ settings, logins, spool, meter, clock }, state, client),
    receive(state, address) {
      if (!state.login) throw new Error('DATA of nobody');
      const sink = openSubmissionSink({ ...deps, memory, tracking: settings.tracking }, state.login, state, address);
      return openReception(settings, { log, sink });
    },
  });
}
