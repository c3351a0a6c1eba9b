import { createHash, generateKeyPair } from 'node:crypto';
import { createSingleFlight } from '../../base/cache.ts';
import type { Clock } from '../../base/clock.ts';
import { createSerialQueue } from '../../base/concurrency.ts';
import { frozen } from '../../base/frozen.ts';
import type { KeyRecordNames } from '../../dns/checks.ts';
import type { DomainKeyRow } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';

export interface KeyPair {
  /** SubjectPublicKeyInfo as base64. */
  readonly publicKey: string;
  /** PKCS #8 in PEM. */
  readonly privateKey: string;
}

/** The DKIM keys, one pair per domain. */
export type DomainKeys = ReturnType<typeof createDomainKeys>;

/** RFC 8301 section 3.2: at least 1024, should be 2048; a larger key does not fit into one UDP answer. */
const BITS = 2048;

/** Generates an RSA key pair on another thread. */
export function newKeyPair(): Promise<KeyPair> {
  return new Promise((resolve, reject) => {
    generateKeyPair(
      'rsa',
      {
        modulusLength: BITS,
        publicKeyEncoding: { type: 'spki', format: 'der' },
        privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
      },
      (error, publicKey, privateKey) => {
        if (error) reject(error);
        else resolve({ publicKey: publicKey.toString('base64'), privateKey });
      },
    );
  });
}

/** A short fingerprint of a public key, for a host name. */
function fingerprint(publicKey: string): string {
  return createHash('sha256').update(publicKey).digest('hex').slice(0, 20);
}

export function createDomainKeys(deps: {
  readonly store: Pick<Store, 'domainKeys'>;
  readonly clock: Clock;
  readonly newKeyPair: () => Promise<KeyPair>;
}) {
  const { domainKeys } = deps.store;
  const shared = createSingleFlight<DomainKeyRow>();
  /** One at a time: generating a key occupies a thread of the pool, which also reads files, for a long time. */
  const inTurn = createSerialQueue();

  async function find(domain: string): Promise<DomainKeyRow> {
    const known = await domainKeys.one({ id: domain });
    if (known) return known;
    const row = { id: domain, ...(await inTurn(deps.newKeyPair)), createdAt: new Date(deps.clock.now()) };
    if ((await domainKeys.insert(row)) === 'inserted') return row;
    const other = await domainKeys.one({ id: domain }); // another process was first
    if (!other) throw new Error('the domain key was deleted meanwhile');
    return other;
  }

  return frozen({
    /** Returns the key pair of a domain (A-labels), creating it on first use. */
    keyOf: (domain: string): Promise<DomainKeyRow> => shared(domain, () => find(domain)),
  });
}

/** The parts of key names. */
export interface KeyNames {
  readonly hostname: string;
  /** `senders.dkim_selector`. */
  readonly dkimSelector: string;
}

export function selectorOf(
  { selector }: Pick<DomainKeyRow, 'selector'>,
  { dkimSelector }: Pick<KeyNames, 'dkimSelector'>,
): string {
  return selector ?? dkimSelector;
}

/** The names of the DNS records of a domain's public key. */
export function keyRecordNames(
  { hostname }: Pick<KeyNames, 'hostname'>,
  domain: string,
  key: { readonly selector: string; readonly publicKey: string },
): KeyRecordNames {
  return { name: `${key.selector}._domainkey.${domain}`, target: `${fingerprint(key.publicKey)}.dkim.${hostname}` };
}

export function keyRecord(publicKey: string): string {
  return `v=DKIM1; k=rsa; p=${publicKey}`;
}
