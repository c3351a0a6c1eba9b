import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { deliveryId } from '../../base/ids.ts';
import type { BatchLimits, Frozen, Hook, Pending, Wanted } from '../event-types.ts';
import type { Delivery } from '../types.ts';
import type { Endpoints } from './endpoints.ts';
import { sumOf, sumOfDelivery } from './row-sum.ts';
import { number, numberOrNull, type SqlRow, text, whole } from './rows.ts';

/** What was new of the events that were published for a webhook. */
export interface Published {
  readonly webhook: string;
  readonly events: number;
  readonly bytes: number;
}

/** Events on their way into batches, inside the common transaction. */
export interface Batching {
  publish(wanted: readonly Wanted[], now: number): Published[];
  freeze(webhook: string, messageId: string, limits: BatchLimits, now: number): Frozen;
  send(wanted: Wanted, messageId: string, now: number): Delivery;
}

/** Open batches of one webhook at most: a failing one does not hold up the next, and a dead endpoint does not fill the queue with them. */
const MOST_OPEN = 4;
const NOTHING: Pending = { events: 0, bytes: 0, since: 0 };
/** A batch has no sender. */
const ENVELOPE = JSON.stringify({ mailFrom: '', client: { address: null, helo: null, tls: null } });

/** Batching over the writer's connection. `nextKey` gives out `count` numbers and answers the first. */
export function createBatching(db: DatabaseSync, endpoints: Endpoints, nextKey: (count: number) => number): Batching {
  const known = db.prepare('SELECT key, id, account, url FROM hooks WHERE id = ? AND gone = 0');
  const openOnes = db.prepare(
    'SELECT count(*) AS n FROM batches INDEXED BY batches_left WHERE hook = ? AND open > 0 AND open = 1',
  );
  const again = db.prepare(
    'SELECT b.hook, b.events FROM messages m JOIN batches b ON b.message = m.key WHERE m.id = ?',
  );
  const register = createRegister(db);
  const pending = createPending(db);
  const write = createWriting(db, endpoints, nextKey);

  return {
    publish(wanted, now) {
      return wanted.flatMap(({ hook, events }) => {
        const key = register(hook);
        return key === undefined ? [] : [{ webhook: hook.id, ...pending.add(key, events, now) }];
      });
    },
    freeze(webhook, messageId, limits, now) {
      const row = known.get(webhook);
      if (!row) return { delivery: null, blocked: false, left: NOTHING };
      const key = number(row, 'key');
      const hook = toHook(row);
      const left = () => pending.look(key, limits.events);
      // A thread that died before it answered is asked once more.
      const done = again.get(messageId);
      if (done) return { delivery: toDelivery(hook, messageId, number(done, 'events')), blocked: false, left: left() };
      if (number(openOnes.get(key) ?? {}, 'n') >= MOST_OPEN) return { delivery: null, blocked: true, left: left() };
      const taken = pending.take(key, limits);
      if (taken.bodies.length === 0) return { delivery: null, blocked: false, left: NOTHING };
      const batch = write(hook, key, messageId, taken.bodies, now);
      pending.freeze(key, taken.last, batch.key);
      return { delivery: batch.delivery, blocked: false, left: left() };
    },
    send({ hook, events }, messageId, now) {
      const key = register(hook);
      if (key === undefined) throw new Error('this webhook was deleted');
      return write(
        hook,
        key,
        messageId,
        events.map(({ body }) => body),
        now,
      ).delivery;
    },
  };
}

/** The number of a webhook, with where it is now; undefined for one that was deleted. */
function createRegister(db: DatabaseSync): (hook: Hook) => number | undefined {
  const register = db.prepare(`INSERT INTO hooks (id, account, url, gone, spool, batches, events)
    VALUES (?, ?, ?, 0, (SELECT value FROM meta WHERE name = 'spool'), 0, 0)
    ON CONFLICT (id) DO UPDATE SET url = excluded.url RETURNING key, gone`);
  return ({ id, account, url }) => {
    const row = register.get(id, account, url);
    return row && number(row, 'gone') === 0 ? number(row, 'key') : undefined;
  };
}

