import type { Author } from './author.ts';
import type { Verdicts } from './envelope.ts';

/** Whether the author of a message may be believed, and why. */
export interface SenderAuth {
  /** Whether the domain of From is who sent it: DMARC passed, or a trusted sealer saw it pass. */
  readonly authenticated: boolean;
  /** The domain of the author; null if there is none, or more than one. */
  readonly domain: string | null;
  /** What authenticated it. */
  readonly by: 'dmarc' | 'arc' | null;
  readonly dmarc: Verdicts['dmarc'] & { readonly domain: string | null };
  readonly spf: { readonly result: string; readonly domain: string | null };
  readonly dkim: Evidence['dkim'];
  readonly arc: Verdicts['arc'] & Evidence['arc'];
}

/** What the verdicts were taken from. */
export interface Evidence {
  /** The domain that SPF was checked for: that of MAIL FROM, or HELO. Null if it was not checked. */
  readonly spf: string | null;
  /** Each DKIM signature that was checked, with d=, s= and its result (RFC 8601 section 2.7.1). */
  readonly dkim: readonly {
    readonly domain: string;
    readonly selector: string;
    readonly result: string;
    /** Whether it passed for a domain that stands for the author's. */
    readonly aligned: boolean;
  }[];
  readonly arc: {
    /** Domains of the seals of a chain that passed, the newest first. */
    readonly sealers: readonly string[];
    /** Whether trusted sealers handed the message on, and the first of them saw DMARC pass for this author. */
    readonly trusted: boolean;
  };
}

const NOTHING: Evidence = { spf: null, dkim: [], arc: { sealers: [], trusted: false } };

/**
 * Whether an author may be believed. A message that fails DMARC is believed if trusted sealers vouch for it, because
 * forwarding breaks signatures; one whose author is unclear, or whose policy is unknown, is not.
 */
export function senderAuthOf(verdicts: Verdicts, author: Author): SenderAuth {
  const { spf, dmarc, arc, evidence = NOTHING } = verdicts;
  const domain = author.certain ? (author.domains[0] ?? null) : null;
  const by = domain === null ? null : provenBy(dmarc.result, evidence.arc.trusted);
  return {
    authenticated: by !== null,
    domain,
    by,
    dmarc: { result: dmarc.result, policy: dmarc.policy, domain, aligned: dmarc.aligned },
    spf: { result: spf.result, domain: evidence.spf },
    dkim: evidence.dkim,
    arc: { result: arc.result, ...evidence.arc },
  };
}

function provenBy(dmarc: string, vouched: boolean): SenderAuth['by'] {
  if (dmarc === 'pass') return 'dmarc';
  return dmarc === 'fail' && vouched ? 'arc' : null;
}
