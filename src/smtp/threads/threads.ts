import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { withTimeout } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Counter } from '../../base/metrics.ts';
import { serveOver } from '../../base/port.ts';
import { startThread, type Thread, type ThreadEnd } from '../../base/worker.ts';
import type { LocalBackend } from '../backend.ts';
import { CLOSE_MS, checkTls, GRACE_MS } from '../connection.ts';
import type { ListenAddress, ListenEntry, Listener, ListenerDeps, ListenerSettings, TlsSettings } from '../listener.ts';
import type { SessionMeters } from '../session-log.ts';
import { createBackendServer, FLAGS_BYTES, writeFlags } from './backend-calls.ts';
import type { PlainFault, SmtpThread, ThreadCalls } from './thread.ts';

interface ThreadsDeps extends Pick<ListenerDeps, 'threads' | 'clock' | 'log' | 'notes' | 'metrics'> {
  readonly backend: LocalBackend;
  readonly meters: SessionMeters;
}

/** How often threads are checked, and the shared flags written; each request of a thread writes them too. */
const LOOK_MS = 1000;
/** A thread that answers no ping for this many checks hangs. Checks, not time: the machine may have been suspended. */
const MAX_SILENT = 30;
/** A thread that lived for less than this is restarted after a delay. */
const STEADY_MS = 10_000;
const AGAIN_MS = 1000;
/** How long a thread may take to end after its last session. */
const END_MS = 2000;
/** Heap limit of a thread in megabytes: a base, and an amount for each session up to the maximum. */
const HEAP_MB = 256;
const HEAP_MB_PER_SESSION = 0.05;
const YOUNG_MB = 16;
const TICKET_BYTES = 48;

/**
 * Creates a listener with its sessions on threads. Their requests are answered here, where everything is counted. A
 * thread that dies loses its sessions, but nothing that was answered with 250; another thread replaces it.
 */
export function createThreadedListener(settings: ListenerSettings, deps: ThreadsDeps): Listener {
  const { backend, meters, clock, metrics } = deps;
  const flags = new SharedArrayBuffer(FLAGS_BYTES);
  const died = metrics.counter('postern_smtp_threads_died_total');
  const shared = { ...deps, flags, died };
  let addresses: readonly ListenAddress[] = [];
  let tls: TlsSettings | undefined;
  let stopping = false;
  let cancelLook = () => {};
  const threads = Array.from({ length: deps.threads.count }, (_, number) =>
    createThreadSlot(number, settings, shared, () => ({ listen: toShared(settings.listen, addresses), tls })),
  );

  function look(): void {
    writeFlags(flags, backend);
    for (const thread of threads) thread.look();
    cancelLook = clock.after(LOOK_MS, look);
  }

  function useTls(next: TlsSettings | undefined): void {
    // First, because it may throw.
    if (next) checkTls(next);
    tls = next && { ...next, ticketKeys: randomBytes(TICKET_BYTES) };
    meters.certificate(next?.cert);
  }

  async function stop(graceMs = GRACE_MS): Promise<void> {
    stopping = true;
    cancelLook();
    backend.admission.close();
    await Promise.all(threads.map((thread) => thread.stop(graceMs)));
  }

  return frozen({
    async start() {
      useTls(settings.tls);
      for (const entry of settings.listen) await mustBeFree(entry);
      look();
      backend.admission.open();
      try {
        // The first thread chooses the ports where none is given.
        const [first, ...others] = threads;
        addresses = (await first?.start()) ?? [];
        await Promise.all(others.map((thread) => thread.start()));
      } catch (error) {
        await stop(0);
        throw error;
      }
    },
    stop,
    addresses: () => [...addresses],
    async reload(next) {
      useTls(next);
      await Promise.all(threads.map((thread) => thread.reload(tls)));
    },
    healthy: () => !stopping && threads.some((thread) => thread.listening()),
  });
}

/** Throws if the port is in use: the threads share it by SO_REUSEPORT and would not notice. */
async function mustBeFree(entry: ListenEntry): Promise<void> {
  if ('fd' in entry || entry.port === 0) return;
  const server = createServer();
  await once(server.listen({ host: entry.host, port: entry.port }), 'listening');
  server.close();
  await once(server, 'close');
}

function toShared(listen: readonly ListenEntry[], addresses: readonly ListenAddress[]): ListenEntry[] {
  return listen.map((entry, i) => {
    if ('fd' in entry) return { fd: entry.fd, shared: true };
    return { host: entry.host, port: addresses[i]?.port ?? entry.port, shared: true };
  });
}

interface ThreadSlotParts extends ThreadsDeps {
  readonly flags: SharedArrayBuffer;
  readonly died: Counter;
}

