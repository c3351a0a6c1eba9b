import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { Clock } from '../base/clock.ts';

/** The names that the operator wrote into the hosts file. */
export interface Hosts {
  /** The addresses of a name in question form; undefined when the file does not have it. */
  find(name: string): Promise<readonly string[] | undefined>;
}

const KEPT_MS = 10_000;

/** Parses the text of a hosts(5) file: name in lower case to its addresses, in the order of the file. */
export function parseHosts(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (address === undefined || !isIP(address)) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      const addresses = found.get(key);
      if (addresses) addresses.push(address);
      else found.set(key, [address]);
    }
  }
  return found;
}

/** The hosts file at `path`, read again when it was last read more than ten seconds ago. Missing is empty. */
export function createHosts(path: string, clock: Clock): Hosts {
  let table: Promise<Map<string, string[]>> | undefined;
  let readAt = 0;
  return Object.freeze({
    async find(name: string) {
      if (!table || clock.monotonic() - readAt > KEPT_MS) {
        readAt = clock.monotonic();
        table = readFile(path, 'utf8').then(parseHosts, () => new Map<string, string[]>());
      }
      return (await table).get(name);
    },
  });
}
