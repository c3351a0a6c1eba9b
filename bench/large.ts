import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { message, openSession } from '../test/support/mail.ts';
import { compose } from './messages.ts';
import { memoryMb, run, start } from './processes.ts';

/**
 * What one 25 MB message costs everybody else: memory of the daemon, and how long other sessions wait for an answer
 * while it comes in, is parsed and goes out (the longest and the 99th percentile of a NOOP every 5 ms). `node large.ts
 * [rounds]`
 */
const rounds = Number(process.argv[2] ?? 5);
const here = import.meta.dirname;
const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
const file = join(work, 'large.eml');
writeFileSync(file, await compose(24_500_000, undefined));

const sink = await start([join(here, 'sink.ts')]);
const hook = `http://127.0.0.1:${sink.first.port}/hook`;
const key = 'a-key-for-the-bench-22';
const daemon = await start(
  [join(here, '../src/main.ts'), 'serve'],
  {
    POSTERN_DATA_DIR: join(work, 'data'),
    POSTERN_SMTP__LISTEN: '127.0.0.1:0',
    POSTERN_HTTP__LISTEN: '127.0.0.1:0',
    POSTERN_BOOTSTRAP__API_KEY: key,
    POSTERN_DNS__SERVERS: '127.0.0.1:9',
    POSTERN_DNS__TIMEOUT_MS: '100',
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    POSTERN_SMTP__MAX_MESSAGES_PER_SESSION: '1000000',
  },
  (line) => line.event === 'daemon.ready',
);
const call = (path: string, params: object) =>
  fetch(`http://${daemon.first.http}/api/1.0${path}.json`, {
    method: 'POST',
    body: JSON.stringify({ key, ...params }),
  });
await call('/inbound/add-domain', { domain: 'in.example' });
await call('/inbound/add-route', { domain: 'in.example', pattern: '*', url: hook });
const port = Number(String(daemon.first.smtp[0]).split(':').at(-1));
const posted = async () => ((await (await fetch(hook)).json()) as { count: number }).count;
const until = async (count: number) => {
  while ((await posted()) < count) await new Promise((resolve) => setTimeout(resolve, 20));
};

/**
 * NOOP after NOOP, and how long each waited, until `done`. NOOPs without mail are bounded, so each session sends a few.
 */
async function probe(done: () => boolean): Promise<number[]> {
  const waits: number[] = [];
  while (!done()) {
    const session = await openSession({ host: '127.0.0.1', port });
    for (let i = 0; i < 50 && !done(); i++) {
      const from = performance.now();
      await session.say('NOOP');
      waits.push(performance.now() - from);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    session.close();
  }
  return waits;
}

writeFileSync(join(work, 'small.eml'), message('warm'));
await run([join(here, 'load.ts'), String(port), join(work, 'small.eml'), '10', '200']);
await until(200);
const before = memoryMb(daemon.pid).now;
console.log(`before: ${before.toFixed(0)} MB`);
for (let round = 0; round < rounds; round++) {
  let over = false;
  const probing = probe(() => over);
  const from = performance.now();
  await run([join(here, 'load.ts'), String(port), file, '1', '1']);
  await until(201 + round);
  over = true;
  const waits = (await probing).sort((a, b) => a - b);
  const { peak, now } = memoryMb(daemon.pid);
  console.log(
    `25 MB in and out in ${((performance.now() - from) / 1000).toFixed(1)} s; NOOP p99 ${waits[Math.floor(waits.length * 0.99)]?.toFixed(1)} ms, longest ${waits.at(-1)?.toFixed(1)} ms; peak ${(peak - before).toFixed(0)} MB above, now ${(now - before).toFixed(0)} MB above`,
  );
}
await daemon.stop();
await sink.stop();
rmSync(work, { recursive: true, force: true });
