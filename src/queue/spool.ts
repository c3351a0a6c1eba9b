import { basename } from 'node:path';
import { isMarkedAsUntransferable } from 'node:worker_threads';
import { type Bytes, isTight } from '../base/bytes.ts';
import { createDiskSpace, type DiskSpaceSettings, readDiskSpace } from '../base/disk-space.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Tools } from '../base/tools.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { Scan } from '../mail/scan.ts';
import { createAccountUsage } from './account-usage.ts';
import { readAges } from './ages.ts';
import { createCache } from './cache.ts';
import { createCopyMarks } from './copy-marks.ts';
import type {
  AcceptOutcome,
  Body,
  Delivery,
  Endpoint,
  EndpointName,
  EndpointSummary,
  Message,
  NewMessage,
  QueuedDelivery,
  Settlement,
} from './delivery.ts';
import { createBlobs } from './disk/bodies.ts';
import { createBulk } from './disk/bulk.ts';
import { openQueueFile, registerQueueGauges } from './disk/file.ts';
import { emptyTmp, type Folder, folderOf, makeFolders, takeLock } from './disk/folder.ts';
import type { LeaseEnd, LeaseTimes } from './disk/leases.ts';
import { openReader, type Reader } from './disk/reader.ts';
import { giveUpDamaged, lookAtLog, recover } from './disk/recovery.ts';
import { createEventQueue, type EventNews } from './events.ts';
import { readHistory } from './history.ts';
import { createMessages, messageRowOf } from './messages.ts';

interface SpoolSettings extends DiskSpaceSettings {
  /** Folder that contains spool.db, blobs/ and tmp/. */
  readonly dir: string;
}

export interface SpoolDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  /**
   * daemon: the one process that accepts mail; it locks the folder and repairs the damage of a crash. visitor: the
   * command line, which reads and changes the queue concurrently.
   */
  readonly role: 'daemon' | 'visitor';
  /** Whether the store may have copies of messages, so that a missing body is not given up at the start. */
  readonly copies?: boolean;
}

/** Messages whose headers are read in one query: other queries wait for it. */
const SUMMARIES = 50;
/** How often due deliveries are read again when some rows are damaged. */
const DUE_TRIES = 3;

/** Bytes of a delivery on the disk, with its indexes and its first attempt. */
const ROW_BYTES = 2048;

/** The due time of an endpoint with nothing waiting. */
const NEVER = Number.MAX_SAFE_INTEGER;

type Parts = Awaited<ReturnType<typeof openParts>>;

/**
 * Opens the queue of this host. Throws SpoolInUse if another daemon has it open, SpoolTooNew if a newer version wrote
 * it, SpoolFault if it cannot be opened.
 */
export async function openSpool(settings: SpoolSettings, deps: SpoolDeps) {
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
    if (lock) void parts.accountUsage.count();
    const spool = createSpool(parts, () => lock?.release());
    registerQueueGauges(parts, clock, metrics);
    return spool;
  } catch (error) {
    lock?.release();
    throw error;
  }
}

async function openParts(settings: SpoolSettings, folder: Folder, { clock, log, role, metrics }: SpoolDeps) {
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
  const room = createDiskSpace('spool', settings, { clock, log, look: () => readDiskSpace(folder.dir) });
  return {
    clock,
    log,
    folder,
    file,
    reading,
    room,
    accountUsage: createAccountUsage({ reading, room, clock, log }),
    listeners,
    blobs: createBlobs(folder, room.wrote),
    cache: createCache(),
  };
}

