/**
 * A process of its own that settles deliveries with reports, tells some of them, and says on standard output what is
 * settled (`settled ID`) and what was told (`told ID`), until it is killed: `node reports-child.ts FOLDER`.
 */

import { writeSync } from 'node:fs';
import { systemClock } from '../../src/base/clock.ts';
import { createIds, deliveryId } from '../../src/base/ids.ts';
import { createLog } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { openSpool } from '../../src/queue/spool.ts';

const [dir = ''] = process.argv.slice(2);
const say = (line: string) => {
  writeSync(1, line + '\n');
};
const ids = createIds(systemClock);
const log = createLog('error', (line) => {
  writeSync(2, line);
});
const spool = await openSpool(
  { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 1_000_000 },
  { clock: systemClock, log, role: 'daemon', metrics: NO_METRICS },
);

async function one(): Promise<void> {
  const messageId = ids.message();
  const id = deliveryId(messageId, 'out', 'jo@example.com');
  const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
  const delivery = {
    id,
    kind: 'outbound' as const,
    messageId,
    account: 'acme',
    url: 'smtp://example.com',
    routeId: '',
    pattern: '',
    recipient: 'jo@example.com',
  };
  await spool.accept(
    { id: messageId, receivedAt: Date.now(), envelope, trace: '', body: { kind: 'memory', bytes: Buffer.from('x') } },
    [delivery],
  );
  const at = Date.now();
  await spool.settle({
    deliveryId: id,
    attempt: { at, durationMs: 1, status: 250, error: null, answer: 'ok' },
    state: 'delivered',
    dueAt: at,
    parked: false,
    at,
    report: { id, body: JSON.stringify({ about: id }) },
  });
  say(`settled ${id}`);
}

async function tell(): Promise<void> {
  const reports = await spool.reports(3);
  for (const { id } of reports) say(`told ${id}`);
  await spool.reported(reports.map(({ id }) => id));
}

await Promise.all([
  ...Array.from({ length: 10 }, async () => {
    for (;;) await one();
  }),
  (async () => {
    for (;;) {
      await tell();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  })(),
]);
