import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { until } from '../until.ts';
import { type Network, v4, v6 } from './network.ts';

// The DNS of the world: nsd answers for the root and all that is below it, unbound asks it and remembers.

/** Records by name, each as in a zone file: `A 25.66.0.10`. */
export type Records = Readonly<Record<string, readonly string[]>>;

export interface Names {
  /** Publishes the records of some names, in place of those that they had; with an empty list the name is gone. */
  publish(records: Records): Promise<void>;
  /** What a name has. */
  of(name: string): readonly string[];
  /** Ends and starts the caching resolver. */
  stopResolver(): Promise<void>;
  startResolver(): Promise<void>;
}

const ZONES = ['.', 'com', 'org', 'net', 'example', 'in-addr.arpa', 'ip6.arpa'];
const SERVER = 'ns.nic.example';

const zoneOf = (name: string) => ZONES.find((zone) => name.endsWith(`.${zone}`)) ?? '.';

/** The name of an address in the reverse DNS. */
export function reverseName(address: string): string {
  if (!address.includes(':')) return `${address.split('.').toReversed().join('.')}.in-addr.arpa`;
  const [left = '', right = ''] = address.split('::');
  const parts = (text: string) => (text === '' ? [] : text.split(':').map((part) => part.padStart(4, '0')));
  const [before, after] = [parts(left), parts(right)];
  const all = [...before, ...Array<string>(8 - before.length - after.length).fill('0000'), ...after].join('');
  return `${[...all].toReversed().join('.')}.ip6.arpa`;
}

/** A TXT record in strings of at most 255 characters. */
export const txt = (text: string) => `TXT ${(text.match(/.{1,250}/g) ?? ['']).map((part) => `"${part}"`).join(' ')}`;

export async function startNames(network: Network, dir: string): Promise<Names> {
  await mkdir(dir);
  const records = new Map<string, readonly string[]>([
    [SERVER, [`A ${v4('authority')}`, `AAAA ${v6('authority')}`]],
    ['ns.com', [`A ${v4('authority')}`]],
  ]);
  let serial = 1;
  const write = (zones: Iterable<string>) =>
    Promise.all([...zones].map((zone) => writeFile(join(dir, fileOf(zone)), toZone(zone, serial, records))));
  const socket = (server: string) => join(dir, `${server}.socket`);
  const nsd = join(dir, 'nsd.conf');
  const unbound = join(dir, 'unbound.conf');
  await writeFile(
    nsd,
    `server:
  ip-address: ${v4('authority')}
  ip-address: ${v6('authority')}
  username: ""
  zonesdir: "${dir}"
  database: ""
  pidfile: "${dir}/nsd.pid"
  xfrdfile: "${dir}/xfrd.state"
  zonelistfile: "${dir}/zone.list"
  cookie-secret-file: ""
remote-control:
  control-enable: yes
  control-interface: ${socket('nsd')}
${ZONES.map((zone) => `zone:\n  name: "${zone}"\n  zonefile: "${fileOf(zone)}"\n`).join('')}`,
  );
  await writeFile(join(dir, 'root.hints'), `. 3600 NS ${SERVER}.\n${SERVER}. 3600 A ${v4('authority')}\n`);
  await writeFile(
    unbound,
    `server:
  interface: ${v4('resolver')}
  interface: ${v6('resolver')}
  outgoing-interface: ${v4('resolver')}
  access-control: 0.0.0.0/0 allow
  access-control: ::0/0 allow
  username: ""
  chroot: ""
  directory: "${dir}"
  pidfile: "${dir}/unbound.pid"
  use-syslog: no
  do-daemonize: no
  module-config: "iterator"
  root-hints: "${dir}/root.hints"
  num-threads: 1
remote-control:
  control-enable: yes
  control-use-cert: no
  control-interface: ${socket('unbound')}
`,
  );
  await write(ZONES);
  network.serve(join(dir, 'nsd.log'), 'nsd', '-d', '-c', nsd);
  const serialAt = async (server: string, zone: string) =>
    (await network.run('dig', '+short', '+tries=1', '+time=1', `@${server}`, zone, 'SOA')).out.split(' ')[2];
  const served = (zone: string) =>
    until(`${zone} at nsd`, async () => (await serialAt(v4('authority'), zone)) === String(serial));
  await served('.');

  const control = (...words: readonly string[]) => network.run('unbound-control', '-c', unbound, ...words);
  const names: Names = {
    of: (name) => records.get(name) ?? [],
    async publish(changed) {
      serial++;
      for (const [name, lines] of Object.entries(changed)) {
        if (lines.length === 0) records.delete(name);
        else records.set(name, lines);
      }
      const zones = new Set(Object.keys(changed).map(zoneOf));
      await write(zones);
      await network.must('nsd-control', '-c', nsd, 'reload');
      for (const zone of zones) await served(zone);
      await control('flush_zone', '.'); // it may be stopped: then it remembers nothing
    },
    async stopResolver() {
      await control('stop');
      await until('the end of unbound', async () => (await control('status')).code !== 0);
    },
    async startResolver() {
      network.serve(join(dir, 'unbound.log'), 'unbound', '-d', '-c', unbound);
      await until('unbound', async () => (await serialAt(v4('resolver'), '.')) !== undefined);
    },
  };
  await names.startResolver();
  return names;
}

const fileOf = (zone: string) => (zone === '.' ? 'root.zone' : `${zone}.zone`);

function toZone(zone: string, serial: number, records: ReadonlyMap<string, readonly string[]>): string {
  const origin = zone === '.' ? '.' : `${zone}.`;
  const lines = [`${origin} 1 SOA ${SERVER}. hostmaster.${SERVER}. ${serial} 60 60 600 1`, `${origin} 1 NS ${SERVER}.`];
  if (zone === '.')
    for (const below of ZONES.slice(1)) lines.push(`${below}. 1 NS ${SERVER}.`, `${SERVER}. 1 A ${v4('authority')}`);
  for (const [name, values] of records)
    if (zoneOf(name) === zone) for (const value of values) lines.push(`${name}. 1 ${value}`);
  return `${[...new Set(lines)].join('\n')}\n`;
}
