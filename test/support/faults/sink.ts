import { Worker } from 'node:worker_threads';

/** A POST as it arrived whole. */
export interface Arrival {
  /** `webhook-id`. */
  readonly id: string;
  /** SHA-256 of each message in it (`messageHash`), without the lines that the daemon puts before it. */
  readonly hashes: readonly string[];
  /** Path and query of the URL. */
  readonly path: string;
  /** What it was answered; 0 when nothing was. */
  readonly status: number;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** How a path is answered: with a status, after a time, or never. */
export interface Manner {
  readonly status: number;
  readonly afterMs?: number;
}

/** A webhook receiver that writes down what it got before it answers, on a thread of its own. */
export interface Sink {
  /** Any path may be put after it. */
  readonly base: string;
  readonly arrivals: readonly Arrival[];
  /** From now on, for one path or for those that nothing else was said of. 200 at first; status 0 never answers. */
  answer(manner: Manner, path?: string): void;
  stop(): Promise<void>;
}

/** The parameters of the thread. */
export type Told = { readonly manner: Manner; readonly path: string | null } | 'stop';
/** What it says: its port, then what arrived. */
export type Said = { readonly port: number } | { readonly arrived: Arrival };

export async function startSink(): Promise<Sink> {
  const thread = new Worker(new URL('./sink-thread.ts', import.meta.url));
  const arrivals: Arrival[] = [];
  const ended = new Promise<void>((resolve) => {
    thread.once('exit', () => resolve());
  });
  const tell = (told: Told) => thread.postMessage(told);
  const port = await new Promise<number>((resolve, reject) => {
    thread.once('error', reject);
    thread.on('message', (said: Said) => {
      if ('port' in said) resolve(said.port);
      else arrivals.push(said.arrived);
    });
  });
  return {
    base: `http://127.0.0.1:${port}`,
    arrivals,
    answer(manner, path) {
      tell({ manner, path: path ?? null });
    },
    async stop() {
      tell('stop');
      await ended;
    },
  };
}
