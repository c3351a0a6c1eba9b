// The parts instead of the whole, as in authenticate.ts.

import type { ARCChainEntry, DNSResolver } from 'mailauth';
import { getARChain, verifyASChain } from 'mailauth/lib/arc/index.js';
import type { Verdicts } from '../mail/envelope.ts';
import { parseSignature, type Signature, type Unusable } from './dkim/signature.ts';
import { isUsable, type SignatureChecker } from './dkim/verify.ts';
import type { Field, HeaderSection } from './header-section.ts';
import type { MessageKeys } from './public-keys.ts';

/** The ARC sets of a message (RFC 8617), their form looked at and their signatures yet to be checked. */
export interface Chain {
  /** `none` without sets, `fail` when they are no chain. */
  readonly state: 'none' | 'fail' | 'whole';
  readonly sets: ARCChainEntry[];
  /** Where the newest ARC-Message-Signature stands. */
  readonly field: Field | undefined;
  /** How it may be read: without c= there are two opinions on what it stands for. */
  readonly readings: readonly (Signature | Unusable)[];
}

interface ChainDeps {
  readonly checker: SignatureChecker;
  readonly dns: DNSResolver;
  readonly keys: MessageKeys;
  readonly minBitLength: number;
}

/** What a header needs for fifty sets, the most there may be (RFC 8617 section 4.2.1), of reasonable length. */
const MOST_FIELDS = 150;
const LONGEST_FIELD = 16_384;
const ARC_FIELD = /^arc-(?:seal|message-signature|authentication-results)$/;

const NONE: Chain = { state: 'none', sets: [], field: undefined, readings: [] };
const BROKEN: Chain = { ...NONE, state: 'fail' };

/**
 * Finds the sets of a message. The library says whether they are a chain; its opinion on how a signature is written
 * counts no less.
 */
export function readChain({ text, fields }: Pick<HeaderSection, 'text' | 'fields'>): Chain {
  const found = fields.filter(({ name }) => ARC_FIELD.test(name));
  if (found.length === 0) return NONE;
  if (found.length > MOST_FIELDS || found.some(({ start, end }) => end - start > LONGEST_FIELD)) return BROKEN;
  const lineOf = ({ start, end }: Field): Buffer => Buffer.from(text.slice(start, end).replace(/\r?\n$/, ''), 'latin1');
  const rows = found.map((field) => ({ key: field.name, field, line: lineOf(field) }));
  try {
    const sets = getARChain({ parsed: rows }, { strict: true });
    const newest = sets === false ? undefined : sets.at(-1)?.['arc-message-signature'];
    // No two are the same: a set that is there twice is no chain.
    const field = rows.find(({ line }) => String(line) === String(newest?.original))?.field;
    if (sets === false || field === undefined) return BROKEN;
    return { state: 'whole', sets, field, readings: readingsOf(text, field) };
  } catch {
    return BROKEN;
  }
}

/**
 * Without c= it is simple/simple, as for DKIM (RFC 8617 section 4.1.2), but the drafts had relaxed/relaxed, and so have
 * dkimpy, which many lists seal with, and the public test suite (`ams_fields_c_na`). A signature that verifies in
 * either way is one.
 */
function readingsOf(text: string, { start, end }: Field): (Signature | Unusable)[] {
  const value = text.slice(text.indexOf(':', start) + 1, end);
  const simple = parseSignature(value, { of: 'arc', forms: ['simple', 'simple'] });
  const relaxed = parseSignature(value, { of: 'arc', forms: ['relaxed', 'relaxed'] });
  const said = !isUsable(simple) || !isUsable(relaxed) || simple.bodyForm === relaxed.bodyForm; // by c=, for both
  return said ? [simple] : [simple, relaxed];
}

/**
 * What the chain is worth: the newest signature over the message and every seal have to verify (RFC 8617 section 5.2).
 * All failures are permanent.
 */
export async function checkChain(
  { state, sets, field, readings }: Chain,
  { checker, dns, keys, minBitLength }: ChainDeps,
): Promise<Verdicts['arc']> {
  if (state !== 'whole' || field === undefined) return { result: state === 'none' ? 'none' : 'fail' };
  let sealed = false;
  for (const reading of readings) sealed ||= (await checker.check(field, reading)).result === 'pass';
  if (!sealed) return { result: 'fail' };
  try {
    const options = { resolver: dns, minBitLength, strict: true, keyCache: keys };
    return { result: (await verifyASChain({ chain: sets }, options)) ? 'pass' : 'fail' };
  } catch {
    return { result: 'fail' };
  }
}
