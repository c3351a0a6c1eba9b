import { unwatchFile, watchFile } from 'node:fs';
import { resolve } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog, createTerminalLog, type Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { createPrometheus } from '../base/prometheus.ts';

import { VERSION } from '../base/version.ts';
import { checkFiles } from '../composition/files.ts';
import type { DaemonDeps } from '../composition/slices.ts';
import { ConfigError, type LoadedSettings } from '../config.ts';
import { type Daemon, openDaemon } from '../daemon.ts';
import type { Settings } from '../settings.ts';
import { type Command, EXIT, type Invocation, type Io } from './command.ts';
import {
  createNotifier,
  inheritedSockets,
  type Notifier,
  readSupervision,
  startWatchdog,
  systemdNotify,
} from './systemd.ts';

/** How long a stop may take before the process ends anyway: what is unfinished is safe on the spool. */
const STOP_MS = 60_000;
/** How often the service manager hears of a start that takes long, in seconds. Its own limit is 90. */
const START_NOTE_S = 30;

export const serve: Command = {
  name: 'serve',
  summary:
    'Takes mail by SMTP and calls by HTTP until it is stopped (SIGTERM). Under a service manager SIGHUP reads settings and certificates again.',
  async run(call, io) {
    const { settings, shown } = call.settings();
    checkFiles(settings);
    const log = openLog(settings, io);
    const metrics = createPrometheus({ clock: systemClock }, { ofProcess: true });
    log.info('daemon.starting', { version: VERSION, data_dir: settings.data_dir, hostname: settings.hostname });
    const supervision = readSupervision(io.env, io.pid);
    const notifier = createNotifier({
      tell: supervision.socket === undefined ? undefined : systemdNotify(supervision.socket),
      log,
    });
    const endWait = waitLonger(notifier);
    const opened = await open(settings, io, { log, metrics }).finally(endWait);
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
    // Before anybody hears that we are ready: a manager may reload at once, and a SIGHUP that nobody listens for ends the process.
    const stopped = untilStopped(io, isManaged(io, supervision.socket) ? reload : undefined);
    announce();
    await notifier.ready('Taking mail');
    await stopped;
    endWatch();
    endCertificates();
    return close(daemon, notifier, log);
  },
};

/** A start that works on something large (the file of an older version, a long queue) is not to be taken for one that hangs. */
function waitLonger(notifier: Notifier): () => void {
  let cancel = systemClock.after(START_NOTE_S * 1000, again);
  function again(): void {
    void notifier.starting(2 * START_NOTE_S);
    cancel = systemClock.after(START_NOTE_S * 1000, again);
  }
  return () => cancel();
}

async function open(
  settings: Settings,
  io: Io,
  { log, metrics }: Pick<DaemonDeps, 'log' | 'metrics'>,
): Promise<{ readonly daemon: Daemon; announce(): void } | number> {
  try {
    const sockets = inheritedSockets(io.env, io.pid);
    const daemon = await openDaemon(settings, {
      log,
      clock: systemClock,
      ids: createIds(systemClock),
      sockets,
      metrics,
    });
    const { smtp, submission, http, firstKey } = await daemon.start();
    return {
      daemon,
      announce() {
        const places = { smtp: smtp.map(place), submission: submission.map(place) };
        log.info('daemon.ready', { ...places, http: place(http) });
        io.err(greeting(settings, places, firstKey?.key, io.terminals.err));
      },
    };
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    log.error('daemon.fault', { error });
    io.err(`postern: cannot start: ${reason(error, settings.data_dir)}\n`);
    return EXIT.unavailable;
  }
}

function place({ host, port }: { readonly host: string; readonly port: number }): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** What node and SQLite say of a folder or a file that is another user's, or no folder at all. */
const CANNOT_WRITE = /^(?:EACCES|EPERM|EROFS|ENOTDIR|EEXIST)|unable to open database file|readonly database/;

function reason(error: unknown, dataDir: string): string {
  const text = error instanceof Error ? error.message : String(error);
  if (/EADDRINUSE/.test(text))
    return `${text}\nAnother program holds this port; smtp.listen and http.listen choose others.`;
  if (/EADDRNOTAVAIL/.test(text))
    return `${text}\nThis machine has no such address; smtp.listen and http.listen choose others.`;
  if (/listen EACCES/.test(text))
    return `${text}\nPorts below 1024 need the systemd socket unit, or CAP_NET_BIND_SERVICE.`;
  if (CANNOT_WRITE.test(text))
    return `${text}\nThe folder ${resolve(dataDir)} (data_dir) must be one that this user can write to.`;
  return text;
}

/**
 * What a person at a terminal sees at the start. The log proper goes to standard output, one JSON object a line.
 * Anything but a terminal keeps what it is told (a journal, the log of a container, a file), and a key has no business there; the
 * operator knows the one that he set himself.
 */
