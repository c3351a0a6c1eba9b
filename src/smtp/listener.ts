import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { type Connection, createConnector } from './connection.ts';
import { createDoor } from './door.ts';
import { createMeters } from './meters.ts';
import { createInbound } from './policy.ts';
import { REFUSALS } from './refusal.ts';
import { createSession, type Side } from './session.ts';
import type { ListenEntry, ListenerDeps, ListenerSettings, TlsSettings } from './settings.ts';

/** The SMTP side of the daemon. */
export interface Listener extends Service {
  /** Finishes what is in DATA for at most `graceMs` (10 s), says 421 4.3.0 to everybody else, and closes. */
  stop(graceMs?: number): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  /** New sessions get this certificate. Throws when key and certificate do not fit; the old ones stay. */
  reload(tls: TlsSettings | undefined): Promise<void>;
  healthy(): boolean;
}

const SWEEP_MS = 1000;
const GRACE_MS = 10_000;
const FAREWELL_MS = 1000;

/** Listens for mail that comes in. */
export function createListener(settings: ListenerSettings, deps: ListenerDeps): Listener {
  return createListenerFor(createInbound(settings, deps), settings, deps);
}

/** Listens for what the side is there for. */
export function createListenerFor(
  side: Side,
  settings: ListenerSettings,
  deps: Pick<ListenerDeps, 'clock' | 'log' | 'metrics'>,
): Listener {
  const { clock, log } = deps;
  const meters = createMeters(
    side.name === 'submission' && settings.implicitTls ? 'submissions' : side.name,
    deps.metrics,
  );
  const open = new Set<Connection>();
  let stopping = false;
  let tls = settings.tls !== undefined;
  let wake = ignore;
  let cancelSweep = ignore;

  const connector = createConnector(settings.hostname, {
    clock,
    implicitTls: settings.implicitTls ?? false,
    stopping: () => stopping,
    settled: () => wake(),
    refused: meters.refused,
    fault: (fault) => log.error('smtp.fault', { fault }),
  });
  const door = createDoor(settings, { clock, log, meters }, (socket, address, leave) => {
    const session = createSession(settings, { clock, log, side, meters }, { address, offersTls: tls });
    const connection = connector.connect(socket, session, () => {
      leave();
      open.delete(connection);
      wake();
    });
    open.add(connection);
    connection.init();
  });
  const ports = createPorts(settings.listen, door.knock, log);

  function sweep() {
    const now = clock.monotonic();
    for (const connection of open) connection.keepDeadlines(now, settings);
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

  function useTls(next: TlsSettings | undefined) {
    // Before anything is changed, because it throws.
    if (next) connector.useTls(next);
    tls = next !== undefined;
    meters.certificate(next?.cert);
  }

  return frozen({
    async start() {
      useTls(settings.tls);
      await ports.open();
      door.open();
      sweep();
    },
    async stop(graceMs = GRACE_MS) {
      stopping = true;
      door.close();
      const closed = ports.close();
      sayGoodbye([...open].filter((connection) => !connection.inData()));
      await until(() => ![...open].some((connection) => connection.inData()), graceMs);
      sayGoodbye([...open]);
      await until(() => open.size === 0, FAREWELL_MS);
      for (const connection of open) connection.cut();
      cancelSweep();
      await closed;
    },
    addresses: ports.addresses,
    async reload(next) {
      useTls(next);
      log.info('smtp.tls_reloaded', { offered: tls });
    },
    healthy: () => !stopping && ports.listening(),
  });
}

function ignore() {}

/** The sockets we listen on. */
export interface Ports {
  /** Opens all of them, or none. */
  open(): Promise<void>;
  /** Takes no more connections; resolves when those that were taken are gone. */
  close(): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  listening(): boolean;
}

export function createPorts(entries: readonly ListenEntry[], onSocket: (socket: Socket) => void, log: Log): Ports {
  const servers: Server[] = [];

  async function open(entry: ListenEntry): Promise<void> {
    // A client may end its side behind its last command and still wait for the answers.
    const server = createServer({ allowHalfOpen: true, noDelay: true }, onSocket);
    servers.push(server.listen(entry));
    await once(server, 'listening');
    server.on('error', (fault) => log.error('smtp.fault', { fault }));
  }

  const close = async () => {
    await Promise.all(servers.splice(0).map((server) => new Promise<void>((closed) => server.close(() => closed()))));
  };

  return frozen({
    async open() {
      try {
        await Promise.all(entries.map(open));
      } catch (error) {
        await close();
        throw error;
      }
      for (const place of servers.map(placeOf)) log.info('smtp.listening', place);
    },
    close,
    addresses: () => servers.map(placeOf),
    listening: () => servers.length > 0 && servers.every((server) => server.listening),
  });
}

function placeOf(server: Server): { readonly address: string; readonly port: number } {
  const place = server.address();
  if (place === null) return { address: '', port: 0 };
  return typeof place === 'string' ? { address: place, port: 0 } : { address: place.address, port: place.port };
}
