import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';

/** A name server that answers "no such name" to everything, or keeps questions until it is to. */
export async function startKeepingNameServer() {
  const socket: Socket = createSocket('udp4');
  const kept: (() => void)[] = [];
  let keeps = false;
  socket.on('message', (question, { port, address }) => {
    const answer = Buffer.from(question);
    answer.writeUInt16BE(0x8183, 2);
    answer.writeUInt16BE(0, 10); // no OPT record
    const end = question.indexOf(0, 12) + 5;
    const send = () => socket.send(answer.subarray(0, end), port, address);
    if (keeps) kept.push(send);
    else send();
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    server: `127.0.0.1:${socket.address().port}`,
    kept: () => kept.length,
    keep() {
      keeps = true;
    },
    release() {
      keeps = false;
      for (const send of kept.splice(0)) send();
    },
    stop: () => socket.close(),
  };
}
