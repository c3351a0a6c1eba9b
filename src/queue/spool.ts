import { basename } from 'node:path';
import { isMarkedAsUntransferable } from 'node:worker_threads';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { createRoom, free, isTight, lookAtDisk, type Room } from '../base/room.ts';
import type { Scan } from '../mail/scan.ts';
import { readAges } from './ages.ts';
import { createCopyMarks } from './copy-marks.ts';
import type {
  AcceptOutcome,
  Body,
  Delivery,
  EndpointSummary,
  Message,
  NewMessage,
  QueuedDelivery,
  Spool,
  SpoolSettings,
} from './delivery.ts';
import { type Blobs, createBlobs } from './disk/bodies.ts';
import { createBulk } from './disk/bulk.ts';
import { openQueueFile, type QueueFile, showQueue } from './disk/file.ts';
import { emptyTmp, type Folder, folderOf, makeFolders, takeLock } from './disk/folder.ts';
import { openReader, type Reader } from './disk/reader.ts';
import { buryDamaged, lookAtLog, recover } from './disk/recovery.ts';
import { createEventQueue, type EventNews } from './events.ts';
import { readHistory } from './history.ts';
import { createHoldings, type Holdings } from './holdings.ts';
import { createMessages, toRow } from './messages.ts';

export interface SpoolDeps {
  readonly clock: Clock;
  readonly log: Log;
  /**
   * daemon: the one process that accepts mail; it locks the folder and repairs what a crash left. visitor: the command
   * line, which reads and changes the queue beside it.
   */
  readonly role: 'daemon' | 'visitor';
  readonly metrics: Metrics;
  /** Whether the store may have copies of messages: then a body that is missing is not given up at the start. */
  readonly copies?: boolean;
}

/** The cache of bodies just accepted, in bytes: some seconds of mail not yet attempted. */
const CACHE_BYTES = 16 * 1024 * 1024;
/** Messages whose headers are read in one query: other queries wait for it. */
const SUMMARIES = 50;
/** How often due deliveries are read again when some rows are damaged. */
const DUE_TRIES = 3;

/** What a delivery takes on the disk, with its indexes and its first attempt. */
const ROW_BYTES = 2048;

/** The due time of an endpoint with nothing waiting. */
const NEVER = Number.MAX_SAFE_INTEGER;

interface Parts {
  readonly clock: Clock;
  readonly log: Log;
  readonly folder: Folder;
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly room: Room;
  readonly holdings: Holdings;
  readonly blobs: Blobs;
  readonly cache: Cache;
  readonly listeners: Listeners;
}

/**
 * Opens the queue of this host. Throws SpoolInUse if another daemon has it open, SpoolTooNew if a newer version wrote
 * it, SpoolFault if it cannot be opened.
 */
export async function openSpool(settings: SpoolSettings, deps: SpoolDeps): Promise<Spool> {
  const { clock, log, role, metrics } = deps;
  const folder = folderOf(settings.dir);
  makeFolders(folder);
  const lock = role === 'daemon' ? takeLock(folder.lock) : null;
  try {
    const swept = lock ? emptyTmp(folder) : 0;
    if (lock) lookAtLog(folder, { clock, log });
    const parts = await openParts(settings, folder, { clock, log, role, metrics });
    if (lock) await recover({ ...parts, path: folder.blobs, copies: deps.copies === true }, swept);
    await parts.room.start();
    if (lock) void parts.holdings.count();
    const spool = createSpool(parts, () => lock?.release());
    const { file, reading, room } = parts;
    showQueue(
      {
        waiting: file.tally.byEndpoint,
        hasRoom: spool.hasRoom,
        disk: room.disk,
        oldest: () => reading.read('oldest'),
        ended: () => reading.read('ended'),
        behind: () => reading.read('behind'),
      },
      clock,
      metrics,
    );
    return spool;
  } catch (error) {
    lock?.release();
    throw error;
  }
}

