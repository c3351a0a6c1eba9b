// The parts instead of the whole, as in authenticate.ts.

import type { DNSResolver } from 'mailauth';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import type { Clock } from '../base/clock.ts';
import type { Verdicts } from '../mail/envelope.ts';
import { checkChain, readChain } from './arc.ts';
import { parseSignature, type Signature } from './dkim/signature.ts';
import { createSignatureChecker, isUnknown, isUsable } from './dkim/verify.ts';
import type { Field, HeaderSection } from './header-section.ts';
import type { PublicKey } from './public-keys.ts';
import { createPublicKeys } from './public-keys.ts';
import type { RawSource } from './raw-source.ts';

/** What the signatures of a message say. */
export interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly arc: Verdicts['arc'];
  /** The d= of those that vouch for the message. */
  readonly sound: readonly string[];
  /** The d= of those that the DNS kept us from checking. */
  readonly unknown: readonly string[];
}

/** Reads the signatures of one message. Rejects only when its bytes cannot be read. */
export type ReadSignatures = (
  section: HeaderSection,
  source: RawSource,
  authors: readonly string[],
  dns: DNSResolver,
) => Promise<Signatures>;

/** As KumoMTA; a message with more of them wants to keep us busy. Each costs a look-up and a verification. */
const MOST_SIGNATURES = 10;
/** Fields that are read to find those; reading one costs nothing but time. */
const MOST_FIELDS = 100;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2

interface Candidate {
  readonly field: Field;
  readonly signature: Signature;
}

/**
 * What reads the signatures of messages, DKIM and ARC. `authors`: domains of the author, whose signatures are looked at
 * first.
 */
export function createSignatureReader(clock: Clock): ReadSignatures {
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  return async (section, source, authors, dns) => {
    const fields = section.fields.filter((field) => field.name === 'dkim-signature');
    const dkim = section.whole ? lookedAt(section, fields, authors) : [];
    const chain = readChain(section.whole ? section : { ...section, fields: [] });
    const signatures = [...dkim.map(({ signature }) => signature), ...chain.readings.filter(isUsable)];
    const keys = keysOf(dns);
    const deps = { keys, minBitLength: SHORTEST_KEY_BITS, now: clock.now() };
    const checker = await createSignatureChecker(section, source, signatures, deps);
    const [sound, unknown]: [string[], string[]] = [[], []];
    for (const { field, signature } of dkim) {
      const checked = await checker.check(field, signature);
      if (checked.result === 'pass') sound.push(signature.domain);
      else if (isUnknown(checked)) unknown.push(signature.domain);
    }
    return {
      dkim: { signed: fields.length > 0, valid: sound.length > 0 },
      arc: await checkChain(chain, { ...deps, checker, dns }),
      sound,
      unknown,
    };
  };
}

/**
 * The signatures that are checked, in this order: those that may be the author's first, and of these and of the others
 * the lowest first. Whoever handles a message adds his fields in front, so the lowest is the oldest; nothing that is
 * put in front of a message can keep its own signature from being looked at, or use up what it may ask of the DNS.
 */
function lookedAt({ text }: HeaderSection, fields: readonly Field[], authors: readonly string[]): Candidate[] {
  const found: Candidate[] = [];
  for (const field of fields.slice(-MOST_FIELDS).toReversed()) {
    if (field.end - field.start > LONGEST_SIGNATURE) continue;
    const signature = parseSignature(text.slice(text.indexOf(':', field.start) + 1, field.end));
    if (isUsable(signature)) found.push({ field, signature });
  }
  const related = new Set(authors.map(parentOf));
  const isOwn = ({ signature }: Candidate) => related.has(parentOf(signature.domain));
  return [...found.filter(isOwn), ...found.filter((one) => !isOwn(one))].slice(0, MOST_SIGNATURES);
}

/** Names that may align have these two labels in common at least (RFC 9989 section 4.10.2). */
function parentOf(domain: string): string {
  return domain.split('.').slice(-2).join('.');
}
