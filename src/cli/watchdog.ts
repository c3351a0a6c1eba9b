import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';

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
