import type { MessagePort } from 'node:worker_threads';
import { errorText } from '../../base/errors.ts';
import { callOver } from '../../base/port.ts';
import type { Tools } from '../../base/tools.ts';
import { callByName, type Protocol, serveThread, type ThreadCall } from '../../base/worker.ts';
import type { Blobs } from '../../queue/disk/bodies.ts';
import { createInboundSide } from '../inbound.ts';
import {
  createSessionListener,
  type ListenAddress,
  type ListenEntry,
  type Listener,
  type ListenerSettings,
  type TlsSettings,
} from '../listener.ts';
import { createRemoteBackend } from './backend-calls.ts';

/** The calls of the main thread to a session thread; see `Listener`. */
export interface ThreadCalls {
  start(port: MessagePort, listen: readonly ListenEntry[], tls: TlsSettings | undefined): Promise<ListenAddress[]>;
  stop(graceMs: number | undefined): Promise<void>;
  reload(tls: TlsSettings | undefined): Promise<void>;
  /** A session has lost its slot to another client. */
  taken(n: number): void;
  /** Shows that the thread is not stuck. */
  ping(): void;
}

export interface SmtpThread<Own> extends Protocol {
  readonly data: {
    readonly settings: ListenerSettings;
    readonly flags: SharedArrayBuffer;
    /** Start data from composition/. */
    readonly own: Own;
    /** Number of the thread; each thread has its own files. */
    readonly number: number;
  };
  readonly call: ThreadCall;
  readonly kind: 'done' | 'failed';
  readonly ready: undefined;
  readonly news: never;
}

/** The parts that composition/ creates on a thread. */
interface ThreadParts extends Pick<Tools, 'clock' | 'ids'> {
  readonly bodies: Blobs;
}

/** Runs a session thread. */
export function serveSessions<Own>(open: (own: Own, number: number) => ThreadParts): void {
  serveThread<SmtpThread<Own>>(({ settings, flags, own, number }, line) => {
    const parts = open(own, number);
    let listener: Listener | undefined;
    let taken = (_n: number) => {};
    let close = () => {};
    /** Resolves when all earlier messages have arrived. */
    let flush = async () => {};

    const table: ThreadCalls = {
      async start(port, listen, tls) {
        const asker = callOver(port);
        close = asker.close;
        flush = () => asker.ask('flush', []);
        const remote = createRemoteBackend({
          ...parts,
          asker,
          flags,
          maxLoopLagMs: settings.maxLoopLagMs,
          log: line.log,
        });
        taken = remote.taken;
        const { clock, ids } = parts;
        const side = createInboundSide(settings, remote);
        listener = createSessionListener(
          side,
          { ...settings, listen, tls },
          { ...remote, admission: remote.backend.admission, clock, ids },
        );
        await listener.start();
        return listener.addresses();
      },
      async stop(graceMs) {
        await listener?.stop(graceMs);
        await flush();
      },
      reload: async (tls) => listener?.reload(tls),
      taken: (n) => taken(n),
      ping() {},
    };

    async function obey(call: ThreadCall): Promise<void> {
      const [n] = call;
      try {
        line.reply([[n, 'done', await callByName(table, call)]]);
      } catch (error) {
        line.reply([[n, 'failed', toPlain(error)]]);
      }
    }
    return {
      ready: undefined,
      take(calls) {
        for (const call of calls) void obey(call);
      },
      end: () => close(),
    };
  });
}

/** An error with its `code`, which a copy between threads would lose. */
export interface PlainFault {
  readonly message: string;
  readonly code: string | undefined;
}

function toPlain(error: unknown): PlainFault {
  const code = error instanceof Error && 'code' in error ? String(error.code) : undefined;
  return { message: errorText(error), code };
}