function greeting(
  settings: Settings,
  places: { readonly smtp: readonly string[]; readonly submission: readonly string[] },
  firstKey: string | undefined,
  terminal: boolean,
): string {
  const url = settings.public_url;
  const made = settings.bootstrap.api_key === '' ? firstKey : undefined;
  const shown = terminal ? made : undefined;
  const key = shown === undefined ? '' : `  API key    ${shown}   (made now, shown this once)\n`;
  const where =
    made === undefined ? 'Its API key is the one of bootstrap.api_key.' : 'An API key for it:  postern key create';
  const hint = firstKey !== undefined && shown === undefined ? `The first account was made. ${where}\n` : '';
  const submission = places.submission.length === 0 ? '' : `  submission ${places.submission.join(', ')}\n`;
  return (
    `\nPostern ${VERSION} takes mail.\n\n  SMTP       ${places.smtp.join(', ')}\n${submission}  API        ${url}/api/1.0/\n  reference  ${url}/docs\n${key}\n${hint}` +
    `Try:  curl -d '{"key":"${shown ?? 'YOUR_KEY'}"}' ${url}/api/1.0/users/ping2.json\n` +
    (shown === undefined ? '\n' : 'See mail come in and go out:  npm run demo\n\n')
  );
}

/** For people on a terminal, JSON lines for everything else, or what the settings say. */
function openLog({ log }: Settings, io: Io): Log {
  const pretty = log.format === 'pretty' || (log.format === 'auto' && io.terminals.out);
  if (!pretty) return createLog(log.level);
  // https://no-color.org: set to anything but nothing.
  return createTerminalLog(log.level, io.terminals.out && !io.env['NO_COLOR'] && io.env['TERM'] !== 'dumb');
}

/**
 * Whether a service manager runs us, which sends SIGHUP to have the settings read again (systemd.exec(5)). To everybody
 * else it means that the terminal is closed. INVOCATION_ID alone is not enough on a terminal: desktops hand theirs down
 * to every shell.
 */
function isManaged({ env, terminals }: Io, notifySocket: string | undefined): boolean {
  const onTerminal = terminals.in || terminals.out || terminals.err;
  return notifySocket !== undefined || (Boolean(env['INVOCATION_ID']) && !onTerminal);
}

/** Resolves at the first SIGTERM, SIGINT or SIGHUP; with `reload`, SIGHUP calls that instead. */
function untilStopped(io: Io, reload: (() => void) | undefined): Promise<void> {
  return new Promise((resolve) => {
    io.onSignal((signal) => {
      if (signal === 'hangup' && reload) reload();
      else resolve();
    });
  });
}

interface Running {
  readonly daemon: Daemon;
  readonly notifier: Notifier;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Reads settings and certificates again, one time after the other. What is wrong changes nothing. */
function createReload(
  call: Invocation,
  atStart: LoadedSettings['shown'],
  { daemon, notifier, log, metrics }: Running,
): () => void {
  let last = Promise.resolve();
  let state = { taken: true, at: systemClock.now() };
  metrics.gauge('postern_config_last_reload_success', () => Number(state.taken));
  metrics.gauge('postern_config_last_reload_success_timestamp_seconds', () => state.at / 1000);
  async function reload(): Promise<void> {
    await notifier.reloading();
    try {
      const { settings, shown } = call.settings();
      await daemon.reload(settings);
      state = { taken: true, at: systemClock.now() };
      const later = changedBetween(atStart, shown);
      log.info('daemon.reloaded', later.length > 0 ? { after_a_restart: later } : {});
    } catch (error) {
      state = { ...state, taken: false };
      log.error('daemon.reload_refused', {
        reason: error instanceof Error ? error.message : String(error),
        note: 'the old settings stay in force',
      });
    }
    await notifier.ready('Taking mail');
  }
  return () => {
    last = last.then(reload);
  };
}

/** Settings that differ and that a running daemon does not take over. */
function changedBetween(before: LoadedSettings['shown'], after: LoadedSettings['shown']): string[] {
  const old = new Map(before.map(({ path, value }) => [path, JSON.stringify(value)]));
  return after
    .filter(({ path, value }) => !path.startsWith('smtp.tls.') && old.get(path) !== JSON.stringify(value))
    .map(({ path }) => path);
}

async function close(daemon: Daemon, notifier: Notifier, log: Log): Promise<number> {
  log.info('daemon.stopping');
  await notifier.stopping('Finishing what is under way');
  const late = new Promise<'late'>((resolve) => systemClock.after(STOP_MS, () => resolve('late')));
  const outcome = await Promise.race([daemon.stop(), late]);
  log.info(
    'daemon.stopped',
    outcome === 'late' ? { note: 'the deadline passed; what is unfinished stays on the spool' } : {},
  );
  return EXIT.ok;
}

/**
 * Calls `changed` soon after one of the files was replaced. Looks at them once a second rather than asking the kernel to
 * tell, because renewal swaps symbolic links, which watchers of the kernel do not follow.
 */
export function watchCertificates(files: readonly string[], changed: () => void): () => void {
  for (const file of files) watchFile(file, { interval: 1000, persistent: false }, changed);
  return () => {
    for (const file of files) unwatchFile(file, changed);
  };
}
