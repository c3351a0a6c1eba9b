import type { Clock } from '../base/clock.ts';
import { type HostPort, isLoopback } from '../base/networks.ts';
import type { Resolver } from '../dns/types.ts';
import type { CopyMarks } from '../queue/copy-marks.ts';
import type { Spool } from '../queue/delivery.ts';
import type { Settings } from '../settings.ts';
import type { Store } from '../store/store.ts';

/** fault: mail is lost, refused or distrusted · warning: works, but should be fixed · skipped: could not be checked. */
export type CheckVerdict = 'ok' | 'warning' | 'fault' | 'skipped';

/** The result of one check. */
export interface Finding {
  /** The thing checked: `reverse DNS 192.0.2.1`. */
  readonly check: string;
  readonly verdict: CheckVerdict;
  /** The result, as text. */
  readonly seen: string;
  /** How to fix it. */
  readonly advice?: string;
}

/** The input of the checks. */
export interface CheckContext {
  readonly settings: Settings;
  /** Without a cache, because the operator has often just changed a record. */
  readonly resolver: Resolver;
  readonly store: Store | undefined;
  /** Why there is no store. */
  readonly noStore: string;
  readonly queue:
    | (Pick<Spool, 'endpoints' | 'ages' | 'count'> & { readonly copies: Pick<CopyMarks, 'missing'> })
    | undefined;
  /** Why there is no queue. */
  readonly noQueue: string;
  readonly listeners: DaemonAddresses;
  readonly clock: Clock;
  /** The settings file, if there is one. */
  readonly settingsFile: string | undefined;
  /** The domain with whose mail server to test outbound port 25; undefined: one is chosen. */
  readonly reach: string | undefined;
  /** The root of the file system: `/`. */
  readonly root: string;
}

/** The listeners: the actual ones if the daemon itself runs the checks, else those of its settings. */
interface DaemonAddresses {
  readonly smtp: readonly HostPort[];
  readonly submission: readonly HostPort[];
  readonly http: HostPort;
}

/** The listeners in the settings. */
export function listenersOf({ smtp, submission, http }: Settings): DaemonAddresses {
  return { smtp: smtp.listen, submission: [...submission.listen, ...submission.tls_listen], http: http.listen };
}

/** The world of a command on this machine, with neither store nor queue. */
export const contextWithout = (
  why: string,
  given: Pick<CheckContext, 'settings' | 'resolver' | 'clock' | 'root'>,
): CheckContext => ({
  store: undefined,
  noStore: why,
  queue: undefined,
  noQueue: why,
  listeners: listenersOf(given.settings),
  settingsFile: undefined,
  reach: undefined,
  ...given,
});

/** Checks one thing, or several of a kind, and yields findings. An error that it throws becomes a fault. */
export interface Check {
  readonly name: string;
  run(world: CheckContext): AsyncIterable<Finding>;
}

export const ok = (check: string, seen: string): Finding => ({ check, verdict: 'ok', seen });
export const warning = (check: string, seen: string, advice: string): Finding => ({
  check,
  verdict: 'warning',
  seen,
  advice,
});
export const fault = (check: string, seen: string, advice: string): Finding => ({
  check,
  verdict: 'fault',
  seen,
  advice,
});
export const skipped = (check: string, seen: string): Finding => ({ check, verdict: 'skipped', seen });

/** Whether every SMTP listener is on loopback: a test machine that is not reachable from outside. */
export function isLocal({ listeners: { smtp, submission } }: Pick<CheckContext, 'listeners'>): boolean {
  return [...smtp, ...submission].every(({ host }) => isLoopback(host));
}
