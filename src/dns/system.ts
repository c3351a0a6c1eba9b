import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { urlHost } from '../base/networks.ts';

/** A name server to send questions to. */
export interface Server {
  readonly address: string;
  readonly port: number;
}

const DNS_PORT = 53;
const SERVERS_KEPT_MS = 60_000;

/** Parses `ip`, `ip:port`, `[ip6]` or `[ip6]:port`, by default port 53; undefined for all else, as for host names. */
export function parseServer(text: string): Server | undefined {
  const bracketed = /^\[([^\]]+)\](?::(\d{1,5}))?$/.exec(text);
  const plain = /^([^:]+)(?::(\d{1,5}))?$/.exec(text);
  const address = bracketed?.[1] ?? plain?.[1] ?? text;
  const port = Number(bracketed?.[2] ?? plain?.[2] ?? DNS_PORT);
  if (isIP(address) === 0 || (bracketed && isIP(address) !== 6) || port < 1 || port > 65535) return undefined;
  return { address, port };
}

/** The name servers in the text of a resolv.conf(5), in the form of the settings. */
export function parseResolvConf(text: string): string[] {
  const servers: string[] = [];
  for (const line of text.split('\n')) {
    const address = /^\s*nameserver\s+(\S+)/.exec(line)?.[1];
    if (address !== undefined && isIP(address)) servers.push(urlHost(address));
  }
  return servers.slice(0, 3); // MAXNS of resolv.conf(5)
}

/** The name servers of this machine. If none are configured, loopback as in resolv.conf(5), never a public server. */
export function systemServers(): string[] {
  try {
    const servers = parseResolvConf(readFileSync('/etc/resolv.conf', 'utf8'));
    if (servers.length > 0) return servers;
  } catch {
    /* the file is missing */
  }
  return [`127.0.0.1:${DNS_PORT}`];
}

/** The servers of the settings, else those of the system, re-read after a minute because networks change. */
export function createSystemServers(
  configured: readonly string[],
  system: () => readonly string[],
  clock: Clock,
): () => readonly Server[] {
  const parsed = (list: readonly string[]) => list.map(parseServer).filter((server) => server !== undefined);
  const fixed = parsed(configured);
  if (configured.length > 0) return () => fixed;
  let known = parsed(system());
  let readAt = clock.monotonic();
  return () => {
    if (clock.monotonic() - readAt > SERVERS_KEPT_MS) {
      readAt = clock.monotonic();
      known = parsed(system());
    }
    return known;
  };
}

const HOSTS_KEPT_MS = 10_000;

/** Parses the text of a hosts(5) file: maps each name in lower case to its addresses, in the order of the file. */
function parseHosts(text: string): Map<string, string[]> {
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

/** The hosts file at `path`, re-read after ten seconds. A missing file counts as empty. */
export function createHosts(path: string, clock: Clock) {
  let table: Promise<Map<string, string[]>> | undefined;
  let readAt = 0;
  return frozen({
    /** The addresses of a name in question form; undefined if the file does not list it. */
    async find(name: string): Promise<readonly string[] | undefined> {
      if (!table || clock.monotonic() - readAt > HOSTS_KEPT_MS) {
        readAt = clock.monotonic();
        table = readFile(path, 'utf8').then(parseHosts, () => new Map<string, string[]>());
      }
      return (await table).get(name);
    },
  });
}
