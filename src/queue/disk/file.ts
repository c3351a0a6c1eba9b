import { type Clock, createLoop, createPauses } from '../../base/clock.ts';
import type { DiskSpace } from '../../base/disk-space.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import type { Metrics } from '../../base/metrics.ts';
import { tableOf } from '../../base/tables.ts';
import {
  type AcceptOutcome,
  type Delivery,
  ENDPOINT_KINDS,
  type Endpoint,
  type EndpointKind,
  KINDS,
  type QueuedDelivery,
} from '../delivery.ts';
import type { Accepted, MessageRow } from './changes.ts';
import { SpoolFault } from './faults.ts';
import type { Loaded } from './open-file.ts';
import type { Reader } from './reader.ts';
import type { CommitFigures, EndpointRow, News, ThreadData, WriterAsk } from './thread.ts';
import { openWriter, type Writer } from './writer.ts';

/** The queue file as used from the main thread: it survives a failed sync, a full disk and the death of the writer. */
export type QueueFile = Awaited<ReturnType<typeof openQueueFile>>;

/** The result for a message; without its bytes unless it was accepted. */
interface FileAcceptance extends Omit<Accepted, 'written'> {
  readonly outcome: AcceptOutcome;
}

interface QueueFileListener {
  /** Deliveries that waited behind others are due. */
  turned(due: readonly QueuedDelivery[]): void;
  /** The queue was changed by another process, or reloaded. */
  changed(): void;
  /** A new file replaced the old one, which must no longer be read. */
  replaced(): Promise<void>;
}

/** Milliseconds between checks for changes by another process, and between retries of a failed write. */
const POLL_MS = 1000;
/** Writes that can wait and share the commit of new mail. */
const PATIENT: ReadonlySet<keyof WriterAsk> = new Set<keyof WriterAsk>([
  'settle',
  'keepScan',
  'keepVerdicts',
  'reported',
  'keepTime',
  'endCopies',
]);

/** Opens the queue file in its thread. */
export async function openQueueFile(
  data: ThreadData,
  deps: { clock: Clock; log: Log; metrics: Metrics },
  listener: QueueFileListener,
) {
  const { clock } = deps;
  const committed = createCommitMeters(deps.metrics);
  const tally = createTally();
  const news = ({ loaded, endpoints, shifts, due = [], commit }: News) => {
    if (commit) committed(commit);
    if (loaded) {
      tally.replace(loaded);
      listener.changed();
    } else if (endpoints && shifts) tally.change(endpoints, shifts);
    if (due.length > 0) listener.turned(due);
  };
  const writer = await openWriter(data, deps, { news, replaced: () => listener.replaced() });
  const writing = createWriting(writer, clock, data.role);
  const polling = createLoop(clock, async () => {
    if (writer.sound()) void writer.ask('poll', []);
    return POLL_MS;
  });
  polling.startAfter(POLL_MS);

  return frozen({
    tally,
    /** The counts of salvaged rows when the file was opened; null: it was sound. */
    rebuilt: writer.rebuilt,
    /** False while nothing can be written. */
    sound: writer.sound,
    /** Transfers the bytes of the message; they are returned on acceptance. */
    accept: writing.accept,
    /** Resolves after the sync, however long that takes; throws only if the write is invalid, or after close. */
    write: writing.write,
    /** Like `write`, tried once: throws SpoolFault if it fails now, or if the result is unknown. */
    once: writing.once,
    /** A synced write that throws immediately if it fails. */
    check: () => writing.once('check', clock.now()),
    /** Called when damage is found: resolves when everything readable is in a new file. */
    async repair(reason: string) {
      writer.distrust(reason, true);
      await writer.repaired();
    },
    async close() {
      void polling.stop();
      writing.end();
      await writer.close();
    },
  });
}

function createWriting(writer: Writer, clock: Clock, role: ThreadData['role']) {
  const pauses = createPauses(clock);
  let closed = false;
  return {
    async accept(message: MessageRow, deliveries: readonly Delivery[]): Promise<FileAcceptance> {
      const nothing = { behind: [], bytes: null };
      if (closed || !writer.sound()) return { outcome: 'fault', ...nothing };
      const memory = message.bytes?.buffer;
      const transfer = memory instanceof ArrayBuffer ? [memory] : [];
      const reply = await writer.ask('accept', [message, deliveries], false, transfer);
      if (reply.kind === 'died') writer.takeBackLater(message.id);
      if (reply.kind !== 'done') return { outcome: reply.kind === 'full' ? 'full' : 'fault', ...nothing };
      const { written, behind, bytes }: Accepted = reply.value;
      return written ? { outcome: 'accepted', behind, bytes } : { outcome: 'fault', ...nothing };
    },
    async write<K extends keyof WriterAsk>(
      name: K,
      ...args: Parameters<WriterAsk[K]>
    ): Promise<ReturnType<WriterAsk[K]>> {
      for (;;) {
        if (!writer.sound()) await writer.repaired();
        if (closed) throw new SpoolFault('the queue is closed');
        const reply = await writer.ask(name, args, PATIENT.has(name));
        if (reply.kind === 'done') return reply.value;
        // The daemon can wait; a person at the command line needs the error.
        if (reply.kind === 'fault' || role === 'visitor') throw new SpoolFault(String(reply.value));
        if (writer.sound()) await pauses.wait(POLL_MS);
      }
    },
    async once<K extends keyof WriterAsk>(
      name: K,
      ...args: Parameters<WriterAsk[K]>
    ): Promise<ReturnType<WriterAsk[K]>> {
      const reply = closed || !writer.sound() ? undefined : await writer.ask(name, args);
      if (reply?.kind === 'done') return reply.value;
      throw new SpoolFault(`the queue cannot be written: ${String(reply?.value ?? 'it is being repaired')}`);
    },
    end() {
      closed = true;
      pauses.end();
    },
  };
}

