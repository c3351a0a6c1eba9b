// Another process that writes to the embedded store, for embedded.test.ts to count with or to kill.
// `insert FILE PREFIX`: inserts without end, 20 at a time, and prints each id once it is acknowledged.
// `add FILE N`: adds 1 to one row N times and ends.
import { systemClock } from '../../src/base/clock.ts';
import { openEmbedded } from '../../src/store/driver/embedded.ts';
import { createTestLog } from './log.ts';
import { NO_FLOOR } from './room.ts';
import { notes } from './store-notes.ts';

const [what, file = '', argument = ''] = process.argv.slice(2);
const database = await openEmbedded(
  { file, timeoutMs: 10_000, room: NO_FLOOR },
  { log: createTestLog(), clock: systemClock },
);
const rows = await database.collection(notes);

async function insertForEver(lane: number): Promise<never> {
  for (let i = 0; ; i++) {
    const id = `${argument}-${lane}-${i}`;
    await rows.insert({ id, account: 'a', rank: i, body: 'x'.repeat(500) });
    process.stdout.write(`${id}\n`);
  }
}

if (what === 'insert') await Promise.all(Array.from({ length: 20 }, (_, lane) => insertForEver(lane)));
for (let i = 0; i < Number(argument); i++) await rows.add('sum', { rank: 1 }, { account: 'a', rank: 0, body: '' });
await database.close();
