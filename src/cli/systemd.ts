import { execFile } from 'node:child_process';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';

/** What the daemon tells the service manager (sd_notify(3)). No call throws; without a manager nothing happens. */
export interface Notifier {
  /** The start goes on: the manager waits so many seconds more for `ready`. */
  starting(seconds: number): Promise<void>;
  /** Listeners are open and mail may come. */
  ready(status: string): Promise<void>;
  /** Settings are being read again; `ready` must follow. */
  reloading(): Promise<void>;
  /** We drain and end. */
  stopping(status: string): Promise<void>;
  /** One line for `systemctl status`. */
  status(text: string): Promise<void>;
  /** We are alive: resets the watchdog. */
  alive(): Promise<void>;
}

/** Hands assignments such as `READY=1` over. Resolves when the manager has them, rejects when it cannot be told. */
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

/** A newline would start another assignment: text from elsewhere must not become MAINPID=. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]+/gu, ' ').slice(0, 200);
}

export interface NotifierDeps {
  /** Undefined when no manager listens. */
  readonly tell: Tell | undefined;
  readonly log: Log;
}

/** The notifier of this process. A fault is said once, and again only after it has passed. */
export function createNotifier({ tell, log }: NotifierDeps): Notifier {
  let said = false;
  let last: Promise<void> = Promise.resolve();

  async function attempt(assignments: readonly string[]) {
    try {
      await tell?.(assignments);
      said = false;
    } catch (error) {
      if (said) return;
      said = true;
      log.warn('daemon.note', { note: 'the service manager cannot be told of our state (systemd-notify)', error });
    }
  }

  // One after the other: READY must not be overtaken by a status that was sent later.
  function send(...assignments: string[]): Promise<void> {
    if (tell === undefined) return last;
    last = last.then(() => attempt(assignments));
    return last;
  }

  return frozen({
    starting: (seconds) => send(`EXTEND_TIMEOUT_USEC=${seconds * 1_000_000}`, 'STATUS=Starting'),
    ready: (status) => send('READY=1', `STATUS=${oneLine(status)}`),
    reloading: () => send('RELOADING=1', 'STATUS=Reading settings again'),
    stopping: (status) => send('STOPPING=1', `STATUS=${oneLine(status)}`),
    status: (text) => send(`STATUS=${oneLine(text)}`),
    alive: () => send('WATCHDOG=1'),
  });
}

/** A listening socket that the service manager opened for us (sd_listen_fds(3)). */
export interface InheritedSocket {
  /** FileDescriptorName= of its unit; "unknown" when the manager gave no names. */
  readonly name: string;
  /** The descriptor, for `server.listen({ fd })`. */
  readonly fd: number;
}

/** What a start was handed cannot be made sense of: starting on other ports instead would surprise. */
export class SocketFault extends Error {
  override readonly name = 'SocketFault';
}

/** Descriptors begin after standard input, output and error (SD_LISTEN_FDS_START). */
const FIRST_FD = 3;

/** Far above any unit of ours; a larger number is garbage, and must not become a loop. */
const MOST = 64;

/** FileDescriptorName= allows 255 printable ASCII characters, the colon excepted. */
const NAME = /^[ -9;-~]{0,255}$/;

function countOf(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,4}$/.test(text) || Number(text) > MOST) throw new SocketFault('LISTEN_FDS is not a number of sockets');
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

/** What systemd hands to a process it watches over. */
export interface Supervision {
  /** NOTIFY_SOCKET: where messages go; undefined when nobody listens. */
  readonly socket: string | undefined;
  /** Milliseconds between two signs of life, half of what is allowed; undefined when none are asked for. */
  readonly pingEveryMs: number | undefined;
}

/** A path or an abstract name (AF_UNIX), or the vsock of a virtual machine's host. */
const SOCKET = /^[/@].{1,106}$|^vsock:\d+:\d+$/;

/** Shortest period that is honoured: below it the pings alone would load the machine. */
const SHORTEST_USEC = 200_000;

/** Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID (sd_watchdog_enabled(3)). What is malformed or another's is left out. */
export function readSupervision(env: Readonly<Record<string, string | undefined>>, pid: number): Supervision {
  const socket = env['NOTIFY_SOCKET'];
  if (socket === undefined || !SOCKET.test(socket)) return { socket: undefined, pingEveryMs: undefined };
  const usec = /^\d{1,15}$/.test(env['WATCHDOG_USEC'] ?? '') ? Number(env['WATCHDOG_USEC']) : 0;
  const ours = env['WATCHDOG_PID'] === undefined || env['WATCHDOG_PID'] === String(pid);
  return { socket, pingEveryMs: ours && usec >= SHORTEST_USEC ? Math.floor(usec / 2000) : undefined };
}

export interface WatchdogDeps {
  /** Proof that mail could be taken: touches the loop, the spool and the listener. Rejects, or never answers, when not. */
  readonly check: () => Promise<void>;
  /** Gives the sign of life. */
  readonly alive: () => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Checks every `pingEveryMs` and gives a sign of life only after a check that passed. A check that hangs is not started
 * a second time; the manager's own period then decides when we are ended. The answer stops it.
 */
export function startWatchdog({ check, alive, clock, log }: WatchdogDeps, pingEveryMs: number): () => void {
  let stopped = false;
  let cancel: () => void = () => {};

  async function round() {
    try {
      await check();
      if (!stopped) await alive();
    } catch (error) {
      if (!stopped) log.error('daemon.fault', { what: 'the watchdog check failed; no sign of life was given', error });
    }
    if (!stopped) cancel = clock.after(pingEveryMs, () => void round());
  }

  void round();
  return () => {
    stopped = true;
    cancel();
  };
}