/** A slot for one thread and its replacements. */
function createThreadSlot(
  number: number,
  settings: ListenerSettings,
  parts: ThreadSlotParts,
  now: () => { readonly listen: readonly ListenEntry[]; readonly tls: TlsSettings | undefined },
) {
  const { clock, log, died } = parts;
  let running: Running | undefined;
  let listening = false;
  let stopped = false;
  let cancelAgain = () => {};
  /** Checks since the unanswered ping; 0 if there is none. */
  let silent = 0;

  /** Returns where it listens. */
  async function start(): Promise<readonly ListenAddress[]> {
    const since = clock.monotonic();
    const one = startOne({ settings, number }, parts, ({ reason, error }) => {
      const sessions = one.sessions();
      const served = listening;
      letGo(one);
      if (stopped) return;
      died.add();
      log.warn('worker.ended', {
        reason: `an SMTP session thread died: ${reason}`,
        sessions,
        ...(error && { error }),
      });
      // An end before that is thrown to the caller of `start`.
      if (served) cancelAgain = clock.after(clock.monotonic() - since < STEADY_MS ? AGAIN_MS : 0, again);
    });
    running = one;
    try {
      const { listen, tls } = now();
      const addresses = await one.open(listen, tls);
      listening = true;
      if (now().tls !== tls) await one.call('reload', [now().tls]); // it changed in the meantime
      return addresses;
    } catch (error) {
      letGo(one);
      await one.thread.terminate();
      throw error;
    }
  }

  function again(): void {
    start().catch((fault: unknown) => {
      if (stopped) return;
      log.error('smtp.fault', { fault });
      cancelAgain = clock.after(AGAIN_MS, again);
    });
  }

  function letGo(one: Running): void {
    one.letGo();
    if (running !== one) return;
    running = undefined;
    listening = false;
  }

  /** Whether `work` succeeded in time. */
  async function isDone(ms: number, work: Promise<unknown>): Promise<boolean> {
    const outcome = work.then(
      () => true,
      () => false,
    );
    return (await withTimeout(clock, ms, outcome)) ?? false;
  }

  return frozen({
    start,
    async stop(graceMs: number) {
      stopped = true;
      cancelAgain();
      if (!running) return;
      const one = running;
      // A thread that does not listen has no sessions to wait for.
      const ended =
        listening &&
        (await isDone(graceMs + CLOSE_MS + END_MS, one.call('stop', [graceMs]))) &&
        (await isDone(END_MS, one.thread.end()));
      if (!ended) await one.thread.terminate();
      letGo(one);
    },
    async reload(tls: TlsSettings | undefined) {
      if (listening) await running?.call('reload', [tls]);
    },
    /** Called once a second: ends a thread that hangs. */
    look() {
      if (!running || !listening) return;
      if (silent > 0) {
        if (++silent > MAX_SILENT) running.thread.kill('it did not respond');
        return;
      }
      silent = 1;
      const heard = () => {
        silent = 0;
      };
      running.call('ping', []).then(heard, heard);
    },
    listening: (): boolean => listening,
  });
}

/** A running thread. */
interface Running {
  readonly thread: Thread<SmtpThread<unknown>>;
  open(listen: readonly ListenEntry[], tls: TlsSettings | undefined): Promise<readonly ListenAddress[]>;
  /** Rejects with the error that the call threw; resolves with undefined if the thread died. */
  call<K extends keyof ThreadCalls>(
    name: K,
    args: Parameters<ThreadCalls[K]>,
    transfer?: readonly MessagePort[],
  ): Promise<Awaited<ReturnType<ThreadCalls[K]>> | undefined>;
  sessions(): number;
  /** The thread is gone: releases the slots of its sessions. */
  letGo(): void;
}

function startOne(
  { settings, number }: { readonly settings: ListenerSettings; readonly number: number },
  { threads: { script, own }, flags, log, ...backend }: ThreadSlotParts,
  ended: (end: ThreadEnd) => void,
): Running {
  const { port1, port2 } = new MessageChannel();
  const answers = createBackendServer(
    { ...backend, log },
    flags,
    (n) => void call('taken', [n]).catch(() => undefined),
  );
  const line = serveOver(port1, answers.table, (fault) => log.error('smtp.fault', { fault }));
  const thread = startThread<SmtpThread<unknown>>(
    {
      script,
      data: { settings, flags, own, number },
      limits: { maxOldGenerationSizeMb: HEAP_MB + HEAP_MB_PER_SESSION * settings.maxSessions },
      youngMb: YOUNG_MB,
      gather: 'soon',
    },
    { log },
    { ended },
  );
  const call: Running['call'] = (name, args, transfer) =>
    new Promise((resolve, reject) => {
      thread.call(
        name,
        args,
        ({ kind, value }) => {
          if (kind === 'failed') reject(toError(value));
          else resolve(kind === 'done' ? value : undefined);
        },
        transfer,
      );
    });
  return {
    thread,
    call,
    async open(listen, tls) {
      const addresses = await call('start', [port2, listen, tls], [port2]);
      if (!addresses) throw new Error('an SMTP session thread died during its start');
      return addresses;
    },
    sessions: answers.sessions,
    letGo() {
      line.close();
      answers.release();
    },
  };
}

function toError({ message, code }: PlainFault): Error {
  return Object.assign(new Error(message), code !== undefined && { code });
}