function createSpool(parts: Parts, release: () => void) {
  const { file, reading, room, accountUsage, blobs, cache, listeners } = parts;
  const messages = createMessages(parts);
  const events = createEventQueue({ file, reading, room, say: listeners.say, tell: listeners.tell });
  let closing: Promise<void> | undefined;
  const close = async () => {
    room.stop();
    accountUsage.stop();
    await file.close();
    await reading.close();
    release();
  };
  return frozen({
    body: blobs.writer,
    /** Writes the message and its deliveries atomically and syncs them. Writes that arrive meanwhile share a sync. */
    accept: (message: NewMessage, deliveries: readonly Delivery[]) => accept(parts, message, deliveries),
    /** Whether new mail can be accepted: false when the disk is nearly full, or after a failed sync. From memory. */
    hasRoom: () => file.sound() && room.has(),
    isWithinShare: accountUsage.isWithinShare,
    backlog: file.tally.ofAccount,
    /** Undefined if it is gone. `deliveryId`: the delivery that needs it; it is given up if its message is lost. */
    message: async (
      messageId: string,
      deliveryId?: string,
    ): Promise<{ readonly message: Message; readonly body: Bytes } | undefined> =>
      cache.take(messageId, deliveryId !== undefined) ?? (await messages.find(messageId, deliveryId)),
    /** Restores messages that were damaged on the disk from copies elsewhere. */
    rescue: frozen({ onDamage: messages.onDamage, restore: messages.restore }),
    /**
     * Writes a settlement. If the delivery is gone or no longer waiting, this is no error; the attempt is recorded if
     * the delivery exists. `fresh`: verdicts just computed. Returns whether it waits behind another of its
     * sequence.
     */
    async settle(settlement: Settlement, fresh?: Verdicts) {
      const { tally, behind } = await file.write('settle', settlement, fresh ? JSON.stringify(fresh) : null);
      if (fresh) cache.keepVerdicts(settlement.deliveryId, fresh);
      const { deliveryId: delivery, state } = settlement;
      if (tally) listeners.say({ kind: 'settled', webhook: tally.hook.id, tally, delivery, state });
      return behind;
    },
    /** The scan of a message, without its body; undefined if it has none. */
    scanOf: async (messageId: string) => cache.scanOf(messageId) ?? (await reading.read('scanOf', messageId)),
    /** Keeps the scan of a message, unless it has one. Returns the one that is kept. */
    async keepScan(messageId: string, scan: Scan) {
      const kept: Scan = JSON.parse(await file.write('keepScan', messageId, JSON.stringify(scan)));
      cache.keepScan(messageId, kept);
      return kept;
    },
    /** Saves the state of an endpoint that must survive a restart. */
    keepEndpoint: (endpoint: Endpoint, memory: string | null) => file.write('keepEndpoint', endpoint, memory),
    lastTime: () => reading.read('lastTime'),
    keepTime: (memory: string) => file.write('keepTime', memory),
    /** Envelopes and sizes of messages, without those that are gone or damaged. */
    envelopes: async (messageIds: readonly string[]) => new Map(await reading.read('envelopes', messageIds)),
    /** The result of `summaryFields` (mail/summary.ts) for messages, without those that are gone. */
    async summaryFields(messageIds: readonly string[]) {
      const found = new Map<string, string>();
      for (let at = 0; at < messageIds.length; at += SUMMARIES)
        for (const [id, fields] of await reading.read('summaryFields', messageIds.slice(at, at + SUMMARIES)))
          found.set(id, fields);
      return found;
    },
    delivery: (id: string) => reading.read('delivery', id),
    /** Waiting deliveries of an endpoint that are due at `now`, earliest due first, without those in `except`. */
    async due(account: string, url: string, now: number, limit: number, except: readonly string[]) {
      const read = () => reading.read('due', account, url, now, limit, except);
      let due = await read();
      // Damaged rows counted towards the limit, so it reads again; a few times, in case they cannot be given up.
      for (let tries = 0; due.damaged.length > 0 && tries < DUE_TRIES; tries++) {
        await giveUpDamaged(parts, due.damaged);
        due = await read();
      }
      return due.found;
    },
    /** Waiting deliveries of an endpoint that are due at `now` and whose time budget began at `before` or earlier. */
    overdue: (endpoint: EndpointName, before: number, now: number, limit: number) =>
      reading.read('overdue', endpoint, before, now, limit),
    /** Leases the due ones of these deliveries, in order. A leased one is due again at the end of its lease. */
    lease: (endpoint: EndpointName, ids: readonly string[], times: LeaseTimes) =>
      file.write('lease', endpoint, ids, times),
    /** Ends a lease and returns its attempt; null if it is not the newest of a waiting delivery of the account. */
    endLease: (account: string, end: LeaseEnd) => file.write('endLease', account, end),
    /** Keeps verdicts just computed, before the attempt ends. */
    async keepVerdicts(deliveryId: string, fresh: Verdicts) {
      await file.write('keepVerdicts', deliveryId, JSON.stringify(fresh));
      cache.keepVerdicts(deliveryId, fresh);
    },
    /** Every endpoint with waiting deliveries or saved state. */
    endpoints: () => summarize(parts),
    waitingOf: file.tally.endpointsOf,
    waitingOfAll: file.tally.endpointsOfAll,
    /** When the oldest waiting delivery to each of these URLs was accepted. */
    oldestOf: async (account: string, urls: readonly string[]): Promise<ReadonlyMap<string, number>> =>
      new Map(urls.length === 0 ? [] : await reading.read('oldestOf', account, urls)),
    /** Counts waiting deliveries by endpoint and age. */
    ages: (now: number) => readAges(reading, now),
    /** Sums up the attempts at an endpoint. */
    history: (endpoint: EndpointName, now: number) => readHistory(reading, endpoint, now),
    /** Reports not yet passed on, oldest first. */
    reports: (limit: number) => reading.read('reports', limit),
    /** Removes reports that were passed on. */
    reported: (ids: readonly string[]) => file.write('reported', ids),
    attempts: (deliveryId: string) => reading.read('attempts', deliveryId),
    ...createBulk(parts),
    /** Events for webhooks. */
    events: frozen({ ...events, onNews: listeners.onNews }),
    /** The marks of messages with a copy in the shared store. */
    copies: createCopyMarks({ file, reading }),
    onChange: listeners.onChange,
    onTurn: listeners.onTurn,
    check: file.check,
    close: () => (closing ??= close()),
  });
}

