import { createReadCache } from '../base/cache.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { Recorder } from '../events/record.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { Spool } from '../queue/delivery.ts';
import type { TokenSecret } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import type { Copies } from './copies.ts';
import type { CustomDomains } from './domains/custom-domains.ts';
import type { OwnDomains } from './domains/own-domains.ts';
import { createReporter } from './reporter.ts';
import type { OutboundParts } from './road.ts';
import type { Signing } from './signing.ts';

interface SendingDeps
  extends Omit<OutboundParts, 'signerOf' | 'mayWriteFrom' | 'numberOf' | 'composing' | 'reported'>,
    Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'reports' | 'reported'>;
  readonly store: Pick<Store, 'accounts'>;
  readonly signing: Pick<Signing, 'signerOf'>;
  readonly tokenSecret: Pick<TokenSecret, 'read'>;
  readonly recorder: Recorder;
  readonly customDomains: CustomDomains;
  readonly ownDomains: OwnDomains;
  readonly copies: OutboundParts['copies'] & Pick<Copies, 'ended'>;
}

/** How long an account's number is cached. It never changes, but the account may be deleted. Milliseconds. */
const FRESH_MS = 60_000;

/** Builds the parts of outbound delivery that use the store, and the reporter that records results there. */
export function createSending({ hostname }: { readonly hostname: string }, deps: SendingDeps) {
  const { store, clock, tokenSecret, customDomains, sendingQuota, scheduling, copies, sources, mailCarrier } = deps;
  const reporter = createReporter(deps);
  const numbers = createReadCache(async (id) => (await store.accounts.one({ id }))?.number, FRESH_MS);
  return frozen({
    reporter,
    mail: {
      sendingQuota,
      scheduling,
      copies,
      sources,
      mailCarrier,
      signerOf: deps.signing.signerOf,
      mayWriteFrom: deps.ownDomains.mayWriteFrom,
      numberOf: (account: string) => numbers.get(account, clock.monotonic()),
      composing: async (account: string, { extras, host = hostname }: Outgoing) => ({
        hostname: host,
        ...(await customDomains.of(account, extras)),
        secret: await tokenSecret.read(),
      }),
      reported: reporter.poke,
    },
  });
}
