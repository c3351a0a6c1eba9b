import { connect, type Socket } from 'node:net';
import { answer, orders } from './helper.ts';

const EVERY_MS = 5;
// A session is ended at 100 commands that bring no message; the next one is ready before that.
const MOST = 95;

interface Speaker {
  readonly socket: Socket;
  readonly sent: number[];
  said: number;
}

const { host, port, commands } = orders();
const noops: number[] = [];
const banners: number[] = [];
let lost = 0;
let present: Speaker | undefined;
let next: Speaker | 'coming' | undefined;

function open(): void {
  next = 'coming';
  const began = performance.now();
  const socket = connect(port, host).setNoDelay();
  const speaker: Speaker = { socket, sent: [], said: 0 };
  let greeted = false;
  let rest = '';
  socket
    .on('error', () => {})
    .on('close', () => {
      lost += speaker.sent.length;
      if (!greeted || present === speaker) open();
      if (present === speaker) present = undefined;
    });
  socket.on('data', (chunk) => {
    const lines = (rest + chunk.toString('latin1')).split('\r\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const now = performance.now();
      if (!greeted) {
        banners.push(now - began);
        greeted = line.startsWith('220');
        next = greeted ? speaker : undefined;
      } else {
        const at = speaker.sent.shift();
        if (at !== undefined) noops.push(now - at);
        if (speaker !== present && speaker !== next && speaker.sent.length === 0) socket.destroy();
      }
    }
  });
}

function tick(): void {
  if ((present === undefined || present.said >= commands) && typeof next === 'object') {
    const old = present;
    present = next;
    next = undefined;
    if (old?.sent.length === 0) old.socket.destroy();
  }
  if (present === undefined || present.said >= commands) if (next === undefined) open();
  if (present === undefined || present.said >= MOST) return;
  present.said++;
  present.sent.push(performance.now());
  present.socket.write('NOOP\r\n');
}

setInterval(tick, EVERY_MS);
answer(() => ({ noops: noops.splice(0), banners: banners.splice(0), lost }));
