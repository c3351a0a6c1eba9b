import { stat, statfs } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { DAY_MS, toTimestamp } from '../base/clock.ts';
import { reachableHost, withPort } from '../base/networks.ts';
import { hasOwnStore } from '../config.ts';
import { parseServer, systemServers } from '../dns/system.ts';
import { type Check, type Finding, fault, ok, skipped, warning } from './finding.ts';

/** Files that exist if a time service is running or has set the clock. */
const TIME_SERVICES: readonly (readonly [path: string, words: string])[] = [
  ['run/systemd/timesync/synchronized', 'synchronized by systemd-timesyncd'],
  ['run/chrony/chronyd.pid', 'synchronized by chrony'],
  ['run/chronyd.pid', 'synchronized by chrony'],
  ['run/ntpd.pid', 'synchronized by ntpd'],
  ['run/openntpd.pid', 'synchronized by openntpd'],
];

/** The clock is right: signatures, retries and expiry depend on it. */
export const clockCheck: Check = {
  name: 'clock',
  async *run({ clock, root }) {
    const now = new Date(clock.now());
    const installed = (await stat(new URL(import.meta.url))).mtimeMs;
    const seen = toTimestamp(now);
    if (clock.now() < installed - DAY_MS)
      return yield fault(
        'clock',
        `${seen} UTC, earlier than the installation of Postern`,
        'Set the clock and install a time service (chrony, systemd-timesyncd).',
      );
    for (const [path, words] of TIME_SERVICES)
      if (await exists(join(root, path))) return yield ok('clock', `${seen} UTC, ${words}`);
    yield warning(
      'clock',
      `${seen} UTC; no time service found`,
      'Install one (apt install chrony): retries and signatures depend on the clock. In a container, install it on ' +
        'the host.',
    );
  },
};

/** Whether a file exists and is accessible. */
function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

const GIB = 1024 ** 3;
/** statfs(2), f_type. */
const VOLATILE = new Map([
  [0x01021994, 'tmpfs'],
  [0x858458f6, 'ramfs'],
]);
const REMOTE = new Map([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x65735546, 'FUSE'],
]);

/** The disk under data_dir is persistent and has enough space. */
export const disk: Check = {
  name: 'disk',
  async *run({ settings }) {
    const dir = resolve(settings.data_dir);
    if (!(await exists(dir))) return yield skipped('disk', `${dir} does not exist yet; the daemon creates it`);
    const { bavail, blocks, bsize, type } = await statfs(dir);
    const [free, all] = [bavail * bsize, blocks * bsize];
    const { min_free_percent: percent, min_free_bytes: bytes } = settings.spool;
    const least = Math.max((all * percent) / 100, bytes, 3 * settings.smtp.max_message_bytes);
    const gib = (value: number) => `${(value / GIB).toFixed(1)} GiB`;
    yield free < least
      ? fault(
          'disk',
          `${gib(free)} free in ${dir}; new mail is refused (452) below ${gib(least)}`,
          'Free some space, or lower spool.min_free_percent and spool.min_free_bytes.',
        )
      : free < 2 * least
        ? warning(
            'disk',
            `${gib(free)} free in ${dir}; below ${gib(least)} new mail is refused`,
            'Free some space soon.',
          )
        : ok('disk', `${gib(free)} free in ${dir}`);
    yield* kindOfDisk(type, dir);
  },
};

function kindOfDisk(type: number, dir: string): readonly Finding[] {
  const volatile = VOLATILE.get(type);
  if (volatile !== undefined)
    return [
      fault(
        'file system',
        `${dir} is in memory (${volatile}): a reboot loses all mail in it`,
        'Put data_dir on a local disk.',
      ),
    ];
  const remote = REMOTE.get(type);
  if (remote !== undefined)
    return [
      warning(
        'file system',
        `${dir} is on ${remote}, where file locks and fsync may be unreliable`,
        'Put data_dir on a local disk.',
      ),
    ];
  return [];
}

const MIB = 1024 ** 2;
/** A daemon with its threads takes 200 MiB, a large message as much again for a moment; the system needs some too. */
const LEAST_MEMORY = 700 * MIB;

/** There is memory for the daemon and a large message. */
export const memory: Check = {
  name: 'memory',
  async *run() {
    const all = totalmem();
    const seen = `${Math.round(all / MIB)} MiB`;
    yield all < LEAST_MEMORY
      ? warning('memory', seen, 'Large messages may need more. Add memory or swap, or lower smtp.max_message_bytes.')
      : ok('memory', seen);
  },
};

/** No other user can read keys or mail. */
export const fileModes: Check = {
  name: 'file modes',
  async *run({ settings, settingsFile }) {
    const { smtp, store, bootstrap, mail, outbound } = settings;
    const holdsSecrets =
      bootstrap.api_key !== '' ||
      settings.acme.eab_hmac_key !== '' ||
      /:[^/@]+@/.test(store.url) ||
      /:[^/@]+@/.test(mail.relay) ||
      /:[^/@]+@/.test(outbound.relay);
    const files = [
      smtp.tls.key,
      store.url_file,
      ...(holdsSecrets && settingsFile !== undefined ? [settingsFile] : []),
    ].filter((path) => path !== '');
    const dir = resolve(settings.data_dir);
    if (await exists(dir)) yield mode(dir, 0o007, 'other users can read it', 'chmod o-rwx');
    for (const path of files) yield mode(path, 0o037, 'accessible to other users', 'chmod 640');
  },
};