async function openParts(
  settings: SpoolSettings,
  folder: Folder,
  { clock, log, role, metrics }: SpoolDeps,
): Promise<Parts> {
  const data = { dir: folder.dir, role, now: clock.now() };
  const listeners = createListeners(log);
  let reading: Reader | undefined;
  const file = await openQueueFile(
    data,
    { clock, log, metrics },
    {
      changed: () => listeners.tell([]),
      turned: listeners.turn,
      async replaced() {
        await reading?.reopen();
      },
    },
  );
  try {
    reading = await openReader(data, { clock, log }, file.repair);
  } catch (error) {
    await file.close();
    throw error;
  }
  const room = createRoom('spool', settings, { clock, log, look: () => lookAtDisk(folder.dir) });
  return {
    clock,
    log,
    folder,
    file,
    reading,
    room,
    holdings: createHoldings({ reading, room, clock, log }),
    listeners,
    blobs: createBlobs(folder, room.wrote),
    cache: createCache(CACHE_BYTES),
  };
}

function createSpool(parts: Parts, release: () => void): Spool {
  const { file, reading, room, holdings, blobs, cache, listeners } = parts;
  const messages = createMessages(parts);
  const events = createEventQueue({ file, reading, room, say: listeners.say, tell: listeners.tell });
  let closing: Promise<void> | undefined;
  const close = async () => {
    room.stop();
    holdings.stop();
    await file.close();
    await reading.close();
    release();
  };
  return frozen({
    body: blobs.writer,
    accept: (message, deliveries) => accept(parts, message, deliveries),
    hasRoom: () => file.sound() && room.has(),
    isWithinShare: holdings.isWithinShare,
    backlog: file.tally.ofAccount,
    message: async (messageId, deliveryId) =>
      cache.take(messageId, deliveryId !== undefined) ?? (await messages.find(messageId, deliveryId)),
    rescue: messages,
    async settle(settlement, fresh) {
      const { tally, behind } = await file.write('settle', settlement, fresh ? JSON.stringify(fresh) : null);
      if (fresh) cache.keepVerdicts(settlement.deliveryId, fresh);
      const { deliveryId: delivery, state } = settlement;
      if (tally) listeners.say({ kind: 'settled', webhook: tally.hook.id, tally, delivery, state });
      return behind;
    },
    scanOf: async (messageId) => cache.scanOf(messageId) ?? (await reading.read('scanOf', messageId)),
    async keepScan(messageId, scan) {
      const kept: Scan = JSON.parse(await file.write('keepScan', messageId, JSON.stringify(scan)));
      cache.keepScan(messageId, kept);
      return kept;
    },
    keepEndpoint: (endpoint, memory) => file.write('keepEndpoint', endpoint, memory),
    lastTime: () => reading.read('lastTime'),
    keepTime: (memory) => file.write('keepTime', memory),
    envelopes: async (messageIds) => new Map(await reading.read('envelopes', messageIds)),
    async summaryFields(messageIds) {
      const found = new Map<string, string>();
      for (let at = 0; at < messageIds.length; at += SUMMARIES)
        for (const [id, fields] of await reading.read('summaryFields', messageIds.slice(at, at + SUMMARIES)))
          found.set(id, fields);
      return found;
    },
    delivery: (id) => reading.read('delivery', id),
    async due(account, url, now, limit, except) {
      const read = () => reading.read('due', account, url, now, limit, except);
      let due = await read();
      // Damaged rows took the places of others; if they cannot be given up either, the tries are limited.
      for (let tries = 0; due.damaged.length > 0 && tries < DUE_TRIES; tries++) {
        await buryDamaged(parts, due.damaged);
        due = await read();
      }
      return due.found;
    },
    overdue: (endpoint, before, now, limit) => reading.read('overdue', endpoint, before, now, limit),
    lease: (endpoint, ids, times) => file.write('lease', endpoint, ids, times),
    endLease: (account, end) => file.write('endLease', account, end),
    async keepVerdicts(deliveryId, fresh) {
      await file.write('keepVerdicts', deliveryId, JSON.stringify(fresh));
      cache.keepVerdicts(deliveryId, fresh);
    },
    endpoints: () => summarize(parts),
    waitingOf: file.tally.endpointsOf,
    waitingOfAll: file.tally.endpointsOfAll,
    oldestOf: async (account, urls) => new Map(urls.length === 0 ? [] : await reading.read('oldestOf', account, urls)),
    ages: (now) => readAges(reading, now),
    history: (endpoint, now) => readHistory(reading, endpoint, now),
    reports: (limit) => reading.read('reports', limit),
    reported: (ids) => file.write('reported', ids),
    attempts: (deliveryId) => reading.read('attempts', deliveryId),
    ...createBulk(parts),
    events: Object.freeze({ ...events, onNews: listeners.onNews }),
    copies: createCopyMarks({ file, reading }),
    onChange: listeners.onChange,
    onTurn: listeners.onTurn,
    check: file.check,
    close: () => (closing ??= close()),
  });
}

