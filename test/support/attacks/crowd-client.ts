import { connect, type Socket } from 'node:net';
import type { CrowdOrders, CrowdReport } from './crowd.ts';
import { answer, orders } from './helper.ts';

// How many connect at one time: the queue of a listening socket is short.
const CONNECTING = 200;
// A byte a second for each, spread over the second.
const SLICES = 20;

const { at, count, manner, net, perAddress }: CrowdOrders = orders();
const first: Record<string, number> = {};
const ends: Record<string, { count: number; soonest: number; latest: number }> = {};
const slices: Set<() => void>[] = Array.from({ length: SLICES }, () => new Set());
let started = 0;
let heard = 0;
let open = 0;

function start(): void {
  if (started >= count) return;
  const index = Math.floor(started++ / perAddress);
  const slice = slices[started % SLICES];
  const socket = connect({
    ...at,
    localAddress: `127.${net}.${Math.floor(index / 250)}.${1 + (index % 250)}`,
  }).setNoDelay();
  let last = 'nothing';
  let greetedAt = 0;
  let inside = false;
  const drip = createDrip(socket);
  socket.on('data', (chunk) => {
    const fresh = greetedAt === 0;
    last = chunk.toString('latin1').trimEnd().split('\r\n').at(-1) ?? '';
    if (!fresh) return;
    greetedAt = performance.now();
    note(last);
    if (!last.startsWith('220')) return;
    inside = true;
    open++;
    if (manner === 'data')
      socket.write('EHLO slow.test\r\nMAIL FROM:<slow@sender.test>\r\nRCPT TO:<x@in.test>\r\nDATA\r\n');
    if (manner !== 'idle') slice?.add(drip);
  });
  socket
    .on('error', (error) => {
      last = error.message;
    })
    .on('close', () => {
      slice?.delete(drip);
      if (greetedAt === 0) return note(last);
      if (!inside) return;
      open--;
      const held = performance.now() - greetedAt;
      const end = (ends[last] ??= { count: 0, soonest: Infinity, latest: 0 });
      Object.assign(end, {
        count: end.count + 1,
        soonest: Math.min(end.soonest, held),
        latest: Math.max(end.latest, held),
      });
    });
}

function note(line: string): void {
  first[line] = (first[line] ?? 0) + 1;
  heard++;
  start();
}

function createDrip(socket: Socket): () => void {
  const text = manner === 'noops' ? 'NOOP\r\n' : manner === 'line' ? 'EHLO a' : 'a';
  let said = 0;
  return () => {
    const i = manner === 'noops' ? said % text.length : Math.min(said, text.length - 1);
    said++;
    socket.write(text[i] ?? '');
  };
}

for (let i = 0; i < CONNECTING; i++) start();
let slot = 0;
setInterval(() => {
  // All shall be there before it begins: a daemon that is busy with bytes greets late.
  if (heard < count) return;
  for (const drip of slices[slot++ % SLICES] ?? []) drip();
}, 1000 / SLICES);
answer((): CrowdReport => ({ ready: heard >= count, open, first, ends }));
