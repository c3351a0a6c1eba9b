import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Finding, fault, ok } from '../../examination/finding.ts';
import { Unavailable } from '../command.ts';
import type { Machine } from './machine.ts';

// The systemd units of Postern, and the ports that their sockets open.

const SERVICE = 'postern.service';

export interface SocketUnit {
  readonly unit: string;
  readonly port: number;
}
const SMTP: SocketUnit = { unit: 'postern-smtp.socket', port: 25 };
const WEB: readonly SocketUnit[] = [
  { unit: 'postern-http.socket', port: 80 },
  { unit: 'postern-https.socket', port: 443 },
];

/** The sockets of a host, with or without those for HTTPS and certificates. */
export const socketsOf = (withWeb: boolean): readonly SocketUnit[] => (withWeb ? [SMTP, ...WEB] : [SMTP]);

/** The sockets of a web server in front, if there is one. */
export const closedOf = (isBehindWebServer: boolean): readonly SocketUnit[] => (isBehindWebServer ? WEB : []);

/** sd_booted(3). */
export const hasSystemd = ({ root }: Machine): boolean => existsSync(join(root, 'run/systemd/system'));

const stateOf = async (machine: Machine, verb: 'is-enabled' | 'is-active', unit: string): Promise<string> =>
  (await machine.run('systemctl', verb, unit)).out.trim();

/** Services of Debian by the name of their process, where these differ. */
const SERVICES: Readonly<Record<string, string>> = { master: 'postfix', 'sendmail-mta': 'sendmail' };

/** Whether the ports are free, or already ours. */
export async function* ports(
  machine: Machine,
  sockets: readonly SocketUnit[],
  isRunning: boolean,
): AsyncGenerator<Finding> {
  for (const { unit, port } of sockets) {
    const check = `port ${port}`;
    const isTaken = await machine.isTaken(port);
    const isOurs = hasSystemd(machine)
      ? (await stateOf(machine, 'is-active', unit)) === 'active'
      : isRunning && isTaken;
    if (isOurs) yield ok(check, 'Postern listens');
    else if (!isTaken) yield ok(check, 'free');
    else yield taken(check, port, await listenerOn(port, machine));
  }
}

/** The name of the process that listens on a port, if ss(8) is there. */
async function listenerOn(port: number, machine: Machine): Promise<string | undefined> {
  const { out } = await machine.run('ss', '-Hltnp', `sport = :${port}`);
  return /users:\(\("([^"]+)"/.exec(out)?.[1];
}

function taken(check: string, port: number, program: string | undefined): Finding {
  const stop =
    program === undefined
      ? `Find it (ss -ltnp 'sport = :${port}') and stop it`
      : `Stop it (systemctl disable --now ${SERVICES[program] ?? program})`;
  const other = port === SMTP.port ? '' : ', or keep a web server in front: postern setup --no-https';
  return fault(check, `another program listens: ${program ?? 'unknown'}`, `${stop}${other}.`);
}

/**
 * Disables `closed`; enables and starts the other units. Restarts a running service if its settings changed, if it
 * lacks a socket, which systemd opens only before the service, or if it has one too many, which it keeps open until it
 * ends. Returns the changes as text, or undefined if none were needed. Throws `Unavailable`.
 */
export async function startUnits(
  machine: Machine,
  { sockets, closed, changedAt, isTrial }: StartOptions,
): Promise<string | undefined> {
  const statesOf = (units: readonly string[]) =>
    Promise.all(
      units.map(async (unit) => {
        const enabled = await stateOf(machine, 'is-enabled', unit);
        const isActive = (await stateOf(machine, 'is-active', unit)) === 'active';
        return { unit, isKnown: !['', 'not-found'].includes(enabled), isEnabled: enabled === 'enabled', isActive };
      }),
    );
  const units = [SERVICE, ...sockets.map(({ unit }) => unit)];
  const states = await statesOf(units);
  if (states.some(({ unit, isKnown }) => unit === SERVICE && !isKnown))
    throw new Unavailable(`${SERVICE} is not installed: install the Debian package, or run scripts/install.sh`);
  const disabled = states.filter(({ isEnabled }) => !isEnabled).map(({ unit }) => unit);
  const isRunning = states.some(({ unit, isActive }) => unit === SERVICE && isActive);
  const stopped = states.filter(({ isActive }) => !isActive).map(({ unit }) => unit);
  // Also if an earlier run ended between the settings and the restart.
  const isStale = isRunning && Math.floor(changedAt / 1000) > (await startTime(machine));
  const surplus = (await statesOf(closed.map(({ unit }) => unit)))
    .filter(({ isEnabled, isActive }) => isEnabled || isActive)
    .map(({ unit }) => unit);
  const restarts = isRunning && (isStale || stopped.length > 0 || surplus.length > 0);
  if (disabled.length === 0 && stopped.length === 0 && surplus.length === 0 && !restarts) return undefined;
  if (!isTrial) {
    if (surplus.length > 0) await systemctl(machine, 'disable', ['--now', ...surplus]);
    if (disabled.length > 0) await systemctl(machine, 'enable', disabled);
    if (restarts) await systemctl(machine, 'restart', [SERVICE]);
    else if (stopped.length > 0) await systemctl(machine, 'start', units);
  }
  const did = [
    ...(surplus.length > 0 ? [`disable ${surplus.join(', ')}`] : []),
    ...(disabled.length > 0 ? [`enable ${disabled.join(', ')}`] : []),
    ...(restarts ? [`restart ${SERVICE}`] : stopped.length > 0 ? [`start ${stopped.join(', ')}`] : []),
  ];
  return did.join('; ');
}

/** When the running service was started, in seconds; infinite if unknown. */
async function startTime(machine: Machine): Promise<number> {
  const property = ['--property', 'ExecMainStartTimestamp', '--value', '--timestamp=unix'];
  const { out } = await machine.run('systemctl', 'show', ...property, SERVICE);
  const seconds = /^@(\d+)$/.exec(out.trim())?.[1];
  return seconds === undefined ? Infinity : Number(seconds);
}

interface StartOptions {
  readonly sockets: readonly SocketUnit[];
  /** The sockets that a web server in front has instead. */
  readonly closed: readonly SocketUnit[];
  /** When the settings were changed, by the system's clock. */
  readonly changedAt: number;
  /** Only say what would be done. */
  readonly isTrial: boolean;
}

async function systemctl(machine: Machine, verb: string, units: readonly string[]): Promise<void> {
  const { code, err } = await machine.run('systemctl', verb, ...units);
  if (code === 0) return;
  // Messages of the command itself; the log around them is JSON.
  const { out } = await machine.run('journalctl', '--unit', SERVICE, '--lines', '20', '--output', 'cat', '--no-pager');
  const said = out.split('\n').filter((line) => line.startsWith('postern: '));
  throw new Unavailable(
    `systemctl ${verb} failed: ${err.trim().split('\n')[0] ?? ''}\n` +
      `${said.map((line) => `  ${line}\n`).join('')}` +
      `Find the cause (journalctl -u postern), correct it, and run postern setup again.`,
  );
}
