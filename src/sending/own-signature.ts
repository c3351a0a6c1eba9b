import { createPrivateKey } from 'node:crypto';
import { toAsciiDomain } from '../mail/address.ts';
import { withSendableHeader } from '../mail/compose/sendable.ts';
import { sign } from './compose/sign.ts';
import { type DomainKeys, selectorOf } from './domains/keys.ts';

interface OwnSignatureSettings {
  /** The author of our own mail (`mail.from`). */
  readonly from: string;
  /** `outbound.signing_domain`; empty: none. */
  readonly signingDomain: string;
  readonly dkimSelector: string;
}

/** Signs our own mail: notices and delivery reports. Throws `StoreAway`. */
export type SignOwn = (message: Buffer) => Promise<Buffer>;

/** The domain that signs our own mail: the signing domain if From is at or below it (DMARC), else that of From. */
export function ownSigner({ from, signingDomain }: Omit<OwnSignatureSettings, 'dkimSelector'>): string | undefined {
  const domain = toAsciiDomain(from.slice(from.lastIndexOf('@') + 1));
  return signingDomain !== '' && domain !== undefined && `.${domain}`.endsWith(`.${signingDomain}`)
    ? signingDomain
    : domain;
}

/**
 * Our own mail is always signed, whether or not the record of the key is found: until it is published, receivers take
 * the mail as unsigned (RFC 6376 section 6.1.2).
 */
export function createOwnSignature(
  settings: OwnSignatureSettings,
  { domainKeys }: { readonly domainKeys: DomainKeys },
): SignOwn {
  const domain = ownSigner(settings);
  return async (composed) => {
    const message = withSendableHeader(composed, { charset: () => '', utf8: false });
    if (domain === undefined) return message;
    const { privateKey, ...key } = await domainKeys.keyOf(domain);
    return sign(message, { domain, selector: selectorOf(key, settings), privateKey: createPrivateKey(privateKey) });
  };
}
