import type { X509Certificate } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { connect as secure } from 'node:tls';

/** Total time that a server may take to answer. */
const WAIT_MS = 5000;
const MAX_CHARACTERS = 4000;

/** The header of a proxy's health check, which is for no client. */
const PROXY_HEADER = 'PROXY UNKNOWN\r\n';

interface Greeted {
  /** The first line of the server. */
  readonly greeting: string;
  /** Whether EHLO was answered with STARTTLS; false if EHLO was not sent. */
  readonly starttls: boolean;
  /** The certificate after STARTTLS. */
  readonly certificate?: X509Certificate | undefined;
}

interface GreetOptions {
  readonly host: string;
  readonly port: number;
  /** The server expects a PROXY header from us. */
  readonly asProxy?: boolean;
  /** The name for EHLO and TLS. Without it, only the greeting is read. */
  readonly as?: string;
}

/** Reads the greeting of a mail server, and its certificate after STARTTLS; sends no mail. An error if it fails. */
export async function greet({ host, port, asProxy = false, as }: GreetOptions): Promise<Greeted | Error> {
  const socket = connect({ host, port });
  socket.on('error', () => {}); // also an error after the last reply
  const late = AbortSignal.timeout(WAIT_MS);
  const stop = () => socket.destroy(new Error(`no answer within ${WAIT_MS / 1000} s`));
  late.addEventListener('abort', stop);
  try {
    if (asProxy) socket.write(PROXY_HEADER);
    const greeting = (await reply(socket)).split('\r\n')[0] ?? '';
    if (as === undefined || !greeting.startsWith('220')) {
      socket.write('QUIT\r\n');
      return { greeting, starttls: false };
    }
    socket.write(`EHLO ${as}\r\n`);
    const starttls = /^250[ -]STARTTLS\r$/im.test(await reply(socket));
    if (!starttls) {
      socket.write('QUIT\r\n');
      return { greeting, starttls };
    }
    socket.write('STARTTLS\r\n');
    const ready = await reply(socket);
    if (!ready.startsWith('220')) return { greeting, starttls: false };
    return { greeting, starttls, certificate: await certificateOf(socket, as) };
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  } finally {
    late.removeEventListener('abort', stop);
    socket.end();
    socket.destroySoon();
  }
}

/** One reply, all its lines. */
function reply(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = '';
    const end = (settle: () => void) => {
      socket.off('data', onData).off('error', onError).off('close', onClose);
      settle();
    };
    const onError = (error: Error) => end(() => reject(error));
    const onClose = () => end(() => reject(new Error('the connection was closed without a greeting')));
    const onData = (chunk: Buffer) => {
      received = (received + chunk.toString('latin1')).slice(0, MAX_CHARACTERS);
      if (/^\d{3}(?: .*)?\r\n/m.test(received) || (received.includes('\r\n') && !/^\d{3}-/.test(received)))
        end(() => resolve(received));
    };
    socket.on('data', onData).on('error', onError).on('close', onClose);
  });
}

/** The certificate of the server, trusted or not: the caller checks it. */
function certificateOf(socket: Socket, name: string): Promise<X509Certificate | undefined> {
  return new Promise((resolve, reject) => {
    const tls = secure({ socket, servername: name, rejectUnauthorized: false });
    tls.on('error', reject);
    tls.once('close', () => reject(new Error('the connection was closed during STARTTLS')));
    tls.once('secureConnect', () => {
      resolve(tls.getPeerX509Certificate());
      tls.end('QUIT\r\n');
    });
  });
}
