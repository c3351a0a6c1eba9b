import { FORBIDDEN_HOSTS } from '../egress-forms.ts';
import type { ZoneRecords } from '../zone.ts';
import { OPEN_ADDRESS, redirectPath } from './canaries.ts';

/** One address of every class that is not the Internet, as a name server may hand it out. */
export const CLASSES: Readonly<Record<string, string>> = {
  loopback: '127.0.0.1',
  'loopback-2': '127.0.0.2',
  'loopback-far': '127.127.127.127',
  'this-host': '0.0.0.0',
  'this-network': '0.1.2.3',
  'private-10': '10.0.0.1',
  'private-172': '172.16.0.1',
  'private-192': '192.168.1.1',
  cgnat: '100.64.0.1',
  'link-local': '169.254.0.1',
  metadata: '169.254.169.254',
  'metadata-azure': '168.63.129.16',
  'metadata-alibaba': '100.100.100.200',
  protocols: '192.0.0.1',
  'test-1': '192.0.2.1',
  'test-2': '198.51.100.1',
  'test-3': '203.0.113.1',
  relays: '192.88.99.1',
  benchmark: '198.18.0.1',
  multicast: '224.0.0.1',
  future: '240.0.0.1',
  broadcast: '255.255.255.255',
  'v6-loopback': '::1',
  'v6-any': '::',
  'v6-mapped': '::ffff:127.0.0.1',
  'v6-mapped-hex': '::ffff:7f00:1',
  'v6-compatible': '::127.0.0.1',
  'v6-translated': '::ffff:0:127.0.0.1',
  nat64: '64:ff9b::7f00:1',
  'nat64-local': '64:ff9b:1::7f00:1',
  '6to4': '2002:7f00:1::1',
  teredo: '2001:0:7f00:1::1',
  isatap: '2600::5efe:7f00:1',
  'v6-test': '2001:db8::1',
  orchid: '2001:20::1',
  'unique-local': 'fd00::1',
  'metadata-v6': 'fd00:ec2::254',
  'v6-link-local': 'fe80::1',
  'site-local': 'fec0::1',
  'v6-multicast': 'ff02::1',
  discard: '100::1',
};

const record = (address: string) => (address.includes(':') ? { AAAA: [address] } : { A: [address] });
const mixed = (address: string) =>
  address.includes(':') ? { A: [OPEN_ADDRESS], AAAA: [address] } : { A: [OPEN_ADDRESS, address] };

/** Names for every class: alone, beside an open address, and through an alias; and domains whose mail goes there. */
export const ZONE: ZoneRecords = Object.fromEntries(
  Object.entries(CLASSES).flatMap(([name, address]) => [
    [`${name}.bad.test`, record(address)],
    [`${name}.mixed.test`, mixed(address)],
    [`${name}.alias.test`, { CNAME: `${name}.bad.test` }],
    // Mail: by an MX, by an address without MX, with one open host, and the host of an MTA-STS policy.
    [`${name}.mx.test`, { MX: [{ exchange: `${name}.bad.test`, priority: 10 }] }],
    [`${name}.direct.test`, record(address)],
    [`${name}.policy.test`, { MX: [{ exchange: `${name}.bad.test`, priority: 10 }] }],
    [`_mta-sts.${name}.policy.test`, { TXT: ['v=STSv1; id=1'] }],
    [`mta-sts.${name}.policy.test`, record(address)],
  ]),
);
/** Ways to say who takes mail that no name server should have. */
export const ODD_EXCHANGES: ZoneRecords = Object.fromEntries(
  [
    '127.0.0.1',
    'localhost',
    'a.localhost',
    '[127.0.0.1]',
    '2130706433',
    '0x7f.1',
    '127.1',
    '1.0.0.127.in-addr.arpa',
    'vm',
  ].map((exchange, n) => [`odd${n}.mx.test`, { MX: [{ exchange, priority: 10 }] }]),
);

