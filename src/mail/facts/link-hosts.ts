import { domainToASCII, domainToUnicode } from 'node:url';
import { parse } from 'tldts';
import { percentDecoded } from '../../base/form-pairs.ts';
import type { PageLink } from './page.ts';

// Links whose text or address misleads about their target. Redirects are not followed and not judged.

/** Facts of links. */
export const LINK_REASONS = {
  'other-host': 'its text names another host',
  userinfo: 'its address has a host name before the @, where a user name belongs',
  'mixed-script': 'a label of its host mixes similar letters of several scripts',
} as const satisfies Readonly<Record<string, string>>;

type LinkReason = keyof typeof LINK_REASONS;

export interface LinkFact {
  readonly why: LinkReason;
  readonly text: string;
  /** The host in the text, or before the `@`; null: none. */
  readonly text_host: string | null;
  readonly href: string;
  /** The host of the target, as ASCII (Punycode). */
  readonly host: string;
}

const LONGEST_SHOWN = 500;
const MAX_NAMED = 20;
const DOT = /[.\u3002\uff0e\uff61]/;
/** The mark of an address with a user name, or of a host in other letters. */
const ODD_ADDRESS = /@|xn--|%|[^\u0020-\u007e]/i;
const LONGEST_AUTHORITY = 500;
/** Candidates for hosts, addresses and URLs in a text. */
const WORD = /[\p{L}\p{N}\p{M}_.\u3002\uff0e\uff61:/@?#=&%+~-]{4,}/gu;
/** Names that are never registered, but are used in private and in documents (RFC 2606, RFC 6761). */
const PRIVATE = /\.(?:example|test|invalid|localhost|local|internal|lan|home|corp)$/;
/** Top-level domains that are more often the end of a file name. */
const FILE = /\.(?:zip|mov|md|py|sh|pl|rs|ps|ai|app|cab|java|so|cc|mm)$/;
const INVISIBLE = /[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/** The facts of a link; undefined: none. */
export function linkFact({ href, text }: PageLink, base: string | undefined): LinkFact | undefined {
  // Most links need not be parsed: their text names no host, and their address is an ordinary one.
  if (!DOT.test(text) && !ODD_ADDRESS.test(href.slice(0, LONGEST_AUTHORITY))) return undefined;
  const target = toTarget(href, base);
  if (!target) return undefined;
  const { host, user } = target;
  const shown = text.replaceAll(/\s{1,8192}/g, ' ').trim();
  const fact = (why: LinkReason, named: string | null): LinkFact => ({
    why,
    text: shown.slice(0, LONGEST_SHOWN).toWellFormed(),
    text_host: named,
    href: href.trim().slice(0, LONGEST_SHOWN).toWellFormed(),
    host,
  });
  const named = hostsIn(shown.replaceAll(INVISIBLE, ''));
  const other = named.some((one) => isSame(one, host)) ? undefined : named[0];
  if (other !== undefined) return fact('other-host', other);
  const [first] = hostsIn(user);
  if (first !== undefined && !isSame(first, host)) return fact('userinfo', first);
  return isMixed(host) ? fact('mixed-script', null) : undefined;
}

interface Target {
  readonly host: string;
  readonly user: string;
}

function toTarget(href: string, base: string | undefined): Target | undefined {
  const trimmed = href.trim();
  const address = /^[\\/]{2}/.test(trimmed) ? `https:${trimmed}` : trimmed;
  const url = URL.parse(address, base) ?? URL.parse(address);
  if (!url) return undefined;
  if (url.protocol === 'mailto:') {
    const host = toAscii(/@([^@?,\s]{1,255})(?:[?,]|$)/.exec(url.pathname)?.[1] ?? '');
    return host === '' ? undefined : { host, user: '' };
  }
  if (!/^(?:https?|ftp):$/.test(url.protocol) || url.hostname === '') return undefined;
  return { host: url.hostname.replace(/\.$/, ''), user: percentDecoded(`${url.username} ${url.password}`) };
}

/** The hosts that a text names, as ASCII. A name without http:// or www. must be one that somebody can register. */
function hostsIn(text: string): readonly string[] {
  const found: string[] = [];
  for (const [word] of text.matchAll(WORD)) {
    if (!DOT.test(word)) continue;
    const [, scheme, rest = word] = /(https?:\/\/)(.*)$/i.exec(word) ?? [];
    const [authority = ''] = rest.split(/[/?#]/, 1);
    const name = authority
      .slice(authority.lastIndexOf('@') + 1)
      .replace(/:\d{0,5}$/, '')
      .replace(/^[.:=~+-]+|[.:=~+-]+$/g, '');
    const host = name.length > 300 ? '' : toAscii(name);
    if (!/^[a-z0-9_-]+(?:\.[a-z0-9_-]+)+$/.test(host)) continue;
    if (scheme !== undefined || host.startsWith('www.') || isRegistrable(host)) found.push(host);
    if (found.length >= MAX_NAMED) break;
  }
  return found;
}

const toAscii = (name: string): string => domainToASCII(name.toLowerCase()).replace(/\.$/, '');

function isRegistrable(host: string): boolean {
  if (PRIVATE.test(host)) return true;
  const { isIcann, isPrivate, domain } = parse(host, { allowPrivateDomains: true });
  return (isIcann === true || isPrivate === true) && domain !== null && !FILE.test(host);
}

/** Hosts below the same registered domain have one owner. */
function isSame(a: string, b: string): boolean {
  return a === b || ownerOf(a) === ownerOf(b);
}

const ownerOf = (host: string): string => parse(host, { allowPrivateDomains: true }).domain ?? host;

/** Latin, Cyrillic and Greek letters look alike; so do Armenian and Cherokee ones. */
const ALIKE = [/\p{sc=Latn}/u, /\p{sc=Cyrl}/u, /\p{sc=Grek}/u, /\p{sc=Armn}/u, /\p{sc=Cher}/u];

/** Whether a label of a host has letters of several scripts that look alike. */
function isMixed(host: string): boolean {
  if (!host.includes('xn--')) return false;
  return domainToUnicode(host)
    .split('.')
    .some((label) => ALIKE.filter((script) => script.test(label)).length > 1);
}
