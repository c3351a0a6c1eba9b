import { toAsciiDomain } from './address.ts';

// Inbound domains are names, or all names below one, written as in the DNS: `*.in.example.com` (RFC 4592). As there, it
// covers names of any depth and not in.example.com itself.

const MARK = '*.';

/**
 * The name of an inbound domain in A-labels, after `*.` if it is for all below; undefined if it is invalid
 * (`toAsciiDomain`).
 */
export function toInboundDomain(text: string): string | undefined {
  if (!isWildcard(text)) return toAsciiDomain(text);
  const base = toAsciiDomain(baseOf(text));
  return base === undefined ? undefined : `${MARK}${base}`;
}

export const isWildcard = (name: string): boolean => name.startsWith(MARK);

/** The name itself, or the one that all the others are below. */
export const baseOf = (name: string): string => (isWildcard(name) ? name.slice(MARK.length) : name);

/** A name that the domain covers, for lookups and examples: itself, or `any` below it. */
export const memberOf = (name: string): string => (isWildcard(name) ? `any.${baseOf(name)}` : name);

/** Whether mail to `name` is mail to the inbound domain. */
export const covers = (domain: string, name: string): boolean =>
  domain === name || (isWildcard(domain) && name.endsWith(domain.slice(1)));

/** The wildcards that cover a name, the longest first; of a wildcard, those that cover all of it. */
export function wildcardsAbove(name: string): readonly string[] {
  const labels = baseOf(name).split('.');
  return labels.slice(1).map((_, at) => `${MARK}${labels.slice(at + 1).join('.')}`);
}
