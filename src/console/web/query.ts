// The texts people search by: words, quotes, and fields such as `state:dead`. The server knows what they mean; the page
// only puts fields in and takes them out.

const TERM = /(?:([a-z]+):)?("[^"]*"|\S+)/gi;

/** The value of a field; undefined if the query does not have it. */
export function fieldOf(query: string, name: string): string | undefined {
  for (const [, field = '', value = ''] of query.matchAll(TERM))
    if (field.toLowerCase() === name) return value.replace(/^"(.*)"$/s, '$1');
  return undefined;
}

/** The query with another value of a field, or without it. */
export function withField(query: string, name: string, value: string | undefined): string {
  const others = [...query.matchAll(TERM)]
    .filter(([, field = '']) => field.toLowerCase() !== name)
    .map(([term]) => term);
  if (value !== undefined) others.push(`${name}:${/[\s"]/.test(value) ? `"${value.replaceAll('"', '')}"` : value}`);
  return others.join(' ');
}
