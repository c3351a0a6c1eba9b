import type { Socket } from 'node:net';
import type { SecureVersion } from 'node:tls';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Service } from '../base/service.ts';
import type { Postmaster } from '../inbound/postmaster.ts';
import type { Acceptance, ReturnAddresses, Routing } from '../inbound/types.ts';
import type { Spool } from '../queue/delivery.ts';
import { type Connection, createServers } from './connection.ts';
import { createDoor } from './door.ts';
import { createInboundSide } from './inbound.ts';
import type { BareNewline } from './reception.ts';
import { REFUSALS } from './replies.ts';
import { createSession, type Side } from './session.ts';
import { createSessionMeters } from './session-log.ts';

/** The SMTP side of the daemon. */
export interface Listener extends Service {
  /** Finishes what is in DATA for at most `graceMs` (10 s), says 421 4.3.0 to everybody else, and closes. */
  stop(graceMs?: number): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  /** New sessions get this certificate. Throws when key and certificate do not fit; the old ones stay. */
  reload(tls: TlsSettings | undefined): Promise<void>;
  healthy(): boolean;
}

/** Where to listen: an address and a port, or a socket that somebody opened for us (systemd). */
export type ListenEntry = { readonly host: string; readonly port: number } | { readonly fd: number };

/** A certificate with its key, both PEM. */
export interface TlsSettings {
  readonly cert: string;
  readonly key: string;
  readonly minVersion: SecureVersion;
}

/** What config/default.yaml says under `smtp`, and our name. Times are milliseconds. */
export interface ListenerSettings {
  readonly hostname: string;
  readonly listen: readonly ListenEntry[];
  readonly maxMessageBytes: number;
  readonly maxRecipients: number;
  readonly maxSessions: number;
  readonly maxSessionsPerAddress: number;
  readonly maxMessagesPerSession: number;
  readonly sessionTimeoutMs: number;
  readonly commandTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Bytes per second, over any half minute of DATA. 0: no floor. */
  readonly minDataRate: number;
  readonly slowAfterRefusals: number;
  readonly endAfterRefusals: number;
  readonly maxReceived: number;
  readonly bareNewline: BareNewline;
  /** Mail to the postmaster has nowhere to go, and waits for the operator. */
  readonly keepsPostmaster: boolean;
  readonly maxBacklogPerAccount: number;
  readonly maxLoopLagMs: number;
  /** Addresses and networks of proxies that must begin with a PROXY header. */
  readonly proxyProtocol: readonly string[];
  /** TLS from the first byte instead of STARTTLS. */
  readonly implicitTls?: boolean;
  /** Not set: STARTTLS is not offered. */
  readonly tls?: TlsSettings | undefined;
}

/** What SMTP needs of the parts below it. */
export interface ListenerDeps {
  readonly routing: Pick<Routing, 'lookup' | 'ownerOf'>;
  /** The return domain; where there is none, it is a domain like any other. */
  readonly returnAddresses: ReturnAddresses | undefined;
  readonly postmaster: Postmaster;
  readonly acceptance: Acceptance;
  readonly spool: Pick<Spool, 'hasRoom' | 'backlog'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

const SWEEP_MS = 1000;
const GRACE_MS = 10_000;
const FAREWELL_MS = 1000;

/** Listens for mail that comes in. */
export function createListener(settings: ListenerSettings, deps: ListenerDeps): Listener {
  return createListenerFor(createInboundSide(settings, deps), settings, deps);
}

/** Listens for what the side is there for. */
export function createListenerFor(
  side: Side,
  settings: ListenerSettings,
  deps: Pick<ListenerDeps, 'clock' | 'log' | 'metrics'>,
): Listener {
  const { clock, log } = deps;
  const implicitTls = settings.implicitTls ?? false;
  const meters = createSessionMeters(
    side.name === 'submission' && implicitTls ? 'submissions' : side.name,
    deps.metrics,
  );
  const open = new Set<Connection>();
  let stopping = false;
  let tls = settings.tls !== undefined;
  let wake = ignore;
  let cancelSweep = ignore;

  const shared = {
    clock,
    implicitTls,
    stopping: () => stopping,
    settled: () => wake(),
    refused: meters.refused,
    fault: (fault: unknown) => log.error('smtp.fault', { fault }),
  };
  const door = createDoor(settings, { clock, log, meters });
  const servers = createServers(settings, { shared, log }, (socket, connect) => {
    if (stopping) return turnAway(socket);
    door.knock(socket, (address, leave) => {
      const session = createSession(settings, { side, clock, log, meters }, { address, offersTls: tls });
      const connection = connect(session, () => {
        leave();
        open.delete(connection);
        wake();
      });
      open.add(connection);
      connection.init();
    });
  });

  function sweep() {
    const now = clock.monotonic();
    for (const connection of open) connection.keepDeadlines(now);
    cancelSweep = clock.after(SWEEP_MS, sweep);
  }

  function until(condition: () => boolean, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(ms, resolve);
      wake = () => {
        if (!condition()) return;
        cancel();
        resolve();
      };
      wake();
    });
  }

  function sayGoodbye(to: Iterable<Connection>) {
    for (const connection of to) {
      connection.finish(REFUSALS.shutdown);
      connection.leave();
    }
  }

  /** The library hands a socket over a turn of the loop after it was accepted; a stop may have begun in between. */
  function turnAway(socket: Socket) {
    socket.on('error', ignore);
    meters.refused(REFUSALS.shutdown);
    if (!implicitTls) socket.write(REFUSALS.shutdown.line);
    socket.destroySoon();
  }

  function useTls(next: TlsSettings | undefined) {
    // Before anything is changed, because it throws.
    if (next) servers.useTls(next);
    tls = next !== undefined;
    meters.certificate(next?.cert);
  }

  return frozen({
    async start() {
      useTls(settings.tls);
      await servers.open();
      door.open();
      sweep();
    },
    async stop(graceMs = GRACE_MS) {
      stopping = true;
      door.close();
      const closed = servers.close();
      sayGoodbye([...open].filter((connection) => !connection.inData()));
      await until(() => ![...open].some((connection) => connection.inData()), graceMs);
      sayGoodbye([...open]);
      await until(() => open.size === 0, FAREWELL_MS);
      for (const connection of open) connection.cut();
      cancelSweep();
      await closed;
    },
    addresses: servers.addresses,
    async reload(next) {
      useTls(next);
      log.info('smtp.tls_reloaded', { offered: tls });
    },
    healthy: () => !stopping && servers.listening(),
  });
}

function ignore() {}
