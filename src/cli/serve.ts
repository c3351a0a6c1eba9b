import { unwatchFile, watchFile } from 'node:fs';
import { resolve } from 'node:path';
import { systemClock, withTimeout } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { createIds } from '../base/ids.ts';
import { createLog, createTerminalLog, type Log } from '../base/log.ts';
import { type HostPort, withPort } from '../base/networks.ts';
import type { Tools } from '../base/tools.ts';
import { VERSION } from '../base/version.ts';
import { checkFiles, checkNames } from '../composition/files.ts';
import { type DaemonDeps, onLoopbackOnly } from '../composition/slices.ts';
import { ConfigError, type LoadedSettings } from '../config.ts';
import type { Daemon } from '../daemon.ts';
import type { Settings } from '../settings.ts';
import { HostRefused } from '../store/rows/hosts.ts';
import { type Command, EXIT, type Invocation, type Io } from './command.ts';
import {
  createNotifier,
  inheritedSockets,
  type Notifier,
  readSupervision,
  startWatchdog,
  systemdNotify,
} from './systemd.ts';

/** The longest a stop may take; unfinished work is safe in the queue. */
const STOP_MS = 60_000;
/** How often a slow start asks the service manager for more time, in seconds. Its own limit is 90. */
const EXTEND_EVERY_S = 30;

export const serve: Command = {
  async run(call, io) {
    const { settings, shown } = call.settings();
    const supervision = readSupervision(io.env, io.pid);
    // A service is for the internet; `npm start` is for trying, and may have any name.
    if (supervision.socket !== undefined) checkNames(settings);
    checkFiles(settings);
    const log = openLog(settings, io);
    const { createPrometheus } = await import('../base/prometheus.ts');
    const metrics = createPrometheus({ clock: systemClock }, { ofProcess: true });
    log.info('daemon.starting', { version: VERSION, data_dir: settings.data_dir, hostname: settings.hostname });
    const notifier = createNotifier({
      tell: supervision.socket === undefined ? undefined : systemdNotify(supervision.socket),
      log,
    });
    const endWait = extendStart(notifier);
    const opened = await open(settings, io, { shown, log, metrics }).finally(endWait);
    if (typeof opened === 'number') return opened;
    const { daemon, announce } = opened;
    const endWatch =
      supervision.pingEveryMs === undefined
        ? () => {}
        : startWatchdog(
            { check: daemon.check, alive: notifier.alive, clock: systemClock, log },
            supervision.pingEveryMs,
          );
    const reload = createReload(call, shown, { daemon, notifier, log, metrics });
    const { cert, key } = settings.smtp.tls;
    const endCertificates = watchCertificates(cert === '' ? [] : [cert, key], reload);
    // Before `ready`: a service manager may reload immediately, and SIGHUP without a handler ends the process.
    const stopped = untilStopped(io, isManaged(io, supervision.socket) ? reload : undefined);
    announce();
    await notifier.ready('Accepting mail');
    const refused = await Promise.race([stopped, daemon.refused]);
    endWatch();
    endCertificates();
    const code = await close(daemon, notifier, log);
    if (!refused) return code;
    io.err(`postern: stopped: ${refused.message}\n`);
    return EXIT.config;
  },
};

/** Extends the start timeout: a slow start (migration of an old file, a long queue) must not look like a hang. */
function extendStart(notifier: Notifier): () => void {
  let cancel = systemClock.after(EXTEND_EVERY_S * 1000, again);
  function again(): void {
    void notifier.starting(2 * EXTEND_EVERY_S);
    cancel = systemClock.after(EXTEND_EVERY_S * 1000, again);
  }
  return () => cancel();
}

