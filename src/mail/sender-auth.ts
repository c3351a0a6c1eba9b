import type { Author } from './addresses/author.ts';
import type { Evidence, Verdicts } from './addresses/envelope.ts';

/** Whether the author of a message is authenticated, and by what. */
export interface SenderAuth {
  /** Whether DMARC passed for the domain of From, here or at a trusted sealer. */
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

const NOTHING: Evidence = { spf: null, dkim: [], arc: { sealers: [], trusted: false } };

/**
 * Whether an author is authenticated. A message that fails DMARC is, if trusted sealers vouch for it, because
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
