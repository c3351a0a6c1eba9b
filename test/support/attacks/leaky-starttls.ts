import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { CERTIFICATE } from '../submission.ts';

/**
 * A server with the old fault: what came in plaintext behind STARTTLS is obeyed in TLS, and nothing that was said
 * before is forgotten.
 */
export async function startLeaky() {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket.on('error', () => {}));
    let waiting = '';
    let mail = false;
    const obey = (out: Socket, chunk: string) => {
      waiting += chunk;
      for (let end = waiting.indexOf('\r\n'); end >= 0; end = waiting.indexOf('\r\n')) {
        const line = waiting.slice(0, end).toUpperCase();
        waiting = waiting.slice(end + 2);
        if (line === 'STARTTLS') return upgrade();
        mail ||= line.startsWith('MAIL');
        out.write(line.startsWith('RCPT') && !mail ? '503 5.5.1 no\r\n' : '250 2.0.0 OK\r\n');
      }
    };
    const upgrade = () => {
      socket.removeAllListeners('data').write('220 2.0.0 Go\r\n');
      const secure = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext(CERTIFICATE) });
      secure
        .on('error', () => {})
        .once('secure', () => obey(secure, ''))
        .on('data', (chunk) => obey(secure, chunk.toString('latin1')));
    };
    socket.on('data', (chunk) => obey(socket, chunk.toString('latin1'))).write('220 leaky\r\n');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo; // bound to an address, so it has one
  return {
    at: { host: '127.0.0.1', port },
    async stop() {
      for (const socket of open) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
