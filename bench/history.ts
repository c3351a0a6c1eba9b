import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/base/clock.ts';
import { createIds, deliveryId } from '../src/base/ids.ts';
import { NO_METRICS } from '../src/base/metrics.ts';
import { createJournal } from '../src/journal/journal.ts';
import type { HistoryPage, MailFilter } from '../src/journal/types.ts';
import { threadOfRoot } from '../src/mail/replies/thread.ts';
import type { DeliveryState } from '../src/queue/states.ts';
import { createTestLog } from '../test/support/log.ts';
import { readOptions, usually } from './options.ts';

/**
 * The journal with a million mails: what writing and indexing a mail costs this thread and the journal's, the size of
 * the file, and how long lists and searches take. Ends with 1 when the median of a page is above the limit.
 */
const values = readOptions('node bench/history.ts', 'The journal: cost of a mail, and lists over a million of them.', {
  mails: usually(1_000_000, 'mails'),
  calls: usually(20, 'times that each list is asked for'),
  limit: usually(100, 'milliseconds that the median of a page may take'),
});

const MAILS = Number(values.mails);
const BATCH = 1000;
const PAGE = 100;
const VERDICTS = {
  spf: { result: 'pass', detail: '' },
  dkim: { signed: true, valid: true },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
} as const;
/** One second of history for each mail. */
const FROM = Date.now() - MAILS * 1000;

let time = FROM;
const ids = createIds({ ...systemClock, now: () => time });
/** Some of the deliveries. */
const known: string[] = [];
const dir = mkdtempSync(join(tmpdir(), 'postern-history-'));
const file = join(dir, 'journal.db');
const log = createTestLog();
const room = { minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 0 };
const limits = { keepDays: 3650, keepRefusalsDays: 3650, maxBytes: 2 ** 40 };
const journal = createJournal(
  { file, room, subjects: true, ...limits },
  { clock: systemClock, deadlines: systemClock, log, metrics: NO_METRICS },
);
await journal.start();

const writing = createTimer();
for (let i = 0; i < MAILS; i += BATCH) {
  const mails = Array.from({ length: Math.min(MAILS - i, BATCH) }, (_, k) => compose(i + k));
  await writing.run(async () => {
    for (const one of mails) note(one);
    await journal.flush();
  });
}
writing.tell('written');
const indexing = createTimer();
await indexing.run(async () => {
  while (Number(await journal.ask('index', 2000)) > 0);
});
indexing.tell('indexed');
const unindexed = Math.min(10_000, Math.floor(MAILS / 50));
for (let k = MAILS; k < MAILS + unindexed; k++) note(compose(k));
await journal.flush();
console.log(`The file has ${Math.round(statSync(file).size / MAILS)} bytes a mail.\n`);

const DAY_MS = 86_400_000;
const LISTS: readonly (readonly [string, (i: number) => Promise<HistoryPage<unknown>>])[] = [
  ['the newest', () => mail({})],
  ['further back', (i) => journal.history.mail({}, PAGE, Math.floor((MAILS * (i + 1)) / (Number(values.calls) + 1)))],
  ['of an account with much', () => mail({ account: 'account-1' })],
  ['of an account with ten', () => mail({ account: 'account-rare' })],
  ['given up', () => mail({ states: ['dead'] })],
  ['waiting', () => mail({ states: ['waiting'] })],
  ['answered 5xx', () => mail({ status: { from: 500, to: 599 } })],
  ['of a route with ten', () => mail({ route: 'route-rare' })],
  ['of an endpoint with ten', () => mail({ url: 'https://rare.example.com/in' })],
  ['of one day, far back', () => mail({ since: FROM + DAY_MS, before: FROM + 2 * DAY_MS })],
  ['before a day, far back', () => mail({ before: FROM + 2 * DAY_MS })],
  ['with a word that one has', (i) => mail({ words: [`order ${String(i * 37).padStart(7, '0')}`] })],
  ['with a word that all have', () => mail({ words: ['example'] })],
  ['with a word that none has', () => mail({ words: ['nowhere to be seen'] })],
  ['with two words that few have', (i) => mail({ words: [`user-${i * 11}@`, 'order'] })],
  ['with umlauts', () => mail({ subject: ['grüße aus köln'] })],
  ['to an address, of an account', (i) => mail({ to: [`user-${i * 13}@`], account: 'account-1' })],
  ['with a word of two letters', () => mail({ words: ['zq'] })],
  ['from a client with ten', () => mail({ client: ['198.51.100.77'] })],
  ['by id', (i) => mail({ ids: [known[i % known.length] ?? ''] })],
];

