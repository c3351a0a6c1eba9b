import type { Clock } from '../../base/clock.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import type { Recorder } from '../../events/types.ts';
import type { Outgoing } from '../../mail/sending.ts';
import type { CustomDomains } from '../../outbound/custom-domains.ts';
import { createDomainKeys, newKeyPair } from '../../outbound/domain-keys.ts';
import { createRecent } from '../../outbound/recent.ts';
import type { Scheduling } from '../../outbound/scheduling.ts';
import type { Leaving, MailCarrier, Sources } from '../../outbound/types.ts';
import type { Spool } from '../../spool/types.ts';
import type { TokenSecret } from '../../store/secrets.ts';
import type { Store } from '../../store/store.ts';
import { createReporter, type Reporter } from './reporter.ts';
import type { MailParts } from './road.ts';
import { createSignerOf, type SignerSettings } from './signer.ts';

export interface SendingSettings extends SignerSettings {
  readonly hostname: string;
  /** How long mail is tried. */
  readonly maxAgeHours: number;
}

export interface SendingDeps {
  readonly spool: Pick<Spool, 'reports' | 'reported'>;
  readonly store: Pick<Store, 'accounts' | 'senderDomains' | 'domainKeys'>;
  readonly tokenSecret: Pick<TokenSecret, 'read'>;
  readonly recorder: Recorder;
  readonly customDomains: CustomDomains;
  readonly leaving: Leaving;
  readonly scheduling: Scheduling;
  readonly sources: Sources;
  readonly mailCarrier: MailCarrier;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** How long the number of an account is believed; it never changes, but the account may go. Milliseconds. */
const FRESH_MS = 60_000;

/** What mail going out needs of the store and of those who know about it, and who tells the store what became of it. */
export function createSending(
  settings: SendingSettings,
  deps: SendingDeps,
): { readonly mail: MailParts & { readonly limit: number }; readonly reporter: Reporter } {
  const { store, clock, tokenSecret, customDomains, leaving, scheduling, sources, mailCarrier } = deps;
  const { hostname } = settings;
  const reporter = createReporter(deps);
  const numbers = createRecent(async (id) => (await store.accounts.one({ id }))?.number, FRESH_MS);
  const keys = createDomainKeys({ store, clock, newKeyPair });
  return Object.freeze({
    reporter,
    mail: {
      leaving,
      scheduling,
      sources,
      mailCarrier,
      limit: settings.maxAgeHours * 3_600_000,
      signerOf: createSignerOf(settings, { store, keys, clock }),
      numberOf: (account: string) => numbers.get(account, clock.monotonic()),
      composing: async (account: string, { extras }: Outgoing) => ({
        hostname,
        ...(await customDomains.of(account, extras)),
        secret: await tokenSecret.read(),
      }),
      reported: reporter.poke,
    },
  });
}
