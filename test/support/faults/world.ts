import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { copiesEnv } from './copies.ts';
import { createEdge, type Edge } from './edge.ts';
import { type Ledger, openLedger } from './ledger.ts';
import { type Load, type LoadSettings, startLoad } from './load.ts';
import { type Sink, startSink } from './sink.ts';

/** A daemon, the mail it is sent and the endpoint it posts to, with the books of both sides. */
export interface World {
  readonly dir: string;
  readonly ledger: Ledger;
  readonly sink: Sink;
  readonly edge: Edge;
  /** The settings of its daemon. */
  readonly env: Readonly<Record<string, string>>;
  /** Sends mail to the daemon that runs, or to none yet. */
  load(settings: Partial<LoadSettings>): Load;
  /** Ends whatever still runs and removes what it left. */
  close(): Promise<void>;
}

/** `data` is the folder of the daemon, when it is not to be beside the ledger. */
export async function openWorld({
  data,
  env: given = {},
}: {
  data?: string;
  env?: Readonly<Record<string, string>>;
} = {}): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), 'postern-faults-'));
  const ledger = await openLedger(join(dir, 'ledger'));
  const sink = await startSink();
  const env = { ...(await copiesEnv()), ...given };
  const edge = createEdge({ dir: data ?? join(dir, 'data'), url: `${sink.base}/hook`, env });
  const loads: Load[] = [];
  return {
    dir,
    ledger,
    sink,
    edge,
    env,
    load(settings) {
      const load = startLoad({ connections: 20, bytes: 10_000, to: 'jo@in.test', ...settings }, ledger);
      loads.push(load);
      return load;
    },
    async close() {
      for (const load of loads) load.turnTo(undefined);
      await edge.kill();
      await Promise.all(loads.map((load) => load.stop()));
      await Promise.all([ledger.close(), sink.stop()]);
      await rm(dir, { recursive: true, force: true });
    },
  };
}