async function open(
  settings: Settings,
  io: Io,
  { shown, log, metrics }: Pick<DaemonDeps, 'shown' | 'log' | 'metrics'>,
): Promise<{ readonly daemon: Daemon; announce(): void } | number> {
  try {
    const sockets = inheritedSockets(io.env, io.pid);
    const { openDaemon } = await import('../daemon.ts');
    const daemon = await openDaemon(settings, {
      role: 'daemon',
      log,
      clock: systemClock,
      ids: createIds(systemClock),
      sockets,
      shown,
      metrics,
    });
    const { smtp, submission, http, firstKey } = await daemon.start();
    // Like a new key, on a terminal only: readers of the journal must not get access.
    const link = io.terminals.err && onLoopbackOnly(settings, { sockets }) ? await daemon.enterLink() : undefined;
    return {
      daemon,
      announce() {
        const addresses = { smtp: smtp.map(toText), submission: submission.map(toText) };
        log.info('daemon.ready', { ...addresses, http: toText(http) });
        io.err(greeting(settings, addresses, { firstKey: firstKey?.key, link, terminal: io.terminals.err }));
      },
    };
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    if (!(error instanceof HostRefused)) log.error('daemon.fault', { error });
    io.err(`postern: cannot start: ${reason(error, settings.data_dir)}\n`);
    return error instanceof HostRefused ? EXIT.config : EXIT.unavailable;
  }
}

const toText = ({ host, port }: HostPort) => withPort(host, port);

/** Errors of Node and SQLite for a data_dir that is not a folder or not writable. */
const CANNOT_WRITE = /^(?:EACCES|EPERM|EROFS|ENOTDIR|EEXIST)|unable to open database file|readonly database/;

function reason(error: unknown, dataDir: string): string {
  const text = errorText(error);
  const choose = 'choose another one in smtp.listen, http.listen or https.listen';
  if (/EADDRINUSE/.test(text)) return `${text}\nAnother program uses this port; ${choose}.`;
  if (/EADDRNOTAVAIL/.test(text)) return `${text}\nThis machine does not have that address; ${choose}.`;
  if (/listen EACCES/.test(text))
    return `${text}\nPorts below 1024 need the systemd socket units or CAP_NET_BIND_SERVICE; or choose a higher port.`;
  if (CANNOT_WRITE.test(text))
    return (
      `${text}\nThe folder ${resolve(dataDir)} (data_dir) must be writable for this user: correct its owner, or run ` +
      'as the user postern.'
    );
  return text;
}

/**
 * The message on standard error after a start; the log goes to standard output. A new key is shown on a terminal only,
 * because a journal or a container's log would keep it.
 */
function greeting(
  settings: Settings,
  addresses: { readonly smtp: readonly string[]; readonly submission: readonly string[] },
  {
    firstKey,
    link,
    terminal,
  }: { readonly firstKey: string | undefined; readonly link: string | undefined; readonly terminal: boolean },
): string {
  const url = settings.public_url;
  const made = settings.bootstrap.api_key === '' ? firstKey : undefined;
  const shown = terminal ? made : undefined;
  const key = shown === undefined ? '' : `  API key    ${shown}   (new, shown only once)\n`;
  const where =
    made === undefined ? 'Its API key is bootstrap.api_key.' : 'Create an API key for it:  postern key create';
  const hint = firstKey !== undefined && shown === undefined ? `Created the first account. ${where}\n` : '';
  const opens = link === undefined ? '' : `  console    ${link}\n             (opens once, within an hour)\n`;
  const submission = addresses.submission.length === 0 ? '' : `  submission ${addresses.submission.join(', ')}\n`;
  return (
    `\nPostern ${VERSION} is running.\n\n  SMTP       ${addresses.smtp.join(', ')}\n${submission}  API        ` +
    `${url}/api/1.0/\n  reference  ${url}/docs\n${opens}${key}\n${hint}` +
    `Try:  curl -d '{"key":"${shown ?? 'YOUR_KEY'}"}' ${url}/api/1.0/users/ping2.json\n` +
    (shown === undefined ? '\n' : 'To see it work:  npm run demo\n\n')
  );
}

