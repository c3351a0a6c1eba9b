import type { Clock } from '../../base/clock.ts';
import { toAsciiDomain } from '../../mail/address.ts';
import type { Outgoing } from '../../mail/sending.ts';
import type { DomainKeys } from '../../outbound/domain-keys.ts';
import { mayBeSigned } from '../../outbound/domain-tests.ts';
import { selectorOf } from '../../outbound/key-rotation.ts';
import { createRecent } from '../../outbound/recent.ts';
import type { ComposeJob } from '../../outbound/types.ts';
import { senderDomainId } from '../../store/sender-domains.ts';
import type { Store } from '../../store/store.ts';
import type { SignerOf } from './road.ts';

export interface SignerSettings {
  /** Signs when the sender's domain may not; empty: then nothing does. Its record is the operator's to publish. */
  readonly ownDomain: string;
  readonly dkimSelector: string;
}

export interface SignerDeps {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly keys: DomainKeys;
  readonly clock: Clock;
}

type Signer = ComposeJob['dkim'];

/** How long an answer is believed: a domain that was verified just now need not wait for long. */
const FRESH_MS = 10_000;

/** Who signs a message: the domain that its account named for it, else the sender's, if it may; else our own; else nobody. */
export function createSignerOf(
  { ownDomain, dkimSelector }: SignerSettings,
  { store, keys, clock }: SignerDeps,
): SignerOf {
  const known = createRecent(find, FRESH_MS);

  /** `key` is an account and domains that may be asked for, apart by spaces: neither holds one. */
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
