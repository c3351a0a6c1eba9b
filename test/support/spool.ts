import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds, deliveryId } from '../../src/base/ids.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import type { Outgoing } from '../../src/mail/outgoing.ts';
import type { AttemptRecord, Body, Delivery, NewMessage, Settlement, Spool } from '../../src/queue/delivery.ts';
import { openSpool, type SpoolDeps } from '../../src/queue/spool.ts';
import { afterTest } from './cleanup.ts';
import { createTestClock, type TestClock } from './clock.ts';
import { createTestLog } from './log.ts';
import { tempDir } from './temp.ts';

const ids = createIds(systemClock);

/** Closed after each test, the last one first. */
const open: Spool[] = [];
afterTest(async () => {
  for (const spool of open.splice(0).reverse()) await spool.close();
});

export interface OpenedSpool {
  readonly dir: string;
  readonly clock: TestClock;
  readonly log: ReturnType<typeof createTestLog>;
  readonly spool: Spool;
  /** Closes it and opens the same folder again, with the same clock and log. */
  reopen(): Promise<Spool>;
}

/** Takes from a queue file what formats 6 to 11 added, for a test that makes an older one of it. */
export const WITHOUT_KINDS = `DROP TRIGGER copied_changed; DROP TRIGGER copied_deleted; DROP TABLE copied;
  DROP INDEX deliveries_sequence; ALTER TABLE deliveries DROP COLUMN sequence; ALTER TABLE deliveries DROP COLUMN held_since;
  DROP TABLE scans; DROP TABLE details; ALTER TABLE attempts DROP COLUMN batch; ALTER TABLE deliveries DROP COLUMN kind; ALTER TABLE deliveries DROP COLUMN task;
  ALTER TABLE endpoints DROP COLUMN kind;`;

/** Settings without a floor of free disk. */
export function spoolSettings(dir: string) {
  return { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 1_000_000 };
}

/** Opens a spool that the test need not close, as a daemon when nothing else is said. */
export async function openOne(
  dir: string,
  deps: Pick<SpoolDeps, 'clock' | 'log'> & Partial<SpoolDeps>,
  settings = spoolSettings(dir),
): Promise<Spool> {
  const spool = await openSpool(settings, { role: 'daemon', metrics: NO_METRICS, ...deps });
  const tracked = {
    ...spool,
    async close() {
      const at = open.indexOf(tracked);
      if (at >= 0) open.splice(at, 1);
      await spool.close();
    },
  };
  open.push(tracked);
  return tracked;
}

/** A spool in a folder of its own. */
export async function freshSpool(dir?: string): Promise<OpenedSpool> {
  const folder = dir ?? (await tempDir());
  const clock = createTestClock();
  const log = createTestLog();
  let spool = await openOne(folder, { clock, log });
  return {
    dir: folder,
    clock,
    log,
    get spool() {
      return spool;
    },
    async reopen() {
      await spool.close();
      spool = await openOne(folder, { clock, log });
      return spool;
    },
  };
}

export interface Mail {
  readonly message: NewMessage;
  readonly deliveries: readonly Delivery[];
}

export interface MailOptions {
  readonly kind?: Delivery['kind'];
  readonly task?: Delivery['task'];
  readonly account?: string;
  readonly url?: string;
  readonly routeId?: string;
  readonly pattern?: string;
  readonly recipients?: readonly string[];
  readonly body?: Body;
  readonly id?: string;
  readonly notBefore?: number;
  readonly fate?: Delivery['fate'];
  /** Set for mail of an account. */
  readonly outgoing?: Outgoing;
}

/** A message that was received at the time of `clock`, with one delivery per recipient. */
export function mail(clock: Pick<Clock, 'now'>, options: MailOptions = {}): Mail {
  const {
    kind = 'inbound',
    task,
    outgoing,
    notBefore,
    fate,
    account = 'acme',
    url = 'https://hooks.example.com/in',
    routeId = '1.1',
    pattern = '*',
    recipients = ['jo@example.com'],
    id = ids.message(),
  } = options;
  const body = options.body ?? { kind: 'memory', bytes: new Uint8Array(randomBytes(1500)) };
  const envelope = {
    mailFrom: 'sam@sender.example',
    client: { address: '192.0.2.1', helo: 'mail.sender.example', tls: 'TLSv1.3' },
    ...(outgoing && { outgoing }),
  };
  const deliveries = recipients.map((recipient) => ({
    id: deliveryId(id, routeId, recipient),
    kind,
    ...(task && { task }),
    messageId: id,
    account,
    url,
    routeId,
    pattern,
    recipient,
    ...(notBefore !== undefined && { notBefore }),
    ...(fate && { fate }),
  }));
  return { message: { id, receivedAt: clock.now(), envelope, trace: 'Received: from there\r\n', body }, deliveries };
}

/** The message with bytes that can be given away; those of a test stay with it. */
export function given(message: NewMessage): NewMessage {
  const { body } = message;
  return body.kind === 'file' ? message : { ...message, body: { kind: 'memory', bytes: new Uint8Array(body.bytes) } };
}

/** Puts a message on the spool and expects that it is accepted. Answers it with its first delivery. */
export async function put(
  spool: Pick<Spool, 'accept'>,
  clock: Pick<Clock, 'now'>,
  options: MailOptions = {},
): Promise<Mail & { readonly delivery: Delivery }> {
  const one = mail(clock, options);
  const outcome = await spool.accept(given(one.message), one.deliveries);
  const [delivery] = one.deliveries;
  if (outcome !== 'accepted' || !delivery) throw new Error(`not accepted but ${outcome}`);
  return { ...one, delivery };
}

/** An attempt at the time of `clock`. */
export function attempt(clock: Pick<Clock, 'now'>, status: number | null = 200): AttemptRecord {
  return {
    at: clock.now(),
    durationMs: 12,
    status,
    error: status === null ? 'timeout' : null,
    answer: status === null ? '' : 'ok',
  };
}

/** A settlement after one attempt: delivered, or what is said instead. */
export function settled(clock: Pick<Clock, 'now'>, delivery: Delivery, change: Partial<Settlement> = {}): Settlement {
  return {
    deliveryId: delivery.id,
    attempt: attempt(clock),
    state: 'delivered',
    dueAt: clock.now(),
    parked: false,
    at: clock.now(),
    ...change,
  };
}

/** Makes the first page of a table unreadable. */
export async function damagePage(path: string, table: string): Promise<void> {
  const db = new DatabaseSync(path);
  const root = Number(db.prepare('SELECT rootpage FROM sqlite_master WHERE name = ?').get(table)?.['rootpage']);
  const size = Number(db.prepare('PRAGMA page_size').get()?.['page_size']);
  db.close();
  const bytes = await readFile(path);
  bytes.fill(0x5a, (root - 1) * size, root * size);
  await writeFile(path, bytes);
}
