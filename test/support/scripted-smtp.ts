import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';

/** Where a session is when something may be said. `dot` is the end of the message. */
export type Step =
  | 'banner'
  | 'EHLO'
  | 'HELO'
  | 'STARTTLS'
  | 'AUTH'
  | 'MAIL'
  | 'RCPT'
  | 'DATA'
  | 'dot'
  | 'RSET'
  | 'QUIT';

/** Said as it is, with CRLF behind it; or nothing, or the end of the connection, or the end after some bytes. */
export type Said = string | typeof HANG | typeof CLOSE | { readonly bytes: string; readonly then: 'close' | 'hang' };
export const HANG = Symbol('hang');
export const CLOSE = Symbol('close');

/** What to say at a step; undefined: what a plain server says. */
export type Script = (step: Step, line: string, seen: Seen) => Said | undefined;

/** A session as the server saw it. */
export interface Seen {
  readonly from: string;
  readonly commands: string[];
  /** As they arrived, with the dots that were put in, without the final one. */
  readonly messages: Buffer[];
  tls: boolean;
  closed: boolean;
}

export interface ScriptedServer {
  readonly port: number;
  readonly sessions: Seen[];
  /** What to say from now on. */
  say(script: Script): void;
  /** Ends the sessions that are open, as a server does that restarts. */
  drop(): void;
  stop(): Promise<void>;
}

export interface ScriptedOptions {
  readonly address?: string;
  readonly port?: number;
  /** Extensions beside PIPELINING. */
  readonly offers?: readonly string[];
  /** STARTTLS is offered and works. */
  readonly tls?: { readonly cert: string; readonly key: string };
}

const PLAIN: Readonly<Record<string, string>> = {
  banner: '220 scripted ESMTP',
  HELO: '250 scripted',
  STARTTLS: '220 2.0.0 go ahead',
  AUTH: '235 2.7.0 in',
  MAIL: '250 2.1.0 ok',
  RCPT: '250 2.1.5 ok',
  DATA: '354 go ahead',
  dot: '250 2.0.0 queued as 1',
  RSET: '250 2.0.0 ok',
  QUIT: '221 2.0.0 bye',
};

/** An SMTP server that says whatever a test wants at any step. */
export async function startScriptedSmtp(
  first: Script = () => undefined,
  options: ScriptedOptions = {},
): Promise<ScriptedServer> {
  const sessions: Seen[] = [];
  const open = new Set<Socket>();
  let script = first;
  const server: Server = createServer((socket) => {
    const seen: Seen = { from: socket.remoteAddress ?? '', commands: [], messages: [], tls: false, closed: false };
    sessions.push(seen);
    open.add(socket.setNoDelay());
    socket
      .on('error', () => {})
      .on('close', () => {
        seen.closed = true;
        open.delete(socket);
      });
    converse(socket, seen, (step, line) => script(step, line, seen), options, true);
  });
  await new Promise<void>((resolve, reject) =>
    server.once('error', reject).listen(options.port ?? 0, options.address ?? '127.0.0.1', resolve),
  );
  const drop = () => {
    for (const socket of open) socket.destroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    sessions,
    drop, // bound to an address, so it has one
    say(next) {
      script = next;
    },
    stop() {
      drop();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

function converse(
  socket: Socket,
  seen: Seen,
  said: (step: Step, line: string) => Said | undefined,
  options: ScriptedOptions,
  fresh: boolean,
): void {
  let waiting = Buffer.alloc(0);
  let inData = false;
  const say = (step: Step, line: string): boolean => {
    const words =
      said(step, line) ??
      (step === 'EHLO'
        ? greeting(options, seen)
        : step === 'STARTTLS' && !options.tls
          ? '502 5.5.1 unknown'
          : (PLAIN[step] ?? '500 5.5.1 what'));
    if (words === HANG) return false;
    if (words === CLOSE) {
      socket.destroy();
      return false;
    }
    if (typeof words === 'object') {
      if (words.then === 'close') socket.end(words.bytes);
      else socket.write(words.bytes);
      return false;
    }
    socket.write(`${words}\r\n`);
    if (step === 'QUIT') socket.end();
    if (step === 'DATA' && words.startsWith('354')) inData = true;
    return words.startsWith('2');
  };

  const upgrade = () => {
    socket.removeAllListeners('data');
    if (!options.tls) return;
    const secure = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext(options.tls) });
    secure
      .on('error', () => {})
      .once('secure', () => {
        seen.tls = true;
      });
    converse(secure, seen, said, options, false);
  };

  const take = (): boolean => {
    const end = waiting.indexOf(inData ? '\r\n.\r\n' : '\r\n');
    if (inData && waiting.subarray(0, 3).toString() === '.\r\n') return message(Buffer.alloc(0), 3);
    if (end < 0) return false;
    if (inData) return message(waiting.subarray(0, end + 2), end + 5);
    const line = waiting.subarray(0, end).toString();
    waiting = waiting.subarray(end + 2);
    seen.commands.push(line);
    const step = line.split(/[ :]/)[0]?.toUpperCase() as Step; // a client of ours says nothing else
    const fine = say(step, line);
    if (step === 'STARTTLS' && fine) upgrade();
    return true;
  };

  const message = (bytes: Buffer, length: number): boolean => {
    seen.messages.push(Buffer.from(bytes));
    waiting = waiting.subarray(length);
    inData = false;
    say('dot', '');
    return true;
  };

  socket.on('data', (bytes: Buffer) => {
    waiting = Buffer.concat([waiting, bytes]);
    while (take());
  });
  if (fresh) say('banner', '');
}

function greeting({ offers = [], tls }: ScriptedOptions, { tls: encrypted }: Seen): string {
  const lines = ['scripted', 'PIPELINING', ...(tls && !encrypted ? ['STARTTLS'] : []), ...offers];
  return lines.map((line, i) => `250${i < lines.length - 1 ? '-' : ' '}${line}`).join('\r\n');
}
