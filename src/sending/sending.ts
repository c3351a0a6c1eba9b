import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { createRecent } from '../base/memory.ts';
import type { Recorder } from '../events/record.ts';
import { toAsciiDomain } from '../mail/address.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { Spool } from '../queue/delivery.ts';
import { senderDomainId } from '../store/rows/domains.ts';
import type { TokenSecret } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import type { CustomDomains } from './domains/custom-domains.ts';
import { mayBeSigned } from './domains/domain-tests.ts';
import { type DomainKeys, selectorOf } from './domains/keys.ts';
import type { OwnDomains } from './domains/own-domains.ts';
import { createReporter, type Reporter } from './reporter.ts';
import type { MailParts, SignerOf } from './road.ts';
import type { Scheduling } from './scheduling.ts';
import type { ComposeJob, Leaving, MailCarrier, Sources } from './types.ts';

interface SendingSettings extends SignerSettings {
  readonly hostname: string;
}

interface SendingDeps {
  readonly spool: Pick<Spool, 'reports' | 'reported'>;
  readonly store: Pick<Store, 'accounts' | 'senderDomains'>;
  readonly domainKeys: DomainKeys;
  readonly tokenSecret: Pick<TokenSecret, 'read'>;
  readonly recorder: Recorder;
  readonly customDomains: CustomDomains;
  readonly ownDomains: OwnDomains;
  readonly leaving: Leaving;
  readonly scheduling: Scheduling;
  readonly sources: Sources;
  readonly mailCarrier: MailCarrier;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** How long an account's number is cached. It never changes, but the account may be deleted. Milliseconds. */
const FRESH_MS = 60_000;

/** Builds what the outbound road needs from the store, and the reporter that records results there. */
export function createSending(
  settings: SendingSettings,
  deps: SendingDeps,
): { readonly mail: MailParts; readonly reporter: Reporter } {
  const { store, domainKeys, clock, tokenSecret, customDomains, leaving, scheduling, sources, mailCarrier } = deps;
  const { hostname } = settings;
  const reporter = createReporter(deps);
  const numbers = createRecent(async (id) => (await store.accounts.one({ id }))?.number, FRESH_MS);
  return frozen({
    reporter,
    mail: {
      leaving,
      scheduling,
      sources,
      mailCarrier,
      signerOf: createSignerOf(settings, { store, keys: domainKeys, clock }),
      mayWriteFrom: deps.ownDomains.mayWriteFrom,
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

interface SignerSettings {
  /** Signs if the sender's domain may not; empty: such mail is not signed. The operator publishes its DKIM record. */
  readonly ownDomain: string;
  readonly dkimSelector: string;
}

interface SignerDeps {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly keys: DomainKeys;
  readonly clock: Clock;
}

type Signer = ComposeJob['dkim'];

/** How long the signer is cached: short, because a domain may just have been verified. Milliseconds. */
const KEY_FRESH_MS = 10_000;

/**
 * Chooses the signer of a message: the domain that its account named, else the sender's, if allowed; else our own; else
 * none.
 */
export function createSignerOf(
  { ownDomain, dkimSelector }: SignerSettings,
  { store, keys, clock }: SignerDeps,
): SignerOf {
  const known = createRecent(find, KEY_FRESH_MS);

  /** `key` is an account and candidate domains, separated by spaces, which neither contains. */
  async function find(key: string): Promise<Signer> {
    const [account = '', ...wanted] = key.split(' ');
    for (const domain of wanted) {
      const row = await store.senderDomains.one({ id: senderDomainId(account, domain) });
      if (row && mayBeSigned(row, new Date(clock.now()))) return await signAs(domain);
    }
    return ownDomain === '' ? null : await signAs(ownDomain);
  }

  async function signAs(domain: string): Promise<Signer> {
    const { privateKey, ...key } = await keys.keyOf(domain);
    return { domain, selector: selectorOf(key, { dkimSelector }), privateKey };
  }

  return (account: string, { sender, signingDomain }: Outgoing) => {
    const named = [signingDomain ?? '', sender.slice(sender.lastIndexOf('@') + 1)];
    const wanted = new Set(named.flatMap((name) => toAsciiDomain(name) ?? []));
    return known.get([account, ...wanted].join(' '), clock.monotonic());
  };
}
