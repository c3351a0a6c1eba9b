import type { Socket } from 'node:net';
import type { SecureVersion } from 'node:tls';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { HostPort } from '../base/networks.ts';
import type { Service } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import type { Postmaster } from '../inbound/postmaster.ts';
import type { Acceptance, ReturnAddresses, Routing } from '../inbound/types.ts';
import type { Notes } from '../journal/types.ts';
import type { Spool } from '../queue/delivery.ts';
import { type Admission, createAdmission } from './admission.ts';
import { createLocalBackend } from './backend.ts';
import { CLOSE_MS, type Connection, createServers, GRACE_MS } from './connection.ts';
import { createInboundSide } from './inbound.ts';
import { createConnectionAcceptor } from './new-connections.ts';
import type { BareNewline } from './reception.ts';
import { REFUSALS } from './replies.ts';
import { createSession, type Side } from './session.ts';
import { createSessionMeters, type SessionMeters } from './session-log.ts';
import { createThreadedListener } from './threads/threads.ts';

/** An SMTP listener: inbound mail or submission. */
export interface Listener extends Service {
  /** Finishes messages in DATA for at most `graceMs` (10 s), sends 421 4.3.2 to all other sessions, and closes. */
  stop(graceMs?: number): Promise<void>;
  addresses(): ListenAddress[];
  /** Uses this certificate for new sessions. Throws if key and certificate do not match; the old ones stay. */
  reload(tls: TlsSettings | undefined): Promise<void>;
  healthy(): boolean;
}

/** An address and port that a listener listens on. */
export interface ListenAddress {
  readonly address: string;
  readonly port: number;
}

/** Where to listen: an address and port, or an open socket from systemd. `shared`: other threads listen there too. */
export type ListenEntry = { readonly shared?: boolean } & (HostPort | { readonly fd: number });

/** A certificate with its key, both PEM. */
export interface TlsSettings {
  readonly cert: string;
  readonly key: string;
  readonly minVersion: SecureVersion;
  /** 48 bytes, the keys of session tickets: a client can resume its TLS session on any thread. */
  readonly ticketKeys?: Uint8Array;
}

/** The `smtp` settings of config/default.yaml, and the hostname. Times are in milliseconds. */
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
  /** Bytes per second, over any 30 seconds of DATA. 0: no minimum. */
  readonly minDataRate: number;
  readonly slowAfterRefusals: number;
  readonly endAfterRefusals: number;
  readonly maxReceived: number;
  readonly bareNewline: BareNewline;
  /** Mail to the postmaster has no destination and is kept for the operator. */
  readonly keepsPostmaster: boolean;
  readonly maxBacklogPerAccount: number;
  readonly maxLoopLagMs: number;
  /** Addresses and networks of proxies, whose connections must begin with a PROXY header. */
  readonly proxyProtocol: readonly string[];
  /** TLS from the first byte instead of STARTTLS. */
  readonly implicitTls?: boolean;
  /** Not set: STARTTLS is not offered. */
  readonly tls?: TlsSettings | undefined;
}

/** The parts that SMTP depends on. */
export interface ListenerDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly routing: Pick<Routing, 'lookup' | 'ownerOf' | 'refresh'>;
  /** Return addresses; if undefined, the return domain is a domain like any other. */
  readonly returnAddresses: ReturnAddresses | undefined;
  readonly postmaster: Postmaster;
  readonly acceptance: Acceptance;
  readonly spool: Pick<Spool, 'hasRoom' | 'isWithinShare' | 'backlog'>;
  readonly threads: SessionThreads;
  readonly ids: Pick<Ids, 'message'>;
  /** The history. */
  readonly notes: Notes;
}

/** The parts that sessions depend on besides their side. */
interface SessionDeps extends Pick<ListenerDeps, 'clock' | 'ids' | 'log' | 'notes'> {
  readonly admission: Admission;
  readonly meters: SessionMeters;
}

/** The threads that run sessions. */
interface SessionThreads {
  /** 0: sessions run on the main thread. */
  readonly count: number;
  /** The script of a thread, which calls `serveSessions`, and its start data. */
  readonly script: URL;
  readonly own: unknown;
}

