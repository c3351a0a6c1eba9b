import type { Clock } from '../../src/base/clock.ts';
import type { Ids } from '../../src/base/ids.ts';
import type { Log } from '../../src/base/log.ts';
import type { DnsAnswer, DnsBudget, MxRecord, RecordType, Resolver } from '../../src/dns/types.ts';
import { createDomainTests } from '../../src/sending/domains/domain-tests.ts';
import { createKeySwitch } from '../../src/sending/domains/key-rotation.ts';
import { createDomainKeys, type KeyPair } from '../../src/sending/domains/keys.ts';
import { createSenderDomains } from '../../src/sending/domains/sender-domains.ts';
import { createTrackingDomains } from '../../src/sending/domains/tracking-domains.ts';
import { createNotices } from '../../src/sending/notices.ts';
import type { MailOutcome, NoticeMail } from '../../src/sending/types.ts';
import { newSenderDomain, trackingDomainId } from '../../src/store/rows/domains.ts';
import type { Store } from '../../src/store/store.ts';
import { createSureTime } from './clock.ts';

import { type ZoneRecords, zoneResolver } from './zone.ts';

/** The key pair of every domain: no RSA is waited for. */
export const TEST_KEYS: KeyPair = {
  publicKey: 'RXhhbXBsZUtleQ==',
  privateKey: '-----BEGIN PRIVATE KEY-----\nVGhlIHNlY3JldA==\n-----END PRIVATE KEY-----\n',
};
/** What belongs into the DNS with it. */
export const TEST_TXT = `v=DKIM1; k=rsa; p=${TEST_KEYS.publicKey}`;
export const TEST_SPF = 'v=spf1 include:spf.mx.postern.test ~all';

/** A mailer that keeps what it was given; `outcome` says what becomes of it. */
export function createTestMailer() {
  const mails: NoticeMail[] = [];
  const mailer = {
    mails,
    outcome: async (_mail: NoticeMail): Promise<MailOutcome> => ({ kind: 'sent' }),
    async send(mail: NoticeMail): Promise<MailOutcome> {
      mails.push(mail);
      return mailer.outcome(mail);
    },
    stop() {},
  };
  return mailer;
}

interface Deps {
  readonly store: Store;
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly newKeyPair?: () => Promise<KeyPair>;
}

/** Sender domains and notices as the daemon builds them, with a mailer that sends nothing. */
export function createTestSenders({ store, resolver, clock, ids, log, newKeyPair = async () => TEST_KEYS }: Deps) {
  const settings = {
    hostname: 'mx.postern.test',
    publicUrl: 'https://postern.test',
    spfInclude: 'spf.mx.postern.test',
    dkimSelector: 'postern',
  };
  const mailer = createTestMailer();
  const notices = createNotices({
    from: 'postmaster@mx.postern.test',
    store,
    mailer,
    clock,
    time: createSureTime(clock),
    ids,
    log,
  });
  const keys = createDomainKeys({ store, clock, newKeyPair });
  const keySwitch = createKeySwitch(settings, { store, resolver, clock, log });
  const domainTests = createDomainTests(settings, { store, resolver, keys, keySwitch, clock });
  const trackingDomains = createTrackingDomains(settings, { store, resolver, clock });
  return {
    mailer,
    notices,
    keys,
    domainTests,
    keySwitch,
    trackingDomains,
    senderDomains: createSenderDomains(settings, { store, tests: domainTests, keys, resolver, notices, clock, ids }),
  };
}

/**
 * A resolver over a zone that may change between questions; `meanwhile` is what happens between an answer and its
 * arrival.
 */
export function changingResolver(
  zone: () => ZoneRecords,
  meanwhile: (name: string, type: RecordType) => Promise<unknown> = async () => undefined,
): Resolver {
  function resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  async function resolve(
    name: string,
    type: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    const now = zoneResolver(zone());
    const answer = await (type === 'MX' ? now.resolve(name, type, budget) : now.resolve(name, type, budget));
    await meanwhile(name, type);
    return answer;
  }
  return { resolve, addresses: (host, budget) => zoneResolver(zone()).addresses(host, budget), stop: async () => {} };
}

/** The tracking domain of the examples. */
export async function seedTrackingDomains(store: Store, account: string): Promise<void> {
  const createdAt = new Date('2026-01-05T11:00:00Z');
  const domain = 'track.example.com';
  await store.trackingDomains.insert({
    id: trackingDomainId(account, domain),
    account,
    domain,
    createdAt,
    lastTestedAt: null,
    valid: null,
    validAfter: null,
    error: null,
    nextTestAt: createdAt,
    version: 0,
  });
}

/** The sender domain of the examples. */
export async function seedSenderDomains(store: Store, account: string): Promise<void> {
  await store.senderDomains.insert(newSenderDomain(account, 'example.com', new Date('2026-01-05T11:00:00Z')));
}
