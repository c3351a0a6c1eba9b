import { execFile } from 'node:child_process';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Tools } from '../base/tools.ts';

/** Reports our state to the service manager (sd_notify(3)). No call throws; without a manager nothing happens. */
export type Notifier = ReturnType<typeof createNotifier>;

/** Sends assignments such as `READY=1`. Resolves when the manager has read them, rejects if it cannot be reached. */
export type Tell = (assignments: readonly string[]) => Promise<void>;

/**
 * Node has no AF_UNIX datagram socket, which is what the manager listens on, so a `systemd-notify` child carries each
 * message. It waits until the manager has read it (so that it can still be found in our control group; hence
 * NotifyAccess=all in the unit) and takes a few milliseconds, twice per watchdog period.
 */
export function systemdNotify(socket: string, program = 'systemd-notify'): Tell {
  const options = { env: { PATH: '/usr/bin:/bin', NOTIFY_SOCKET: socket }, timeout: 10_000 };
  return (assignments) =>
    new Promise((resolve, reject) => {
      execFile(program, [...assignments], options, (error) => (error ? reject(error) : resolve()));
    });
}

/** A newline would start another assignment, such as MAINPID=. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]+/gu, ' ').slice(0, 200);
}

interface NotifierDeps {
  /** Undefined without a manager. */
  readonly tell: Tell | undefined;
  readonly log: Log;
}

/** The notifier of this process. A failure is logged once, until a message gets through again. */
export function createNotifier({ tell, log }: NotifierDeps) {
  let failing = false;
  let last: Promise<void> = Promise.resolve();

  async function attempt(assignments: readonly string[]) {
    try {
      await tell?.(assignments);
      failing = false;
    } catch (error) {
      if (failing) return;
      failing = true;
      log.warn('daemon.note', { note: 'cannot notify the service manager (systemd-notify)', error });
    }
  }

  // One after the other: READY must not be overtaken by a status that was sent later.
  function send(...assignments: string[]): Promise<void> {
    if (tell === undefined) return last;
    last = last.then(() => attempt(assignments));
    return last;
  }

  return frozen({
    /** Asks the manager to wait this many more seconds for `ready`. */
    starting: (seconds: number): Promise<void> => send(`EXTEND_TIMEOUT_USEC=${seconds * 1_000_000}`, 'STATUS=Starting'),
    /** The listeners are open. */
    ready: (status: string): Promise<void> => send('READY=1', `STATUS=${oneLine(status)}`),
    /** Settings are being reloaded; `ready` must follow. */
    reloading: (): Promise<void> => send('RELOADING=1', 'STATUS=Reloading settings'),
    /** The daemon is draining. */
    stopping: (status: string): Promise<void> => send('STOPPING=1', `STATUS=${oneLine(status)}`),
    /** Resets the watchdog. */
    alive: (): Promise<void> => send('WATCHDOG=1'),
  });
}

/** A listening socket that the service manager opened for us (sd_listen_fds(3)). */
interface InheritedSocket {
  /** FileDescriptorName= of its unit; "unknown" when the manager gave no names. */
  readonly name: string;
  /** The descriptor, for `server.listen({ fd })`. */
  readonly fd: number;
}

/** The inherited sockets are malformed; starting on other ports instead would surprise the operator. */
export class SocketFault extends Error {
  override readonly name = 'SocketFault';
}

/** Descriptors begin after standard input, output and error (SD_LISTEN_FDS_START). */
const FIRST_FD = 3;

/** Far above any unit of ours. */
const MAX_SOCKETS = 64;

/** FileDescriptorName= allows 255 printable ASCII characters, the colon excepted. */
const NAME = /^[ -9;-~]{0,255}$/;

function countOf(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,4}$/.test(text) || Number(text) > MAX_SOCKETS)
    throw new SocketFault('LISTEN_FDS is not a number of sockets');
  return Number(text);
}

function namesOf(text: string | undefined, count: number): readonly string[] {
  if (text === undefined) return Array.from({ length: count }, () => 'unknown');
  const names = text.split(':');
  if (names.length !== count) throw new SocketFault(`LISTEN_FDNAMES has ${names.length} names for ${count} sockets`);
  if (!names.every((name) => NAME.test(name))) throw new SocketFault('LISTEN_FDNAMES has a name that no unit can give');
  return names;
}

/**
 * Reads which sockets were handed to the process `pid` in `env` (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES).
 * Empty when nothing was, or when it was meant for another process: the variables are inherited by children,
 * the descriptors are not. Throws SocketFault when they are ours but malformed.
 */
export function inheritedSockets(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): readonly InheritedSocket[] {
  if (env['LISTEN_PID'] !== String(pid)) return [];
  const count = countOf(env['LISTEN_FDS']);
  if (count === 0) return [];
  return namesOf(env['LISTEN_FDNAMES'], count).map((name, index) => ({ name, fd: FIRST_FD + index }));
}

/** How systemd supervises this process. */
interface Supervision {
  /** NOTIFY_SOCKET: where notifications go; undefined without a manager. */
  readonly socket: string | undefined;
  /** Milliseconds between keep-alives, half of the watchdog period; undefined without a watchdog. */
  readonly pingEveryMs: number | undefined;
}

/** A path or an abstract name (AF_UNIX), or the vsock of a virtual machine's host. */
const SOCKET = /^[/@].{1,106}$|^vsock:\d+:\d+$/;

/** The shortest period that is honoured: faster keep-alives would load the machine. */
const SHORTEST_USEC = 200_000;

/**
 * Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID (sd_watchdog_enabled(3)). Malformed values, and those for another
 * process, are ignored.
 */
export function readSupervision(env: Readonly<Record<string, string | undefined>>, pid: number): Supervision {
  const socket = env['NOTIFY_SOCKET'];
  if (socket === undefined || !SOCKET.test(socket)) return { socket: undefined, pingEveryMs: undefined };
  const usec = /^\d{1,15}$/.test(env['WATCHDOG_USEC'] ?? '') ? Number(env['WATCHDOG_USEC']) : 0;
  const ours = env['WATCHDOG_PID'] === undefined || env['WATCHDOG_PID'] === String(pid);
  return { socket, pingEveryMs: ours && usec >= SHORTEST_USEC ? Math.floor(usec / 2000) : undefined };
}

interface WatchdogDeps extends Pick<Tools, 'clock' | 'log'> {
  /** Checks that mail can be accepted: event loop, queue and listener. Rejects or hangs if not. */
  readonly check: () => Promise<void>;
  /** Sends the keep-alive. */
  readonly alive: () => Promise<void>;
}

/**
 * Checks every `pingEveryMs` and sends a keep-alive only after a check that passed. A hanging check is not started
 * again: then the manager ends the process when its period is over. Returns a function that stops the watchdog.
 */
export function startWatchdog({ check, alive, clock, log }: WatchdogDeps, pingEveryMs: number): () => void {
  let stopped = false;
  let cancel: () => void = () => {};

  async function round() {
    try {
      await check();
      if (!stopped) await alive();
    } catch (error) {
      if (!stopped) log.error('daemon.fault', { what: 'the watchdog check failed; no keep-alive was sent', error });
    }
    if (!stopped) cancel = clock.after(pingEveryMs, () => void round());
  }

  void round();
  return () => {
    stopped = true;
    cancel();
  };
}