async function accept(parts: Parts, message: NewMessage, deliveries: readonly Delivery[]): Promise<AcceptOutcome> {
  const { file, room, accountUsage, blobs, cache, listeners } = parts;
  const given = toTight(message.body);
  const row = messageRowOf(message, given);
  const { outcome, behind, bytes } =
    deliveries.length === 0
      ? ({ outcome: 'accepted', behind: [], bytes: null } as const)
      : await file.accept(row, deliveries);
  const body = bytes ? ({ kind: 'memory', bytes } as const) : given;
  if (outcome === 'accepted' && deliveries.length > 0) {
    blobs.claim(body);
    // Once in the log, and once in the file.
    room.wrote(2 * (row.envelope.length + (body.kind === 'memory' ? row.size : 0)) + deliveries.length * ROW_BYTES);
    accountUsage.add(row.envelope.length + row.size, deliveries);
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

function createListeners(log: Log) {
  const deliveries = createChannel<readonly Delivery[]>(log);
  const turns = createChannel<readonly QueuedDelivery[]>(log);
  const events = createChannel<EventNews>(log);
  return frozen({
    /**
     * The listener is called after every accepted message and every new batch, including deliveries behind others, and
     * with an empty list after an outside change to the queue (command line).
     */
    onChange: deliveries.on,
    /** The listener is called with deliveries that became due in their sequence, and those that left it. */
    onTurn: turns.on,
    onNews: events.on,
    /** Announces new deliveries; an empty list: the queue was changed by hand. */
    tell(fresh: readonly Delivery[]) {
      deliveries.tell(fresh);
      if (fresh.length === 0) events.tell({ kind: 'changed' });
    },
    /** Announces deliveries that waited behind others. */
    turn: turns.tell,
    say: events.tell,
  });
}

/** A listener that throws does not undo an acceptance. */
function createChannel<T>(log: Log) {
  const listeners: ((what: T) => void)[] = [];
  return {
    on(listener: (what: T) => void) {
      listeners.push(listener);
    },
    tell(what: T) {
      for (const listener of listeners) {
        try {
          listener(what);
        } catch (error) {
          log.error('spool.fault', { reason: 'a listener failed', error });
        }
      }
    },
  };
}
