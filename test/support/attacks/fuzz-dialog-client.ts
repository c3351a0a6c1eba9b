import { connect } from 'node:net';
import { createFailures } from './failures.ts';
import type { DialogReport, FuzzOrders } from './fuzz.ts';
import { answer, orders } from './helper.ts';
import { dialog, wrongIn } from './mutants.ts';

const SESSIONS = 60;
const PATIENCE_MS = 60_000;

const { at, seed, from, to, net }: FuzzOrders = orders();
const failures = createFailures('dialog', seed);
let next = from;
let [sessions, lines, running] = [0, 0, SESSIONS];

/** A session from an address that many share, cut somewhere; one of four leaves without waiting for an answer. */
function session(number: number): Promise<void> {
  return new Promise((resolve) => {
    const { bytes, lines: count, chance } = dialog(seed, number);
    const cut = chance(bytes.length + 1);
    const leaves = chance(4) === 0;
    const socket = connect({
      ...at,
      localAddress: `127.${net}.${1 + chance(100)}.${1 + chance(250)}`,
      allowHalfOpen: true,
    }).setNoDelay();
    let text = '';
    const patience = setTimeout(() => {
      failures.add(number, `no end after ${text.slice(-200)}`, bytes);
      socket.destroy();
    }, PATIENCE_MS);
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
    });
    socket
      .on('error', () => {})
      .on('end', () => socket.destroy())
      .on('close', () => {
        clearTimeout(patience);
        const why = leaves ? undefined : (wrongIn(text) ?? (text.startsWith('220 ') ? undefined : 'no greeting'));
        if (why !== undefined) failures.add(number, `${why}: ${text.slice(-200)}`, bytes);
        sessions++;
        lines += count;
        resolve();
      });
    socket.write(bytes.subarray(0, cut));
    setImmediate(() => {
      if (socket.destroyed) return;
      socket.write(bytes.subarray(cut));
      if (leaves) socket.destroySoon();
      else socket.end();
    });
  });
}

async function run(): Promise<void> {
  while (next < to) await session(next++);
  running--;
}
for (let i = 0; i < SESSIONS; i++) void run();
answer((): DialogReport => ({ done: running === 0, sessions, lines, failures: failures.list }));