const SWEEP_MS = 1000;

/** Creates the listener for inbound mail, with its sessions on threads or on this one. */
export function createListener(settings: ListenerSettings, deps: ListenerDeps): Listener {
  const { clock, log, notes, metrics } = deps;
  const meters = createSessionMeters('smtp', metrics);
  const admission = createAdmission(settings, { listener: 'smtp', clock, log, notes, meters });
  const backend = createLocalBackend(settings, { ...deps, admission });
  const shared = { ...deps, admission, meters, backend };
  if (deps.threads.count > 0) return withLog(createThreadedListener(settings, shared), log);
  return withLog(createSessionListener(createInboundSide(settings, shared), settings, shared), log);
}

/** Creates a listener for a side, with its sessions on this thread. */
export function createListenerFor(
  side: Side,
  settings: ListenerSettings,
  deps: Pick<ListenerDeps, 'clock' | 'ids' | 'log' | 'notes' | 'metrics'>,
): Listener {
  const listener = settings.implicitTls ? 'submissions' : side.name;
  const meters = createSessionMeters(listener, deps.metrics);
  const admission = createAdmission(settings, { ...deps, listener, meters });
  return withLog(createSessionListener(side, settings, { ...deps, admission, meters }), deps.log);
}

function withLog(listener: Listener, log: Log): Listener {
  return frozen({
    ...listener,
    async start() {
      await listener.start();
      for (const address of listener.addresses()) log.info('smtp.listening', { ...address });
    },
    async reload(tls) {
      await listener.reload(tls);
      log.info('smtp.tls_reloaded', { offered: tls !== undefined });
    },
  });
}

/** Creates a listener with its sessions on this thread, given their admission and metrics. */
export function createSessionListener(
  side: Side,
  settings: ListenerSettings,
  { admission, meters, clock, ids, log, notes }: SessionDeps,
): Listener {
  const implicitTls = settings.implicitTls ?? false;
  const open = new Set<Connection>();
  let stopping = false;
  let { tls } = settings;
  let wake = ignore;
  let cancelSweep = ignore;

  const shared = {
    clock,
    implicitTls,
    stopping: () => stopping,
    settled: () => wake(),
    fault: (fault: unknown) => log.error('smtp.fault', { fault }),
  };
  const acceptor = createConnectionAcceptor(settings, { admission, clock, log });
  const servers = createServers(settings, { shared, log }, (socket, connect) => {
    if (stopping) return turnAway(socket);
    acceptor.accept(socket, (address, slot) => {
      if (stopping) {
        slot.leave();
        return turnAway(socket);
      }
      const parts = { side, crowded: admission.crowded, clock, ids, log, notes, meters };
      const session = createSession(settings, parts, { address, offersTls: tls !== undefined }, slot);
      const connection = connect(session, () => {
        slot.leave();
        open.delete(connection);
        wake();
      });
      open.add(connection);
      slot.onEvicted(() => connection.evict());
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

  /**
   * The library hands over a socket one turn of the event loop after accepting it; a stop may have begun in between.
   */
  function turnAway(socket: Socket) {
    socket.on('error', ignore);
    meters.refused(REFUSALS.shutdown);
    if (!implicitTls) socket.write(REFUSALS.shutdown.line);
    socket.destroySoon();
  }

  function useTls(next: TlsSettings | undefined) {
    // First, because it may throw.
    if (next) servers.useTls(next);
    tls = next;
    meters.certificate(next?.cert);
  }

  return frozen({
    async start() {
      useTls(tls);
      await servers.open();
      admission.open();
      sweep();
    },
    async stop(graceMs = GRACE_MS) {
      stopping = true;
      admission.close();
      acceptor.close();
      const closed = servers.close();
      sayGoodbye([...open].filter((connection) => !connection.inData()));
      await until(() => ![...open].some((connection) => connection.inData()), graceMs);
      sayGoodbye([...open]);
      await until(() => open.size === 0, CLOSE_MS);
      for (const connection of open) connection.cut();
      cancelSweep();
      await closed;
    },
    addresses: servers.addresses,
    async reload(next) {
      useTls(next);
    },
    healthy: () => !stopping && servers.listening(),
  });
}

function ignore() {}
