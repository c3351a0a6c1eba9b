import type { Clock } from '../../base/clock.ts';
import { isLoopback } from '../../base/networks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { Settings } from '../../settings.ts';
import type { Store } from '../../store/store.ts';

/** fault: mail is lost, refused or not believed · warning: it works, and should not stay like this · skipped: could not be looked at. */
export type Verdict = 'ok' | 'warning' | 'fault' | 'skipped';

/** What one look came to. */
export interface Finding {
  /** What was looked at: `reverse DNS 192.0.2.1`. */
  readonly check: string;
  readonly verdict: Verdict;
  /** What was seen there. */
  readonly seen: string;
  /** What to do about it. */
  readonly advice?: string;
}

/** What the checks look at. */
export interface World {
  readonly settings: Settings;
  /** Asks every time anew: who looks has just changed something. */
  readonly resolver: Resolver;
  readonly store: Store | undefined;
  /** Why there is none. */
  readonly noStore: string;
  readonly clock: Clock;
  /** The file that the settings came from, when there is one. */
  readonly settingsFile: string | undefined;
  /** A domain whose mail server is to be reached, to see whether port 25 is open to the outside. */
  readonly reach: string | undefined;
  /** Where the machine's files begin: `/`. */
  readonly root: string;
}

/** Looks at one thing, or at several of a kind. What it throws becomes a fault of its own. */
export interface Check {
  readonly name: string;
  run(world: World): Promise<readonly Finding[]>;
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

/** Whether every listener that takes mail from others is on loopback: a machine to try things on, of which the world knows nothing. */
export function isLocal({ smtp, submission }: Settings): boolean {
  return [...smtp.listen, ...submission.listen, ...submission.tls_listen].every(({ host }) => isLoopback(host));
}