async function accept(parts: Parts, message: NewMessage, deliveries: readonly Delivery[]): Promise<AcceptOutcome> {
  const { file, room, holdings, blobs, cache, listeners } = parts;
  const given = toTight(message.body);
  const row = toRow(message, given);
  const { outcome, behind, bytes } =
    deliveries.length === 0
      ? ({ outcome: 'accepted', behind: [], bytes: null } as const)
      : await file.accept(row, deliveries);
  const body = bytes ? ({ kind: 'memory', bytes } as const) : given;
  if (outcome === 'accepted' && deliveries.length > 0) {
    blobs.claim(body);
    // Once in the log, and once in the file.
    room.wrote(2 * (row.envelope.length + (body.kind === 'memory' ? row.size : 0)) + deliveries.length * ROW_BYTES);
    holdings.add(row.envelope.length + row.size, deliveries);
    const { id, receivedAt, envelope, trace, verdicts = null, scan } = message;
    const fresh = deliveries.filter(({ fate }) => !fate);
    if (fresh.length > 0) {
      cache.put({ id, receivedAt, envelope, trace, verdicts, ...(scan && { scan }) }, body, fresh.length);
      listeners.tell(behind.length === 0 ? fresh : fresh.map((one) => ({ ...one, behind: behind.includes(one.id) })));
    }
  } else if (body.kind === 'file') {
    await blobs.remove([basename(body.path)]);
  }
  return outcome;
}

/** Returns a body whose memory can be transferred. An empty one is copied: its buffer may be shared with others. */
function toTight(body: Body): Body {
  if (body.kind === 'file') return body;
  const { bytes } = body;
  if (bytes.byteLength > 0 && isTight(bytes) && !isMarkedAsUntransferable(bytes.buffer)) return body;
  return { kind: 'memory', bytes: new Uint8Array(body.bytes) };
}

async function summarize({ file, reading }: Parts): Promise<EndpointSummary[]> {
  const due = new Map(await reading.read('firstDue'));
  return file.tally.entries().map(({ key, account, url, kind, memory, waiting }) => ({
    account,
    url,
    kind,
    waiting,
    memory,
    nextDue: waiting > 0 ? (due.get(key) ?? 0) : NEVER,
  }));
}

/** The listeners for deliveries and for events. */
export type Listeners = ReturnType<typeof createListeners>;

