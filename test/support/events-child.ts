/**
 * A process of its own that publishes events, makes batches of them and settles those, and kills itself without warning
 * in the middle of the step that it is told: `node events-child.ts FOLDER ROUND STEP`. Says on standard output which
 * events were taken.
 */

import { writeSync } from 'node:fs';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { createLog } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { openSpool } from '../../src/queue/spool.ts';

const [dir = '', round = '0', dieAt = '0'] = process.argv.slice(2);
const hook = { id: '4', account: 'acme', url: 'https://hooks.example.com/4' };
const ids = createIds(systemClock);
const spool = await openSpool(
  { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 1_000_000 },
  { clock: systemClock, log: createLog('silent'), role: 'daemon', metrics: NO_METRICS },
);
// What the round before left open would stand in the way of new batches, and the later steps would never be reached.
await spool.drop({ kinds: ['events'], states: ['waiting'] }, Date.now());
let step = 0;
let count = 0;

/** The third step of each turn settles, which waits up to 5 ms for others to travel with. */
const moment = () => Math.random() * (step % 3 === 0 ? 10 : 3);

/** One step; in the one that is named the process ends as soon as it has been asked for, or a moment later. */
async function take<T>(work: () => Promise<T>): Promise<T> {
  const asked = work();
  if (++step === Number(dieAt)) setTimeout(() => process.kill(process.pid, 'SIGKILL'), moment());
  return asked;
}

for (;;) {
  const batch = Array.from({ length: 20 }, () => `r${round}-${count++}`).map((id) => ({
    id,
    body: JSON.stringify({ _id: id }),
  }));
  await take(() => spool.events.publish([{ hook, events: batch }], Date.now()));
  writeSync(1, batch.map(({ id }) => `${id}\n`).join(''));
  const { delivery } = await take(() =>
    spool.events.freeze(hook.id, ids.message(), { events: 15, bytes: 100_000 }, Date.now()),
  );
  if (!delivery) continue;
  const at = Date.now();
  await take(() =>
    spool.settle({
      deliveryId: delivery.id,
      attempt: { at, durationMs: 1, status: 200, error: null, answer: '' },
      state: 'delivered',
      dueAt: at,
      parked: false,
      at,
    }),
  );
}
