import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { planFaults, planOf } from '../test/support/plans.ts';
import type { Usage } from '../test/support/usages.ts';
import { fillLists } from './lists-fill.ts';
import { openLists } from './lists-world.ts';
import { readOptions, usually } from './options.ts';

/**
 * List, search and info of the management API over HTTP, on the embedded store, with a million rejects and a hundred
 * thousand each of templates, tags and senders. Prints the median and the 95th percentile of every call, the processor
 * time of client and server together (which a busy machine hardly changes), and how SQLite finds the rows; ends with 1
 * when a query goes without an index or a median is above the limit.
 */
const values = readOptions('node bench/lists.ts', 'List, search and info of the API over a million rows.', {
  rejects: usually(1_000_000, 'rejects'),
  others: usually(100_000, 'templates, tags and senders, each'),
  calls: usually(50, 'times that each is called'),
  limit: usually(50, 'milliseconds that a median may take'),
});

const dir = mkdtempSync(join(tmpdir(), 'postern-lists-'));
const file = join(dir, 'store.db');
const sizes = { rejects: Number(values.rejects), others: Number(values.others) };
const limitMs = Number(values.limit);

const world = await openLists(file);
const from = performance.now();
await fillLists(world.store, world.account, sizes);
console.log(
  `# Lists\n\n${sizes.rejects} rejects, ${sizes.others} each of templates, tags and senders, written in ${((performance.now() - from) / 1000).toFixed(0)} s; ${values.calls} calls each.\n`,
);

/** What is asked; `i` goes through the things from beginning to end. */
const far = (i: number, size: number) => String(Math.floor((i / Number(values.calls)) * size)).padStart(7, '0');
const CALLS: readonly (readonly [string, string, (i: number) => object])[] = [
  ['rejects/list', 'the first page', () => ({})],
  ['rejects/list', 'by address', (i) => ({ email: `user-${far(i, sizes.rejects)}@example.com` })],
  ['rejects/list', 'by prefix, 1,000 found', (i) => ({ email: `user-${far(i, sizes.rejects).slice(0, 4)}` })],
  ['rejects/list', 'expired ones too', () => ({ include_expired: true })],
  ['templates/list', 'the first page', () => ({})],
  ['templates/list', 'a page further on', (i) => ({ after: `Template ${far(i, sizes.others)}` })],
  ['templates/list', 'by label', (i) => ({ label: `label-${i % 20}` })],
  ['templates/info', 'by name', (i) => ({ name: `Template ${far(i, sizes.others)}` })],
  ['templates/info', 'by slug', (i) => ({ name: `template-${far(i, sizes.others)}` })],
  ['templates/time-series', 'of one', (i) => ({ name: `Template ${far(i, sizes.others)}` })],
  ['tags/list', 'the first page', () => ({})],
  ['tags/list', 'a page further on', (i) => ({ after: `tag-${far(i, sizes.others)}` })],
  ['tags/info', 'of one', (i) => ({ tag: `tag-${far(i, sizes.others)}` })],
  ['tags/time-series', 'of one', (i) => ({ tag: `tag-${far(i, sizes.others)}` })],
  ['tags/all-time-series', 'the first page', () => ({})],
  ['senders/list', 'the first page', () => ({})],
  ['senders/list', 'a page further on', (i) => ({ after: `sender-${far(i, sizes.others)}@example.com` })],
  ['senders/info', 'of one', (i) => ({ address: `sender-${far(i, sizes.others)}@example.com` })],
  ['senders/time-series', 'of one', (i) => ({ address: `sender-${far(i, sizes.others)}@example.com` })],
];

const faults: string[] = [];
const plans: string[] = [];
const explained = new Set<string>();
console.log('| Call | | Records | Median ms | p95 ms | CPU ms | |\n|---|---|---|---|---|---|---|');
for (const [path, what, paramsOf] of CALLS) {
  world.usages.clear();
  const { median, p95, cpu, records } = await measure(path, paramsOf);
  const slow = median > limitMs && !path.endsWith('time-series'); // the limit is for list, search and info
  if (slow) faults.push(`${path} (${what}) took ${median.toFixed(1)} ms at the median`);
  console.log(
    `| ${path} | ${what} | ${records} | ${median.toFixed(1)} | ${p95.toFixed(1)} | ${cpu.toFixed(1)} | ${slow ? 'too slow' : ''} |`,
  );
  for (const usage of world.usages.values()) explain(usage);
}

console.log(`\n## Plans\n\n${plans.join('\n')}`);
await world.stop();
rmSync(dir, { recursive: true });
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 ? 1 : 0);

async function measure(path: string, paramsOf: (i: number) => object) {
  const times: number[] = [];
  let records = 0;
  const before = process.cpuUsage();
  for (let i = 0; i < Number(values.calls); i++) {
    const began = performance.now();
    const answer = await world.call(path, paramsOf(i));
    times.push(performance.now() - began);
    records = Array.isArray(answer) ? answer.length : 1;
  }
  const { user, system } = process.cpuUsage(before);
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? Number.NaN;
  return { median: at(0.5), p95: at(0.95), cpu: (user + system) / 1000 / times.length, records };
}

function explain(usage: Usage): void {
  if (explained.has(usage.name)) return;
  explained.add(usage.name);
  const plan = planOf(file, usage);
  plans.push(`- ${usage.name}: ${plan.join('; ')}`);
  for (const line of planFaults(usage, plan)) faults.push(`${usage.name} goes without an index: ${line}`);
}