async function mode(path: string, forbidden: number, seen: string, command: string): Promise<Finding> {
  const check = `mode of ${path}`;
  if (!(await exists(path))) return fault(check, 'does not exist', 'Correct the setting that names it.');
  const bits = (await stat(path)).mode & 0o777;
  const shown = bits.toString(8).padStart(4, '0');
  return (bits & forbidden) === 0 ? ok(check, shown) : warning(check, `${shown}: ${seen}`, `${command} ${path}`);
}

/** Public resolvers: block lists and some name servers refuse their queries. */
const PUBLIC_RESOLVERS = new Map([
  ['8.8.8.8', 'Google'],
  ['8.8.4.4', 'Google'],
  ['2001:4860:4860::8888', 'Google'],
  ['2001:4860:4860::8844', 'Google'],
  ['1.1.1.1', 'Cloudflare'],
  ['1.0.0.1', 'Cloudflare'],
  ['2606:4700:4700::1111', 'Cloudflare'],
  ['2606:4700:4700::1001', 'Cloudflare'],
  ['9.9.9.9', 'Quad9'],
  ['149.112.112.112', 'Quad9'],
  ['2620:fe::fe', 'Quad9'],
  ['208.67.222.222', 'OpenDNS'],
  ['208.67.220.220', 'OpenDNS'],
]);

/** The resolver answers, and does not rewrite NXDOMAIN answers. */
export const nameServers: Check = {
  name: 'resolver',
  async *run({ settings, resolver }) {
    const servers = settings.dns.servers.length > 0 ? settings.dns.servers : systemServers();
    const check = `resolver ${servers.join(', ')}`;
    // com always exists; .invalid never does (RFC 6761 section 6.4), and a resolver without a network knows that too.
    const [existing, absent] = await Promise.all([
      resolver.resolve('com', 'NS'),
      resolver.resolve('postern-doctor.invalid', 'A'),
    ]);
    const advice =
      'Without a working resolver, SPF, DKIM and DMARC give temperror and no mail can be sent. Install one on this ' +
      'host (apt install unbound) and set dns.servers to 127.0.0.1:53.';
    if (existing.kind === 'failure') return yield fault(check, `no answer (${existing.reason})`, advice);
    if (absent.kind === 'records')
      return yield fault(
        check,
        `returns an address for a name that cannot exist (${absent.records.join(', ')})`,
        `The resolver rewrites NXDOMAIN answers. ${advice}`,
      );
    const publicOnes = servers.flatMap((server) => PUBLIC_RESOLVERS.get(parseServer(server)?.address ?? '') ?? []);
    if (publicOnes.length > 0)
      return yield warning(
        check,
        `a public resolver (${[...new Set(publicOnes)].join(', ')})`,
        'Block lists and some name servers refuse queries from public resolvers: use a resolver on this host.',
      );
    yield ok(check, 'answers queries');
  },
};

/** The store accepts writes and keeps them. */
export const storeCheck: Check = {
  name: 'store',
  async *run({ settings, store, noStore }) {
    const check = hasOwnStore(settings) ? 'store (embedded)' : 'store (MongoDB)';
    if (!store) return yield skipped(check, noStore);
    const from = performance.now();
    await store.ping();
    const ms = Math.round(performance.now() - from);
    const seen = `durable write in ${ms} ms${hasOwnStore(settings) ? '' : ' on a majority of the replica set'}`;
    yield ms > settings.store.timeout_ms / 2
      ? warning(
          check,
          seen,
          'This is more than half of store.timeout_ms. Find out what slows the store or its disk down.',
        )
      : ok(check, seen);
    if ((await store.accounts.many({}, { limit: 1 })).length === 0)
      yield warning('accounts', 'none yet', 'Create one with an API key: postern account create NAME.');
  },
};

/** The running daemon reports that it is ready. */
export const readiness: Check = {
  name: 'daemon',
  async *run({ listeners }) {
    const { host, port } = listeners.http;
    const url = `http://${withPort(reachableHost(host), port)}/readyz`;
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(5000), redirect: 'error' });
      const text = (await answer.text()).slice(0, 500);
      yield answer.ok
        ? ok('daemon', `${url}: ready`)
        : fault(
            'daemon',
            `${url}: ${text}`,
            'Fix each part that is not "ok"; the log says why (journalctl -u postern).',
          );
    } catch {
      yield fault(
        'daemon',
        `no answer from ${url}`,
        'Start the daemon (systemctl start postern) and check its log (journalctl -u postern). If a systemd socket ' +
          'listens elsewhere, set http.listen to match.',
      );
    }
  },
};
