import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { deliveryId } from '../../base/ids.ts';
import type { SqlRow } from '../../base/sqlite.ts';
import type { AttemptRecord, Delivery, Settlement } from '../delivery.ts';
import type { BatchLimits, EventsForHook, FreezeOutcome, Hook, HookTally, Pending } from '../events.ts';
import { STATES } from '../states.ts';
import type { Accepting, Ending } from './changes.ts';
import { number, numberOrNull, text, textOrNull, whole } from './schema.ts';

/** Open batches per webhook: several, as one may fail; few, as a dead endpoint must not fill the queue. */
const MAX_OPEN = 4;
const NOTHING: Pending = { events: 0, bytes: 0, since: 0 };
/** A batch has no sender. */
const ENVELOPE = JSON.stringify({ mailFrom: '', client: { address: null, helo: null, tls: null } });

/** Publishing and batching of events, inside the common transaction. */
export function createBatchChanges(db: DatabaseSync, accepting: Accepting) {
  const known = db.prepare('SELECT key, id, account, url FROM hooks WHERE id = ? AND gone = 0');
  const openOnes = db.prepare(
    'SELECT count(*) AS n FROM batches INDEXED BY batches_left WHERE hook = ? AND open > 0 AND open = 1',
  );
  const again = db.prepare(
    'SELECT b.hook, b.events FROM messages m JOIN batches b ON b.message = m.key WHERE m.id = ?',
  );
  const register = createRegister(db);
  const pending = createPending(db);
  const write = createWriting(db, accepting);

  return {
    /** Returns the new events among those published for each webhook. */
    publish(wanted: readonly EventsForHook[], now: number) {
      return wanted.flatMap(({ hook, events }) => {
        const key = register(hook);
        return key === undefined ? [] : [{ webhook: hook.id, ...pending.add(key, events, now) }];
      });
    },
    freeze(webhook: string, messageId: string, limits: BatchLimits, now: number): FreezeOutcome {
      const row = known.get(webhook);
      if (!row) return { delivery: null, blocked: false, left: NOTHING };
      const key = number(row, 'key');
      const hook = toHook(row);
      const left = () => pending.look(key, limits.events);
      // The request is repeated if the thread died before it replied.
      const done = again.get(messageId);
      if (done) return { delivery: toDelivery(hook, messageId, number(done, 'events')), blocked: false, left: left() };
      if (number(openOnes.get(key) ?? {}, 'n') >= MAX_OPEN) return { delivery: null, blocked: true, left: left() };
      const taken = pending.take(key, limits);
      if (taken.bodies.length === 0) return { delivery: null, blocked: false, left: NOTHING };
      const batch = write(hook, key, messageId, taken.bodies, now);
      pending.freeze(key, taken.last, batch.key);
      return { delivery: batch.delivery, blocked: false, left: left() };
    },
    send({ hook, events }: EventsForHook, messageId: string, now: number) {
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

/** Registers a webhook or updates its URL, and returns its key; undefined for a deleted one. */
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
    `SELECT key, size, body FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL
    ORDER BY key LIMIT ?`,
  );
  const freeze = db.prepare(
    'UPDATE events INDEXED BY events_pending SET batch = ?, body = NULL WHERE hook = ? AND batch IS NULL AND key <= ?',
  );
  const look = db.prepare(PENDING);
  return {
    add(hook: number, events: EventsForHook['events'], now: number): { events: number; bytes: number } {
      const added = { events: 0, bytes: 0 };
      for (const { id, body } of events) {
        const size = Buffer.byteLength(body);
        if (insert.run(hook, id, whole(now), size, body).changes === 0) continue;
        added.events++;
        added.bytes += size;
      }
      return added;
    },
    /** Returns the oldest events that fit in one batch, and the key of the last of them. */
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

/** Counts the pending events of a webhook, up to a limit. */
export const PENDING = `SELECT count(*) AS events, sum(size) AS bytes, min(at) AS since FROM
    (SELECT size, at FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL ORDER BY key LIMIT ?)`;

/** Converts a row of `PENDING`. */
export function toPending(row: SqlRow): Pending {
  return {
    events: number(row, 'events'),
    bytes: numberOrNull(row, 'bytes') ?? 0,
    since: numberOrNull(row, 'since') ?? 0,
  };
}

/** Writes a batch: its message, its delivery and its row in `batches`. */
function createWriting(db: DatabaseSync, accepting: Accepting) {
  const batch = db.prepare('INSERT INTO batches (message, hook, events, open, counted) VALUES (?, ?, ?, 1, 0)');
  return (hook: Hook, hookKey: number, messageId: string, bodies: readonly string[], now: number) => {
    const bytes = Buffer.from(`[${bodies.join(',')}]`);
    const delivery = toDelivery(hook, messageId, bodies.length);
    const row = {
      id: messageId,
      receivedAt: now,
      envelope: ENVELOPE,
      trace: '',
      size: bytes.byteLength,
      bytes,
      crc: crc32(bytes),
      blob: null,
      sha256: null,
      verdicts: null,
      scan: null,
    };
    const written = accepting(row, [delivery]);
    if (!written) throw new Error('the queue has a message with this id');
    batch.run(written.key, hookKey, bodies.length);
    return { key: written.key, delivery };
  };
}

function toDelivery({ id, account, url }: Hook, messageId: string, events: number): Delivery {
  return {
    id: deliveryId(messageId, id, ''),
    kind: 'events',
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

/** Changes to all events and batches of a webhook, in steps small enough to share a commit with new mail. */
export function createHookChanges(db: DatabaseSync, ending: Pick<Ending, 'drop' | 'redirect'>) {
  const find = db.prepare('SELECT key FROM hooks WHERE id = ?');
  const bury = db.prepare('UPDATE hooks SET gone = 1 WHERE key = ?');
  const move = db.prepare('UPDATE hooks SET url = ? WHERE key = ?');
  const all = db.prepare('SELECT key, id FROM hooks');
  const pending = db.prepare(
    'SELECT key, at FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL ORDER BY key LIMIT ?',
  );
  const remove = db.prepare('DELETE FROM events WHERE key = ?');
  const batches = db.prepare(
    `SELECT d.key, d.state FROM batches b INDEXED BY batches_left JOIN deliveries d ON d.key = b.message
    WHERE b.hook = ? AND b.open > 0`,
  );

  const keyOf = (webhook: string): number | undefined => {
    const row = find.get(webhook);
    return row && number(row, 'key');
  };
  /** Removes pending events, oldest first, up to the limit or the first one that is not older than `before`. */
  const removePending = (hook: number, before: number, limit: number): number => {
    const rows = pending.all(hook, limit);
    const end = rows.findIndex((row) => number(row, 'at') >= before);
    const over = end === -1 ? rows : rows.slice(0, end);
    for (const row of over) remove.run(number(row, 'key'));
    return over.length;
  };

  return {
    /** Deletes a webhook, one step at a time. Returns whether there is more to do, and how many batches it dropped. */
    forgetHook(webhook: string, now: number, limit: number): { readonly more: boolean; readonly batches: number } {
      const key = keyOf(webhook);
      if (key === undefined) return { more: false, batches: 0 };
      bury.run(key);
      if (removePending(key, Number.POSITIVE_INFINITY, limit) === limit) return { more: true, batches: 0 };
      const waiting = batches
        .all(key)
        .filter((row) => number(row, 'state') === 0)
        .map((row) => number(row, 'key'));
      return { more: false, batches: ending.drop(waiting, now).length };
    },
    redirectHook(webhook: string, url: string) {
      const key = keyOf(webhook);
      if (key === undefined) return 0;
      move.run(url, key);
      return ending.redirect(
        batches.all(key).map((row) => number(row, 'key')),
        url,
      );
    },
    /** Drops pending events that arrived before a time, one step at a time. Returns how many per webhook, if any. */
    expireEvents: (before: number, limit: number): { readonly webhook: string; readonly events: number }[] =>
      all.all().flatMap((row) => {
        const events = removePending(number(row, 'key'), before, limit);
        return events > 0 ? [{ webhook: text(row, 'id'), events }] : [];
      }),
  };
}

/** Records an attempt at a batch, in the transaction of its settlement, on the writer's connection. */
export function createTallying(db: DatabaseSync) {
  const open = db.prepare('UPDATE batches SET open = ? WHERE message = ?');
  // A batch is counted once, however often it is replayed.
  const count = db.prepare('UPDATE batches SET counted = 1 WHERE message = ? AND counted = 0');
  const sent = db.prepare(`UPDATE hooks SET batches = batches + 1, events = hooks.events + b.events,
    sent_at = max(coalesce(sent_at, 0), ?)
    FROM (SELECT hook, events FROM batches WHERE message = ?) b WHERE key = b.hook`);
  const failed = db.prepare(
    'UPDATE hooks SET error = ?, error_at = ? WHERE key = (SELECT hook FROM batches WHERE message = ?)',
  );
  const url = db.prepare('SELECT url FROM endpoints WHERE key = ?');
  const tally = db.prepare(`${TALLY} WHERE gone = 0 AND key = (SELECT hook FROM batches WHERE message = ?)`);
  return {
    /** Returns the counts of its webhook; null if that was deleted. `waits`: the delivery was waiting until now. */
    settled(delivery: number, endpoint: number, { state, parked, attempt, at }: Settlement, waits: boolean) {
      if (waits) open.run(openness(state, parked), delivery);
      if (state === 'delivered') {
        if (count.run(delivery).changes !== 0) sent.run(whole(at), delivery);
      } else if (attempt) {
        failed.run(toErrorText(text(url.get(endpoint) ?? {}, 'url'), attempt), whole(at), delivery);
      }
      const row = tally.get(delivery);
      return row ? toTally(row) : null;
    },
  };
}

function openness(state: Settlement['state'], parked: boolean): number {
  if (state === 'waiting') return parked ? 2 : 1;
  return STATES[state].open ? 2 : 0;
}

/** The wording that readers of `last_error` expect. */
function toErrorText(url: string, { status, answer, error }: AttemptRecord): string {
  return status === null
    ? `POST to ${url} failed: ${error ?? 'no answer'}`
    : `POST to ${url} failed with ${status}: ${answer}`;
}

/** The columns for `toTally`. */
export const TALLY = 'SELECT id, account, url, spool, batches, events, sent_at, error, error_at FROM hooks';

/** Converts a row of `TALLY`. */
export function toTally(row: SqlRow): HookTally {
  return {
    hook: { id: text(row, 'id'), account: text(row, 'account'), url: text(row, 'url') },
    spool: number(row, 'spool').toString(36),
    batches: number(row, 'batches'),
    events: number(row, 'events'),
    sentAt: numberOrNull(row, 'sent_at'),
    error: textOrNull(row, 'error'),
    errorAt: numberOrNull(row, 'error_at'),
  };
}