/** The log in the format of `log.format`; by default for people on a terminal, JSON lines elsewhere. */
function openLog({ log }: Settings, io: Io): Log {
  const pretty = log.format === 'pretty' || (log.format === 'auto' && io.terminals.out);
  if (!pretty) return createLog(log.level);
  // https://no-color.org: set and not empty.
  return createTerminalLog(log.level, io.terminals.out && !io.env['NO_COLOR'] && io.env['TERM'] !== 'dumb');
}

/**
 * Whether a service manager runs us, for which SIGHUP means reload (systemd.exec(5)); otherwise it means that the
 * terminal was closed. On a terminal INVOCATION_ID is not enough: shells of a desktop session inherit it.
 */
function isManaged({ env, terminals }: Io, notifySocket: string | undefined): boolean {
  const onTerminal = terminals.in || terminals.out || terminals.err;
  return notifySocket !== undefined || (Boolean(env['INVOCATION_ID']) && !onTerminal);
}

/** Resolves at the first SIGTERM, SIGINT or SIGHUP; with `reload`, SIGHUP calls that instead. */
function untilStopped(io: Io, reload: (() => void) | undefined): Promise<undefined> {
  return new Promise((resolve) => {
    io.onSignal((signal) => {
      if (signal === 'hangup' && reload) reload();
      else resolve(undefined);
    });
  });
}

interface Running extends Pick<Tools, 'log' | 'metrics'> {
  readonly daemon: Daemon;
  readonly notifier: Notifier;
}

/** Reloads settings and certificates, one reload at a time. Invalid ones change nothing. */
function createReload(
  call: Invocation,
  atStart: LoadedSettings['shown'],
  { daemon, notifier, log, metrics }: Running,
): () => void {
  let last = Promise.resolve();
  let state = { ok: true, at: systemClock.now() };
  metrics.gauge('postern_config_last_reload_success', () => Number(state.ok));
  metrics.gauge('postern_config_last_reload_success_timestamp_seconds', () => state.at / 1000);
  async function reload(): Promise<void> {
    await notifier.reloading();
    try {
      const loaded = call.reload();
      await daemon.reload(loaded);
      state = { ok: true, at: systemClock.now() };
      const later = changedBetween(atStart, loaded.shown);
      log.info('daemon.reloaded', later.length > 0 ? { after_a_restart: later } : {});
    } catch (error) {
      state = { ...state, ok: false };
      log.error('daemon.reload_refused', {
        reason: errorText(error),
        note: 'the previous settings stay in use',
      });
    }
    await notifier.ready('Accepting mail');
  }
  return () => {
    last = last.then(reload);
  };
}

/** Changed settings that need a restart. */
function changedBetween(before: LoadedSettings['shown'], after: LoadedSettings['shown']): string[] {
  const old = new Map(before.map(({ path, value }) => [path, JSON.stringify(value)]));
  return after
    .filter(({ path, value }) => !path.startsWith('smtp.tls.') && old.get(path) !== JSON.stringify(value))
    .map(({ path }) => path);
}

async function close(daemon: Daemon, notifier: Notifier, log: Log): Promise<number> {
  log.info('daemon.stopping');
  await notifier.stopping('Finishing open sessions');
  const isDone = await withTimeout(
    systemClock,
    STOP_MS,
    daemon.stop().then(() => true),
  );
  log.info('daemon.stopped', isDone ? {} : { note: 'the deadline passed; unfinished work stays in the queue' });
  return EXIT.ok;
}

/**
 * Calls `changed` soon after one of the files was replaced. Polls once a second, because renewal swaps symbolic links,
 * which inotify does not follow.
 */
function watchCertificates(files: readonly string[], changed: () => void): () => void {
  for (const file of files) watchFile(file, { interval: 1000, persistent: false }, changed);
  return () => {
    for (const file of files) unwatchFile(file, changed);
  };
}