interface Entry extends Endpoint {
  memory: string | null;
  waiting: number;
}

/** The numbers of waiting deliveries, in memory, for backlogs and summaries. */
function createTally() {
  const endpoints = new Map<number, Entry>();
  const accounts = new Map<string, number>();
  /** The outgoing mail among them. */
  const outgoing = new Map<string, number>();
  let byEndpoint = tableOf(ENDPOINT_KINDS, () => 0);
  const shift = (entry: Entry, more: number) => {
    entry.waiting += more;
    byEndpoint[KINDS[entry.kind].endpoint] += more;
    for (const sums of entry.kind === 'outbound' ? [accounts, outgoing] : [accounts])
      sums.set(entry.account, (sums.get(entry.account) ?? 0) + more);
  };
  return frozen({
    replace(loaded: Loaded) {
      endpoints.clear();
      accounts.clear();
      outgoing.clear();
      byEndpoint = tableOf(ENDPOINT_KINDS, () => 0);
      for (const { key, account, url, kind, memory, waiting } of loaded) {
        const entry = { account, url, kind, memory, waiting: 0 };
        endpoints.set(key, entry);
        shift(entry, waiting);
      }
    },
    change(changed: readonly EndpointRow[], shifts: readonly (readonly [endpoint: number, more: number])[]) {
      for (const { key, account, url, kind, memory } of changed) {
        const known = endpoints.get(key);
        if (known) known.memory = memory;
        else endpoints.set(key, { account, url, kind, memory, waiting: 0 });
      }
      for (const [key, more] of shifts) {
        const entry = endpoints.get(key);
        if (entry) shift(entry, more);
      }
    },
    /** The number of waiting deliveries of the account; `in`: without outgoing mail, which may be held back. */
    ofAccount: (account: string, way?: 'in') =>
      (accounts.get(account) ?? 0) - (way === 'in' ? (outgoing.get(account) ?? 0) : 0),
    /** The account of an endpoint, by the key of its row. */
    accountOf: (endpoint: number) => endpoints.get(endpoint)?.account,
    /** The endpoints of an account that have waiting deliveries, with their number. */
    endpointsOf: (account: string): readonly Readonly<Entry>[] =>
      [...endpoints.values()].filter((entry) => entry.waiting > 0 && entry.account === account),
    /** The same of all accounts. */
    endpointsOfAll: (): readonly Readonly<Entry>[] => [...endpoints.values()].filter(({ waiting }) => waiting > 0),
    /** The totals by kind of endpoint. */
    byEndpoint: (): Readonly<Record<EndpointKind, number>> => byEndpoint,
    /** Endpoints with waiting deliveries or saved state. */
    entries: (): readonly (Readonly<Entry> & { readonly key: number })[] =>
      [...endpoints]
        .filter(([, { waiting, memory }]) => waiting > 0 || memory !== null)
        .map(([key, entry]) => ({ key, ...entry })),
  });
}

/** The result of a count, and its duration in milliseconds. */
interface Counted<T> {
  readonly counts: T;
  readonly ms: number;
}

/** Counting a million ended deliveries takes the reader 0.1 s: at most this share of its time is spent on it. */
const SHARE = 0.01;

interface ShownParts {
  readonly file: Pick<QueueFile, 'tally' | 'sound'>;
  readonly reading: Reader;
  readonly room: Pick<DiskSpace, 'has' | 'disk'>;
}

/** Registers the gauges of the queue. */
export function registerQueueGauges({ file, reading, room }: ShownParts, clock: Clock, metrics: Metrics): void {
  const { byEndpoint } = file.tally;
  const ended = remembered(() => reading.read('ended'), clock);
  metrics.gauge(
    'postern_spool_waiting_in_order',
    remembered(() => reading.read('behind'), clock),
  );
  metrics.gauge('postern_spool_waiting', () =>
    Object.entries(byEndpoint()).map(([endpoint, count]) => [{ endpoint }, count]),
  );
  metrics.gauge('postern_spool_deliveries', async () => {
    const waiting = Object.values(byEndpoint()).reduce((sum, count) => sum + count, 0);
    return Object.entries({ waiting, ...(await ended()) }).map(([state, count]) => [{ state }, count]);
  });
  metrics.gauge('postern_spool_oldest_waiting_seconds', async () => {
    const since = await reading.read('oldest');
    return since === null ? 0 : Math.max(0, clock.now() - since) / 1000;
  });
  metrics.gauge('postern_spool_accepts_mail', () => Number(file.sound() && room.has()));
  metrics.gauge('postern_spool_disk_free_bytes', () => room.disk()?.free);
  metrics.gauge('postern_spool_disk_bytes', () => room.disk()?.total);
}

/** Caches the counts for a time in proportion to their duration. */
function remembered<T>(ask: () => Promise<Counted<T>>, clock: Clock): () => Promise<T> {
  let known: Counted<T> | undefined;
  let until = -Infinity;
  return async () => {
    if (known && clock.monotonic() < until) return known.counts;
    known = await ask();
    until = clock.monotonic() + known.ms / SHARE;
    return known.counts;
  };
}

/** Returns a function that records the figures of a commit. */
function createCommitMeters(metrics: Metrics): (figures: CommitFigures) => void {
  const seconds = metrics.histogram('postern_spool_commit_seconds');
  const writes = metrics.histogram('postern_spool_commit_writes');
  const messages = metrics.histogram('postern_spool_commit_messages');
  return (figures) => {
    seconds.observe(figures.ms / 1000);
    writes.observe(figures.writes);
    if (figures.messages > 0) messages.observe(figures.messages);
  };
}