/** A listener that throws does not undo an acceptance. */
function createListeners(log: Log) {
  const ofDeliveries: ((fresh: readonly Delivery[]) => void)[] = [];
  const ofTurns: ((due: readonly QueuedDelivery[]) => void)[] = [];
  const ofEvents: ((news: EventNews) => void)[] = [];

  function inform<T>(listeners: readonly ((what: T) => void)[], what: T): void {
    for (const listener of listeners) {
      try {
        listener(what);
      } catch (error) {
        log.error('spool.fault', { reason: 'a listener failed', error });
      }
    }
  }

  return frozen({
    onChange(listener: (fresh: readonly Delivery[]) => void) {
      ofDeliveries.push(listener);
    },
    onTurn(listener: (due: readonly QueuedDelivery[]) => void) {
      ofTurns.push(listener);
    },
    onNews(listener: (news: EventNews) => void) {
      ofEvents.push(listener);
    },
    /** Announces new deliveries; an empty list: the queue was changed by hand. */
    tell(fresh: readonly Delivery[]) {
      inform(ofDeliveries, fresh);
      if (fresh.length === 0) inform(ofEvents, { kind: 'changed' });
    },
    /** Announces deliveries that waited behind others. */
    turn(due: readonly QueuedDelivery[]) {
      inform(ofTurns, due);
    },
    say(news: EventNews) {
      inform(ofEvents, news);
    },
  });
}

/**
 * Messages just accepted, so that the first attempt of each of their deliveries needs no disk read. The caller of
 * `take` owns the bytes: the last delivery gets the originals, those before it copies. Bytes freed by one are never
 * those of another.
 */
export type Cache = ReturnType<typeof createCache>;

interface Entry {
  message: Message;
  readonly body: Body;
  /** Deliveries not yet attempted. */
  left: number;
}

/** Approximate bytes of an entry besides its body. */
const OVERHEAD = 1024;

/** Creates a cache of at most `limit` bytes; the oldest entries are evicted first. */
function createCache(limit: number) {
  const entries = new Map<string, Entry>();
  let bytes = 0;
  const sizeOf = ({ body }: Entry) => OVERHEAD + (body.kind === 'memory' ? body.bytes.byteLength : 0);
  const remove = (id: string) => {
    const entry = entries.get(id);
    if (!entry) return;
    entries.delete(id);
    bytes -= sizeOf(entry);
  };
  /** Removes a message and frees its bytes, which only the cache holds. */
  const forget = (id: string, { body }: Entry) => {
    remove(id);
    if (body.kind === 'memory') free(body.bytes);
  };
  const makeRoom = () => {
    for (const [id, entry] of entries) {
      if (bytes <= limit) return;
      forget(id, entry);
    }
  };
  return frozen({
    put(message: Message, body: Body, deliveries: number) {
      const entry = { message, body, left: deliveries };
      entries.set(message.id, entry);
      bytes += sizeOf(entry);
      if (bytes > limit) makeRoom();
    },
    /** `first`: for the first attempt of one of its deliveries. */
    take(messageId: string, first: boolean): { readonly message: Message; readonly body: Body } | undefined {
      const entry = entries.get(messageId);
      if (!entry) return undefined;
      if (first) entry.left--;
      const { message, body } = entry;
      if (entry.left <= 0) remove(messageId);
      else if (body.kind === 'memory') return { message, body: { kind: 'memory', bytes: new Uint8Array(body.bytes) } };
      return { message, body };
    },
    /** Stores the verdicts in the message of the delivery. */
    keepVerdicts(deliveryId: string, verdicts: Message['verdicts']) {
      const entry = entries.get(messageIdOf(deliveryId));
      if (entry) entry.message = { ...entry.message, verdicts };
    },
    scanOf: (messageId: string) => entries.get(messageId)?.message.scan,
    keepScan(messageId: string, scan: Scan) {
      const entry = entries.get(messageId);
      if (entry) entry.message = { ...entry.message, scan };
    },
    clear() {
      for (const [id, entry] of entries) forget(id, entry);
    },
  });
}

/**
 * A delivery id is the message id, a hyphen and 12 characters (base/ids.ts). For an id of another form, the cache entry
 * just stays until evicted.
 */
function messageIdOf(deliveryId: string): string {
  return deliveryId.slice(0, -13);
}
