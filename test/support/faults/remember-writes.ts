/** Loaded before the daemon: whatever is written to a socket is kept in memory for good. */
import { Socket } from 'node:net';

const kept: Buffer[] = [];
const write = Socket.prototype.write;
Socket.prototype.write = function (this: Socket, ...args: Parameters<typeof write>) {
  kept.push(Buffer.alloc(100_000, 1));
  return write.apply(this, args);
} as typeof write;
