/**
 * A process of its own that puts messages on a spool and says on standard output which were accepted, so that a test
 * can kill it, trace it or let its disk fail: `node spool-child.ts FOLDER CALLERS MESSAGES LARGE_EVERY BYTES LOGGED`.
 * With LOGGED it goes on until its log has this text, for at most ten times as many.
 */

import { createHash, randomBytes } from 'node:crypto';
import { writeSync } from 'node:fs';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds, deliveryId } from '../../src/base/ids.ts';
import { createLog } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { openSpool } from '../../src/queue/spool.ts';

const [dir = '', callers = '1', messages = '1', largeEvery = '0', size = '2000', logged = ''] = process.argv.slice(2);
const say = (line: string) => {
  writeSync(1, line + '\n');
};
/** Repairs are tried again after seconds; here they are hundredths. */
const hasty: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms / 100, fn) };
let isLogged = logged === '';
const log = createLog('info', (line) => {
  writeSync(2, line);
  isLogged ||= line.includes(logged);
});
const ids = createIds(systemClock);
const spool = await openSpool(
  { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 1_000_000 },
  { clock: hasty, log, role: 'daemon', metrics: NO_METRICS },
);
say('ready');

let left = Number(messages);
const most = -9 * left;
let made = 0;

async function one(): Promise<string> {
  const id = ids.message();
  const large = Number(largeEvery) > 0 && ++made % Number(largeEvery) === 0;
  const bytes = randomBytes(large ? 400_000 : Number(size));
  // Before the bytes are given away.
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const writer = spool.body(id);
  await writer.write(bytes);
  const body = await writer.finish();
  const deliveries = [
    {
      id: deliveryId(id, '1.1', 'jo@example.com'),
      kind: 'inbound' as const,
      messageId: id,
      account: 'acme',
      url: 'https://a.example/',
      routeId: '1.1',
      pattern: '*',
      recipient: 'jo@example.com',
    },
  ];
  const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
  const outcome = await spool.accept({ id, receivedAt: Date.now(), envelope, trace: '', body }, deliveries);
  say(`${outcome} ${id} ${sha256}`);
  // The sender of a refused message comes again later.
  while (!spool.hasRoom()) await new Promise((resolve) => setTimeout(resolve, 5));
  return outcome;
}

await Promise.all(
  Array.from({ length: Number(callers) }, async () => {
    let last = '';
    // On a slow machine the line may be due to the last message: one more shows what comes after it.
    while (left-- > (isLogged ? 0 : most) || (isLogged && logged !== '' && last !== 'accepted')) last = await one();
  }),
);
await spool.close();
say('closed');
