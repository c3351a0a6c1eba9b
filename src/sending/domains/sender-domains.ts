import { DAY_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { tokenHash } from '../../base/ids.ts';
import type { Tools } from '../../base/tools.ts';
import { acceptsMail, type KeyRecordNames } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import { isFreeMail, isPublicSuffix } from '../../mail/addresses/reserved-names.ts';
import { noteSenderDomain, type SenderDomainRow, senderDomainId } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import type { Notices } from '../notices.ts';
import type { DomainTests, SenderSettings } from './domain-tests.ts';
import { type DomainKeys, keyRecord, keyRecordNames, selectorOf } from './keys.ts';

interface SenderDomainSettings extends SenderSettings {
  /** Base of links, without a trailing slash. */
  readonly publicUrl: string;
}

/** A DKIM record to be published. */
export interface KeyInDns {
  readonly selector: string;
  readonly names: KeyRecordNames;
  readonly txt: string;
}

/** The DNS records that a domain needs. */
interface DnsRecords extends KeyInDns {
  readonly spfInclude: string;
  /** During a rotation: the key that will sign once its record is published. */
  readonly next: KeyInDns | null;
  /** The previous key, and how long its record has to stay. */
  readonly previous: (KeyInDns & { readonly keepUntil: Date }) | null;
}

/** The state of a verification link. */
export type Link =
  | { readonly state: 'open' | 'done'; readonly domain: string }
  | { readonly state: 'used' | 'expired' | 'unknown' };

/** The result of a request to verify a domain. */
type Verifying = 'sent' | 'already_verified' | 'free-mail' | 'public-suffix' | 'no-mail' | 'limited' | 'refused';

/** The API's operations on sender domains. Domains are A-labels here. */
export type SenderDomains = ReturnType<typeof createSenderDomains>;

interface SenderDomainDeps extends Pick<Tools, 'clock' | 'ids'> {
  readonly store: Pick<Store, 'senderDomains' | 'verifications'>;
  readonly tests: DomainTests;
  readonly keys: DomainKeys;
  /** Checks whether a domain accepts mail; should not cache. */
  readonly resolver: Resolver;
  readonly notices: Pick<Notices, 'enqueue'>;
}

const LINK_MS = 7 * DAY_MS;

export function createSenderDomains(settings: SenderDomainSettings, deps: SenderDomainDeps) {
  const { store, tests, keys, resolver, notices, clock, ids } = deps;
  const now = () => new Date(clock.now());

  async function noted(account: string, domain: string): Promise<SenderDomainRow> {
    const row = await noteSenderDomain(store, account, domain, now());
    if (!row) throw new Error('the domain name is invalid');
    return row;
  }

  /** Returns the row of a domain, adding it and its key if needed. */
  async function add(account: string, domain: string): Promise<SenderDomainRow> {
    const row = await noted(account, domain);
    await keys.keyOf(row.domain);
    return row;
  }

  /**
   * Mails a link to `mailbox` at the domain. `free-mail`, `public-suffix`: nobody can own it. `no-mail`: DNS says that
   * it accepts no mail. `limited`: too many were mailed already.
   */
  async function verify(account: string, domain: string, mailbox: string): Promise<Verifying> {
    if (isFreeMail(domain)) return 'free-mail';
    if (isPublicSuffix(domain)) return 'public-suffix';
    const { verifiedAt } = await noted(account, domain);
    if (verifiedAt !== null) return 'already_verified';
    if ((await acceptsMail(resolver, domain)) === false) return 'no-mail';
    const token = ids.key();
    const at = clock.now();
    const email = `${mailbox}@${domain}`;
    const id = tokenHash(token);
    // The row first: a link must not be mailed before it works.
    await store.verifications.insert({
      id,
      account,
      domain,
      email,
      createdAt: new Date(at),
      expiresAt: new Date(at + LINK_MS),
      usedAt: null,
    });
    const outcome = await notices.enqueue({
      account,
      to: email,
      ...letter(domain, `${settings.publicUrl}/verify/${token}`),
    });
    if (outcome === 'queued') return 'sent';
    await store.verifications.remove({ id });
    return outcome;
  }

  /** Returns the state of a link without following it. */
  async function look(token: string): Promise<Link> {
    const row = await store.verifications.one({ id: tokenHash(token) });
    if (!row) return { state: 'unknown' };
    if (row.usedAt !== null) return { state: 'used' };
    return row.expiresAt <= now() ? { state: 'expired' } : { state: 'open', domain: row.domain };
  }

  /** Follows a link: verifies the domain for the account that requested it. */
  async function follow(token: string): Promise<Link> {
    const id = tokenHash(token);
    const link = await look(token);
    const row = link.state === 'open' ? await store.verifications.one({ id }) : undefined;
    if (!row) return link;
    const domain = senderDomainId(row.account, row.domain);
    // The domain first: after an interruption the link still works, and verifying twice changes nothing.
    await store.senderDomains.change({ id: domain, verifiedAt: null }, { verifiedAt: now() });
    const first = await store.verifications.change({ id, usedAt: null }, { usedAt: now() });
    const verified = await store.senderDomains.one({ id: domain });
    if (verified) await tests.test(verified);
    return first ? { state: 'done', domain: row.domain } : { state: 'used' };
  }

  return frozen({
    add,
    /** Adds the domain if needed, and tests its records now. */
    check: async (account: string, domain: string): Promise<SenderDomainRow> =>
      tests.test(await noted(account, domain)),
    async records(account: string, domain: string): Promise<DnsRecords> {
      const row = await noted(account, domain);
      const { publicKey, next, previous, ...key } = await keys.keyOf(row.domain);
      const inDns = (one: { readonly selector: string; readonly publicKey: string }): KeyInDns => ({
        selector: one.selector,
        names: keyRecordNames(settings, row.domain, one),
        txt: keyRecord(one.publicKey),
      });
      return {
        ...inDns({ selector: selectorOf(key, settings), publicKey }),
        spfInclude: settings.spfInclude,
        next: next ? inDns(next) : null,
        previous: previous && previous.keepUntil > now() ? { ...inDns(previous), keepUntil: previous.keepUntil } : null,
      };
    },
    verify,
    look,
    follow,
  });
}

/** The mail with the link. The only user input in it is the domain name: letters, digits, dots and hyphens. */
function letter(domain: string, link: string) {
  return {
    subject: `Please confirm that ${domain} is yours`.slice(0, 200),
    text: `Someone asked to send mail from ${domain}, and chose this mailbox to confirm that they own the domain.

If it was you, open this page and press the button:

${link}

The link works once, within seven days.

If it was not you, ignore this mail. Without your confirmation, no mail is signed for the domain.
`,
  };
}