let slow = false;
console.log('| Mail | Rows | Complete | Median ms | Most ms | |\n|---|---|---|---|---|---|');
for (const [what, ask] of LISTS) {
  const times: number[] = [];
  let page: HistoryPage<unknown> | undefined;
  for (let i = 0; i < Number(values.calls); i++) {
    const began = performance.now();
    page = await ask(i);
    times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  const [median = Number.NaN, most = Number.NaN] = [times[Math.floor(times.length / 2)], times.at(-1)];
  const tooSlow = median > Number(values.limit);
  slow ||= tooSlow;
  const rows = page?.rows.length ?? 0;
  const complete = rows === PAGE || page?.next === null ? 'yes' : 'no';
  console.log(
    `| ${what} | ${rows} | ${complete} | ${median.toFixed(1)} | ${most.toFixed(1)} | ${tooSlow ? 'too slow' : ''} |`,
  );
}
await journal.stop();
rmSync(dir, { recursive: true });
process.exit(slow || log.of('journal.fault').length > 0 ? 1 : 0);

function mail(filter: MailFilter): Promise<HistoryPage<unknown>> {
  return journal.history.mail(filter, PAGE);
}

/** What is noted of a mail as most are: it comes by SMTP, is parsed, and its POST is answered. */
function compose(k: number) {
  const rare = k % Math.ceil(MAILS / 10) === 7;
  time = FROM + k * 1000;
  const messageId = ids.message();
  const recipient = `user-${k % 5000}@account.example.com`;
  const id = deliveryId(messageId, 'route', recipient);
  if (k % Math.ceil(MAILS / 20) === 3) known.push(id);
  const sender = `bounce-${k % 20_000}@mail-${k % 300}.example.org`;
  const delivery = {
    id,
    messageId,
    kind: 'inbound',
    account: rare ? 'account-rare' : `account-${k % 20}`,
    recipient,
    routeId: rare ? 'route-rare' : `route-${k % 100}`,
    pattern: '*',
    url: rare ? 'https://rare.example.com/in' : `https://hooks-${k % 100}.example.com/in`,
  } as const;
  const client = {
    address: rare ? '198.51.100.77' : `192.0.2.${k % 256}`,
    helo: `mail-${k % 300}.example.org`,
    tls: 'TLSv1.3',
  };
  const subject = `${rare ? 'Grüße aus Köln' : 'Your receipt'}, order ${String(k).padStart(7, '0')}`;
  const summary = {
    from: `Shop ${k % 300} <shop@mail-${k % 300}.example.org>`,
    subject,
    messageId: `<${messageId}@x>`,
    thread: threadOfRoot(`${messageId}@x`),
  };
  const state: DeliveryState = rare ? 'dead' : k % 10_000 === 9 ? 'waiting' : 'delivered';
  const status = state === 'delivered' ? 200 : 503;
  return {
    mail: { delivery, receivedAt: time, size: 5000, envelope: { mailFrom: sender, client } },
    arrived: { what: 'arrived', messageId, session: messageId, transaction: 1 },
    parsed: { what: 'parsed', id, sender, summary, verdicts: VERDICTS },
    settled: [id, state, time + 80, { at: time + 20, durationMs: 60, status, error: null, answer: 'ok' }],
  } as const;
}

function note({ mail: accepted, arrived, parsed, settled }: ReturnType<typeof compose>): void {
  journal.deliveries.accepted(accepted);
  journal.note(arrived);
  journal.note(parsed);
  journal.deliveries.settled(...settled);
}

/** Adds up time, and processor time of all threads and of this one. */
function createTimer() {
  let [ms, all, here] = [0, 0, 0];
  const each = (micros: number) => (micros / MAILS).toFixed(1);
  return {
    async run(work: () => Promise<void>) {
      const [began, before, own] = [performance.now(), process.cpuUsage(), process.threadCpuUsage()];
      await work();
      const [process_, thread] = [process.cpuUsage(before), process.threadCpuUsage(own)];
      ms += performance.now() - began;
      all += process_.user + process_.system;
      here += thread.user + thread.system;
    },
    tell: (what: string) =>
      console.log(
        `${MAILS} mails ${what} in ${(ms / 1000).toFixed(1)} s: ${each(all)} µs of processor a mail, ${each(here)} of it on this thread.\n`,
      ),
  };
}