function createPending(db: DatabaseSync) {
  const insert = db.prepare(
    'INSERT INTO events (hook, id, at, size, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING',
  );
  const oldest = db.prepare(
    'SELECT key, size, body FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL ORDER BY key LIMIT ?',
  );
  const freeze = db.prepare(
    'UPDATE events INDEXED BY events_pending SET batch = ?, body = NULL WHERE hook = ? AND batch IS NULL AND key <= ?',
  );
  const look = db.prepare(PENDING);
  return {
    add(hook: number, events: Wanted['events'], now: number): { events: number; bytes: number } {
      const added = { events: 0, bytes: 0 };
      for (const { id, body } of events) {
        const size = Buffer.byteLength(body);
        if (insert.run(hook, id, whole(now), size, body).changes === 0) continue;
        added.events++;
        added.bytes += size;
      }
      return added;
    },
    /** The oldest that make one batch, and the number of the last of them. */
    take(hook: number, limits: BatchLimits): { bodies: string[]; last: number } {
      const bodies: string[] = [];
      let bytes = '[]'.length;
      let last = 0;
      for (const row of oldest.iterate(hook, limits.events)) {
        const more = number(row, 'size') + (bodies.length > 0 ? ','.length : 0);
        if (bodies.length > 0 && bytes + more > limits.bytes) break;
        bodies.push(text(row, 'body'));
        bytes += more;
        last = number(row, 'key');
      }
      return { bodies, last };
    },
    freeze(hook: number, last: number, batch: number): void {
      freeze.run(batch, hook, last);
    },
    look(hook: number, limit: number): Pending {
      return toPending(look.get(hook, limit) ?? {});
    },
  };
}

/** What is pending for a webhook, counted up to a limit. */
export const PENDING = `SELECT count(*) AS events, sum(size) AS bytes, min(at) AS since FROM
    (SELECT size, at FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL ORDER BY key LIMIT ?)`;

/** A row of `PENDING`. */
export function toPending(row: SqlRow): Pending {
  return {
    events: number(row, 'events'),
    bytes: numberOrNull(row, 'bytes') ?? 0,
    since: numberOrNull(row, 'since') ?? 0,
  };
}

/** Writes a batch: its message, its delivery, and what makes it a batch. */
function createWriting(db: DatabaseSync, endpoints: Endpoints, nextKey: (count: number) => number) {
  const message =
    db.prepare(`INSERT INTO messages (key, id, received_at, deliveries, envelope, trace, size, crc, bytes, sum)
    VALUES (?, ?, ?, 1, ?, '', ?, ?, ?, ?)`);
  const delivery =
    db.prepare(`INSERT INTO deliveries (key, id, message, endpoint, route, pattern, recipient, bytes, state,
    created_at, due_at, ended_at, budget_from, attempts, posts, parked, sum) VALUES (?, ?, ?, ?, '', '', '', ?, 0, ?, ?, ?, ?, 0, 0, 0, ?)`);
  const batch = db.prepare('INSERT INTO batches (message, hook, events, open, counted) VALUES (?, ?, ?, 1, 0)');
  return (
    hook: Hook,
    hookKey: number,
    messageId: string,
    bodies: readonly string[],
    now: number,
  ): { key: number; delivery: Delivery } => {
    const key = nextKey(1);
    const at = whole(now);
    const bytes = Buffer.from(`[${bodies.join(',')}]`);
    const made = toDelivery(hook, messageId, bodies.length);
    const endpoint = endpoints.keyOf(hook.account, hook.url);
    const row = {
      id: messageId,
      receivedAt: at,
      deliveries: 1,
      envelope: ENVELOPE,
      trace: '',
      size: bytes.byteLength,
      crc: crc32(bytes),
      blob: null,
      sha256: null,
    };
    message.run(key, messageId, at, ENVELOPE, row.size, row.crc, bytes, sumOf(row));
    delivery.run(
      key,
      made.id,
      key,
      endpoint,
      bytes.byteLength,
      at,
      at,
      at,
      at,
      sumOfDelivery({ ...made, message: key, route: made.routeId }),
    );
    batch.run(key, hookKey, bodies.length);
    endpoints.shift(endpoint, 1);
    return { key, delivery: made };
  };
}

function toDelivery({ id, account, url }: Hook, messageId: string, events: number): Delivery {
  return {
    id: deliveryId(messageId, id, ''),
    messageId,
    account,
    url,
    routeId: '',
    pattern: '',
    recipient: '',
    batch: { webhook: id, events },
  };
}

function toHook(row: SqlRow): Hook {
  return { id: text(row, 'id'), account: text(row, 'account'), url: text(row, 'url') };
}
