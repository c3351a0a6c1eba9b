import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../src/base/clock.ts';
import { createLog } from '../src/base/log.ts';
import { NO_METRICS } from '../src/base/metrics.ts';
import type { Spool } from '../src/queue/delivery.ts';
import { openSpool } from '../src/queue/spool.ts';
import { openEmbedded } from '../src/store/driver/embedded.ts';
import { signingKeyId } from '../src/store/rows/webhooks.ts';
import { openStore, type Store } from '../src/store/store.ts';
import { NO_FLOOR } from '../test/support/room.ts';

/** What a data folder is filled with before it is measured. */
export interface Fill {
  /** Deliveries that wait for endpoints that are away. */
  readonly waiting: number;
  /** Routes of in.example beside the one that all mail goes to: for whole names, or for patterns with wildcards. */
  readonly routes: number;
  readonly kind: 'exact' | 'pattern';
  /** Mail goes to so many endpoints, by a route for each. */
  readonly endpoints: number;
}

/** So many writes are on their way at a time; they share syncs. */
const AT_ONCE = 2000;
const AWAY = 100;
const HOUR = 3_600_000;
const quiet = createLog('silent');

async function each(count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < count; from += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, i) => work(from + i)));
  }
}

/** Fills a folder in which a daemon has made its account and the domain in.example. */
export async function fill(dir: string, sink: string, what: Fill): Promise<void> {
  const store = await openStore(
    await openEmbedded(
      { file: join(dir, 'store.db'), timeoutMs: 60_000, room: NO_FLOOR },
      { log: quiet, clock: systemClock },
    ),
  );
  const [account] = await store.accounts.many({});
  if (!account) throw new Error('the daemon made no account');
  await fillRoutes(store, account, sink, what);
  await store.close();
  const folder = join(dir, 'spool');
  mkdirSync(folder, { recursive: true });
  const spool = await openSpool(
    { dir: folder, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 26_214_400 },
    { clock: systemClock, log: quiet, role: 'daemon', metrics: NO_METRICS },
  );
  await each(what.waiting, (i) => wait(spool, account.id, i));
  await spool.close();
}

async function fillRoutes(
  store: Store,
  account: { readonly id: string; readonly number: number },
  sink: string,
  { routes, kind, endpoints }: Fill,
): Promise<void> {
  const createdAt = new Date();
  let made = 0;
  const add = (pattern: string, url: string) =>
    store.inboundRoutes.insert({
      id: `${account.number}.${1000 + made++}`,
      account: account.id,
      domain: 'in.example',
      pattern,
      url,
      createdAt,
    });
  await each(routes, (i) => add(kind === 'exact' ? `name-${i}` : `team-${i}-*`, sink));
  // Where patterns are looked through, the mail goes to the last of them.
  if (endpoints === 1) return void (await add(kind === 'exact' ? 'bench' : '*', sink));
  // The keys that sign are there after an endpoint's first mail; that time is not what is measured.
  await each(endpoints, async (i) => {
    const url = `${sink}/${i}`;
    await add(`bench-${i}`, url);
    await store.signingKeys.insert({
      id: signingKeyId(account.id, url),
      account: account.id,
      url,
      key: randomBytes(24).toString('base64url'),
      previousKey: null,
      previousUntil: null,
      createdAt,
    });
  });
}

const BODY = new Uint8Array(
  Buffer.from(
    `From: ada@sender.example\r\nSubject: waits\r\n\r\n${'It waits for an endpoint that is away.\r\n'.repeat(12)}`,
  ),
);

/** A delivery as it is after some attempts: it failed a moment ago, and it is due again in hours. */
async function wait(spool: Spool, account: string, i: number): Promise<void> {
  const id = i.toString(16).padStart(32, '0');
  const at = Date.now();
  const delivery = {
    id,
    kind: 'inbound' as const,
    messageId: id,
    account,
    url: `http://127.0.0.1:9/away/${i % AWAY}`,
    routeId: '1.1',
    pattern: '*',
    recipient: 'bench@in.example',
  };
  const envelope = {
    mailFrom: 'ada@sender.example',
    recipients: ['bench@in.example'],
    client: { address: '192.0.2.1', helo: 'mx.sender.example', tls: null },
  } as const;
  await spool.accept(
    {
      id,
      receivedAt: at,
      envelope,
      trace: 'Received: from mx.sender.example\r\n',
      body: { kind: 'memory', bytes: BODY.slice() }, // the queue takes the memory
    },
    [delivery],
  );
  await spool.settle({
    deliveryId: id,
    attempt: { at, durationMs: 3, status: 503, error: null, answer: '' },
    state: 'waiting',
    dueAt: at + HOUR + (i % HOUR),
    parked: true,
    at,
  });
}
