/** What a domain asks of those that mail it (RFC 8461 section 3.2). */
export interface Policy {
  readonly mode: 'enforce' | 'testing' | 'none';
  /** Names and patterns of MX hosts, lower case. */
  readonly hosts: readonly string[];
  readonly maxAgeS: number;
}

/** The id in the TXT records of `_mta-sts`; undefined when there is no such record, or more than one (section 3.1). */
export function parsePolicyId(records: readonly string[]): string | undefined {
  const ours = records.filter((record) => /^v=STSv1[ \t]*;/.test(record));
  const [record] = ours;
  if (record === undefined || ours.length > 1) return undefined;
  return /;[ \t]*id[ \t]*=[ \t]*([A-Za-z0-9]{1,32})[ \t]*(?:;|$)/.exec(record)?.[1];
}

/** Reads a policy: lines of `name: value`, of which the first of a name counts, but for `mx`. Undefined for what is none. */
export function parsePolicy(text: string): Policy | undefined {
  const lines = text
    .split(/\r?\n/)
    .map((line) => /^([A-Za-z0-9][\w.-]{0,31})[ \t]*:[ \t]*(.*?)[ \t]*$/.exec(line))
    .filter((line) => line !== null);
  const valueOf = (name: string) => lines.find((line) => line[1] === name)?.[2];
  const mode = valueOf('mode');
  const age = valueOf('max_age');
  const hosts = lines
    .filter((line) => line[1] === 'mx')
    .map((line) => (line[2] ?? '').toLowerCase().replace(/\.$/, ''));
  if (valueOf('version') !== 'STSv1' || age === undefined || !/^\d{1,10}$/.test(age)) return undefined;
  if (mode !== 'enforce' && mode !== 'testing' && mode !== 'none') return undefined;
  if (mode !== 'none' && hosts.length === 0) return undefined;
  return { mode, hosts, maxAgeS: Number(age) };
}
