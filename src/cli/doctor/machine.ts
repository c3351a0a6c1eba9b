import { existsSync, statSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type Check, type Finding, fault, ok, skipped, warning } from './finding.ts';

/** Files that say of a time service that it runs, or that it has set the clock. */
const TIME_SERVICES: readonly (readonly [path: string, words: string])[] = [
  ['run/systemd/timesync/synchronized', 'set by systemd-timesyncd'],
  ['run/chrony/chronyd.pid', 'kept by chrony'],
  ['run/chronyd.pid', 'kept by chrony'],
  ['run/ntpd.pid', 'kept by ntpd'],
  ['run/openntpd.pid', 'kept by openntpd'],
];

/** Signatures, retries and expiry go by the clock. */
export const clockCheck: Check = {
  name: 'clock',
  async run({ clock, root }) {
    const now = new Date(clock.now());
    const installed = statSync(new URL(import.meta.url).pathname).mtimeMs;
    const seen = now.toISOString().replace('T', ' ').slice(0, 19);
    if (clock.now() < installed - 24 * 3_600_000)
      return [
        fault(
          'clock',
          `${seen} UTC, which is before Postern was installed`,
          'Set the clock, and install a time service (chrony, systemd-timesyncd).',
        ),
      ];
    const service = TIME_SERVICES.find(([path]) => existsSync(join(root, path)));
    if (service) return [ok('clock', `${seen} UTC, ${service[1]}`)];
    return [
      warning(
        'clock',
        `${seen} UTC; no time service was found`,
        'Install one (apt install chrony): retries and signatures go by the clock. In a container the host keeps it.',
      ),
    ];
  },
};

const GIB = 1024 ** 3;
/** statfs(2), f_type. */
const FORGETFUL = new Map([
  [0x01021994, 'tmpfs'],
  [0x858458f6, 'ramfs'],
]);
const REMOTE = new Map([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x65735546, 'FUSE'],
]);

/** The disk under data_dir keeps what it is given, and has room. */
export const disk: Check = {
  name: 'disk',
  async run({ settings }) {
    const dir = resolve(settings.data_dir);
    if (!existsSync(dir)) return [skipped('disk', `${dir} is not there yet; the daemon makes it`)];
    const { bavail, blocks, bsize, type } = await statfs(dir);
    const [free, all] = [bavail * bsize, blocks * bsize];
    const { min_free_percent: percent, min_free_bytes: bytes } = settings.spool;
    const least = Math.max((all * percent) / 100, bytes, 3 * settings.smtp.max_message_bytes);
    const gib = (value: number) => `${(value / GIB).toFixed(1)} GiB`;
    const room: Finding =
      free < least
        ? fault(
            'disk',
            `${gib(free)} free in ${dir}; new mail is refused (452) below ${gib(least)}`,
            'Make room, or lower spool.min_free_percent and spool.min_free_bytes.',
          )
        : free < 2 * least
          ? warning('disk', `${gib(free)} free in ${dir}; below ${gib(least)} new mail is refused`, 'Make room soon.')
          : ok('disk', `${gib(free)} free in ${dir}`);
    return [room, ...kindOfDisk(type, dir)];
  },
};

function kindOfDisk(type: number, dir: string): readonly Finding[] {
  const forgetful = FORGETFUL.get(type);
  if (forgetful !== undefined)
    return [
      fault(
        'file system',
        `${dir} is in memory (${forgetful}): a restart of the machine loses all mail in it`,
        'Put data_dir on a disk.',
      ),
    ];
  const remote = REMOTE.get(type);
  if (remote !== undefined)
    return [
      warning(
        'file system',
        `${dir} is on ${remote}, where locks and syncs may not mean what they say`,
        'Put data_dir on a disk of this machine.',
      ),
    ];
  return [];
}

/** Keys and mail are nobody else's business. */
export const secrets: Check = {
  name: 'file modes',
  async run({ settings, settingsFile }) {
    const { smtp, store, bootstrap, mail, outbound } = settings;
    const telling =
      bootstrap.api_key !== '' ||
      /:[^/@]+@/.test(store.url) ||
      /:[^/@]+@/.test(mail.relay) ||
      /:[^/@]+@/.test(outbound.relay);
    const files = [
      smtp.tls.key,
      store.url_file,
      ...(telling && settingsFile !== undefined ? [settingsFile] : []),
    ].filter((path) => path !== '');
    const dir = resolve(settings.data_dir);
    return [
      ...(existsSync(dir) ? [mode(dir, 0o007, 'other users of this machine can look into it', 'chmod o-rwx')] : []),
      ...files.map((path) => mode(path, 0o037, 'more than its owner can use it', 'chmod 640')),
    ];
  },
};

function mode(path: string, forbidden: number, seen: string, command: string): Finding {
  const check = `mode of ${path}`;
  if (!existsSync(path)) return fault(check, 'it is not there', 'Correct the setting that names it.');
  const bits = statSync(path).mode & 0o777;
  const shown = bits.toString(8).padStart(4, '0');
  return (bits & forbidden) === 0 ? ok(check, shown) : warning(check, `${shown}: ${seen}`, `${command} ${path}`);
}
