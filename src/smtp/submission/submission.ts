import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { ClickTracking } from '../../mail/outgoing.ts';
import type { Spool } from '../../queue/delivery.ts';
import type { Submitting } from '../../sending/submit.ts';
import type { KeyUses } from '../../store/key-uses.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import {
  createListenerFor,
  type ListenAddress,
  type ListenEntry,
  type Listener,
  type ListenerDeps,
  type ListenerSettings,
  type TlsSettings,
} from '../listener.ts';
import { openReception } from '../reception.ts';
import { REFUSALS } from '../replies.ts';
import type { Side } from '../session.ts';
import { maxBytesFor } from '../workload.ts';
import { createLoginGate, createLogins } from './login.ts';
import { createDataMemory, openSubmissionSink } from './submit-message.ts';

/** The `submission` settings of config/default.yaml; session limits are those of `smtp`. */
export interface SubmissionSettings extends ListenerSettings {
  /** Where to listen with implicit TLS. */
  readonly tlsListen: readonly ListenEntry[];
  /** Login requires TLS. */
  readonly requireTls: boolean;
  /** All listeners are on loopback, out of reach of other machines: without a certificate, no login there needs TLS. */
  readonly loopbackOnly: boolean;
  /** Tracking of messages that do not specify it. */
  readonly tracking: { readonly opens: boolean; readonly clicks: ClickTracking };
  /** Total bytes of the messages in DATA at one time. */
  readonly maxBytesInData: number;
  /** Wrong keys from one address per minute. */
  readonly maxBadKeysPerMinute: number;
  /** Bytes that an account may have in the store; at this limit it cannot submit mail. */
  readonly maxAccountBytes: number;
}

/** The parts that submission depends on. */
export interface SubmissionDeps extends Pick<ListenerDeps, 'clock' | 'log' | 'notes' | 'metrics'> {
  readonly store: Pick<Store, 'keys' | 'accounts' | 'templates'>;
  readonly keyUses: Pick<KeyUses, 'note'>;
  readonly spool: Pick<Spool, 'hasRoom' | 'backlog'>;
  /** Storage used by accounts. */
  readonly meter: Pick<UsageMeter, 'of'>;
  readonly submitting: Submitting;
  readonly ids: Ids;
}

/** The listeners for submission as one. */
interface SubmissionListener extends Listener {
  /** Where each of them listens. */
  listeners(): readonly { readonly implicitTls: boolean; readonly addresses: readonly ListenAddress[] }[];
}

/** Creates the listeners for mail that accounts submit: with STARTTLS on some ports, with implicit TLS on others. */
export function createSubmission(settings: SubmissionSettings, deps: SubmissionDeps): SubmissionListener {
  const side = createSubmissionSide(settings, deps);
  const kinds = [
    { implicitTls: false, listen: settings.listen },
    { implicitTls: true, listen: settings.tlsListen },
  ].filter(({ listen }) => listen.length > 0);
  const listeners = kinds.map((kind) => createListenerFor(side, { ...settings, ...kind }, deps));
  const started = new Set<Listener>();
  let stopping = false;

  /** Listeners with implicit TLS start once there is a certificate: the library would generate one. */
  async function startWith(tls: TlsSettings | undefined) {
    for (const [i, listener] of listeners.entries()) {
      if (stopping || started.has(listener) || (kinds[i]?.implicitTls && !tls)) continue;
      await listener.start();
      started.add(listener);
    }
  }

  async function stop(graceMs?: number) {
    stopping = true;
    await Promise.all(listeners.map((listener) => listener.stop(graceMs)));
  }

  return frozen({
    async start() {
      try {
        await startWith(settings.tls);
        if (started.size < listeners.length)
          deps.log.warn('submission.note', {
            note: 'no certificate yet; ports with implicit TLS open once there is one',
          });
      } catch (error) {
        await stop(0);
        throw error;
      }
    },
    stop,
    addresses: () => [...started].flatMap((listener) => listener.addresses()),
    listeners: () =>
      kinds.flatMap(({ implicitTls }, i) => {
        const listener = listeners[i];
        return listener && started.has(listener) ? [{ implicitTls, addresses: listener.addresses() }] : [];
      }),
    async reload(tls) {
      for (const listener of listeners) await listener.reload(tls);
      await startWith(tls);
    },
    healthy: () => [...started].every((listener) => listener.healthy()),
  });
}

/**
 * Creates the side for submission: after login, mail from any address (the From field determines the sender) to any
 * mailbox. Local parts are never interpreted: `a%b@c`, `b!a@c` and `"a@b"@c` are mailboxes of c.
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
      if (!state.login || !state.transaction) throw new Error('DATA without a login or a transaction');
      const sink = openSubmissionSink({ ...deps, memory, tracking: settings.tracking }, state.login, state, address);
      const most = maxBytesFor(state.transaction, settings.maxMessageBytes);
      return openReception({ ...settings, mostBytes: most }, { log, sink });
    },
  });
}
