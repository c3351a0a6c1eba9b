import type { Analytics } from './sending.ts';

/** What the sites are told of where a visitor comes from. */
const SOURCE = 'transactional';
const MEDIUM = 'email';
/** Of the parameters of a URL that are looked at; nobody writes so many, and each costs time. */
const MOST_PARAMETERS = 1000;

/**
 * Adds the parameters that analytics reads to links whose host is one of `domains`. What a link says itself stays; its other
 * characters stay as they were written. Undefined: the link stays as it is.
 */
export function createTagging({ domains, campaign }: Analytics, sender: string): (url: string) => string | undefined {
  const hosts = new Set(domains);
  const wanted = [
    ['utm_source', SOURCE],
    ['utm_medium', MEDIUM],
    ['utm_campaign', campaign ?? sender],
  ].map(([name = '', value = '']) => ({ name, text: `${name}=${encodeURIComponent(value.toWellFormed())}` }));
  return (url) => {
    const parsed = URL.parse(url);
    if (!parsed || !hosts.has(parsed.hostname.replace(/\.$/, ''))) return undefined;
    const said = namesIn(parsed.search);
    const added = wanted
      .filter(({ name }) => !said.has(name))
      .map(({ text }) => text)
      .join('&');
    if (added === '' || said.size >= MOST_PARAMETERS) return undefined;
    const hash = url.indexOf('#');
    const [front, fragment] = hash < 0 ? [url, ''] : [url.slice(0, hash), url.slice(hash)];
    return `${front}${joint(front)}${added}${fragment}`;
  };
}

function joint(front: string): string {
  if (!front.includes('?')) return '?';
  return /[?&]$/.test(front) ? '' : '&';
}

/** Names of the parameters of a query, in lower case. */
function namesIn(search: string): ReadonlySet<string> {
  const names = new Set<string>();
  for (const name of new URLSearchParams(search).keys()) {
    names.add(name.toLowerCase());
    if (names.size >= MOST_PARAMETERS) break;
  }
  return names;
}
