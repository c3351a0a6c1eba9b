import { execFile } from 'node:child_process';
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

  return Object.freeze({
    starting: (seconds: number) => send(`EXTEND_TIMEOUT_USEC=${seconds * 1_000_000}`, 'STATUS=Starting'),
    ready: (status: string) => send('READY=1', `STATUS=${oneLine(status)}`),
    reloading: () => send('RELOADING=1', 'STATUS=Reading settings again'),
    stopping: (status: string) => send('STOPPING=1', `STATUS=${oneLine(status)}`),
    status: (text: string) => send(`STATUS=${oneLine(text)}`),
    alive: () => send('WATCHDOG=1'),
  });
}