/** Ways of hiding the host in a URL. All of them lead inward, or nowhere. */
const TRICKS: readonly ((port: number) => string)[] = [
  (port) => `http://user:password@127.0.0.1:${port}/`,
  (port) => `http://example.com@127.0.0.1:${port}/`,
  (port) => `http://example.com:80@127.0.0.1:${port}/`,
  (port) => `http://example.com%40127.0.0.1:${port}/`,
  (port) => `http://127.0.0.1:${port}\\@example.com/`,
  (port) => `http://example.com\\@127.0.0.1:${port}/`,
  (port) => `http:\\\\127.0.0.1:${port}\\`,
  (port) => `http:/127.0.0.1:${port}/`,
  (port) => `http:127.0.0.1:${port}/`,
  (port) => `http:///127.0.0.1:${port}/`,
  (port) => `HTTP://127.0.0.1:${port}/`,
  (port) => `hTTps://127.0.0.1:${port}/`,
  (port) => `http://127.0.0.1:0${port}/`,
  (port) => `http://127.0.0.1:${port}?example.com`,
  (port) => `http://127.0.0.1:${port}/?@example.com/`,
  (port) => `http://localhost:${port}/`,
  (port) => `http://LOCALHOST:${port}/`,
  (port) => `http://localhost.:${port}/`,
  (port) => `http://a.localhost:${port}/`,
  (port) => `http://local\u00adhost:${port}/`,
  (port) => `http://ｌｏｃａｌｈｏｓｔ:${port}/`,
  (port) => `http://%6c%6f%63alhost:${port}/`,
  (port) => `http://localhost.localdomain:${port}/`,
  (port) => `http://ip6-localhost:${port}/`,
  (port) => `http://vm:${port}/`,
  (port) => `http://[::1%25lo]:${port}/`,
  (port) => `http://[fe80::1%25eth0]:${port}/`,
  (port) => `http://[::1]:${port}/`,
  (port) => `http://[::ffff:127.0.0.1]:${port}/`,
  (port) => `http://127.0.0.1%00.example.com:${port}/`,
  (port) => `http://127.0.0.1%0d%0a:${port}/`,
  (port) => `http://127.0.0.1\t:${port}/`,
  (port) => `http://127.0.0.1 :${port}/`,
  (port) => `http://\u200b127.0.0.1:${port}/`,
  (port) => `http://127。0。0。1:${port}/`,
  (port) => `http://127.0.0.1.:${port}/`,
  (port) => `http://127.0.0.1.nip.test:${port}/`,
  (port) => `http://[::ffff:7f00:0001]:${port}/`,
  (port) => `http://[::]:${port}/`,
  (port) => `http://0:${port}/`,
  (port) => `ftp://127.0.0.1:${port}/`,
  (port) => `gopher://127.0.0.1:${port}/_x`,
  (port) => `file://127.0.0.1/etc/passwd?${port}`,
];

/** Ports of other services, on an address that is open. */
const PORTS = [
  1, 7, 19, 21, 22, 23, 25, 53, 79, 81, 110, 111, 135, 139, 143, 389, 445, 465, 514, 587, 631, 873, 993, 995, 1023,
];

/** Every URL of this suite that no post may go to. `port` is where canaries listen. */
export function forbiddenUrls(port: number): string[] {
  const names = Object.keys(CLASSES).flatMap((name) =>
    ['bad', 'mixed', 'alias'].map((kind) => `http://${name}.${kind}.test:${port}/`),
  );
  return [
    ...FORBIDDEN_HOSTS.map((host) => `http://${host}:${port}/hook`),
    ...names,
    ...Object.keys(CLASSES).map((name) => `https://${name}.bad.test:${port}/`),
    ...TRICKS.map((trick) => trick(port)),
    ...PORTS.map((other) => `http://${OPEN_ADDRESS}:${other}/`),
  ];
}

/** URLs of the open address that redirect to every class, with every status that redirects. */
export function redirects(port: number): string[] {
  const hosts = Object.values(CLASSES).map((address) => (address.includes(':') ? `[${address}]` : address));
  const locations = [
    ...hosts.map((host) => `http://${host}:${port}/`),
    `http://localhost:${port}/`,
    `//127.0.0.1:${port}/`,
    `http://2130706433:${port}/`,
    `http://loopback.bad.test:${port}/`,
  ];
  return locations.flatMap((location) =>
    [301, 302, 303, 307, 308].map((status) => `http://${OPEN_ADDRESS}:${port}${redirectPath(status, location)}`),
  );
}
