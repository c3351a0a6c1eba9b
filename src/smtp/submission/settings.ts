import type { Ids } from '../../base/ids.ts';
import type { ClickTracking } from '../../mail/sending.ts';
import type { Submitting } from '../../outbound/types.ts';
import type { Spool } from '../../spool/types.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import type { ListenEntry, ListenerDeps, ListenerSettings } from '../settings.ts';

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
