import { connect } from 'node:net';

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/**
 * Sends one message over a session of its own and answers the last reply; a refusal is an answer, a lost connection
 * throws.
 */
export async function sendMail(
  to: HostPort,
  envelope: { from: string; to: string | readonly string[] },
  message: string | Buffer,
): Promise<string> {
  const recipients = typeof envelope.to === 'string' ? [envelope.to] : envelope.to;
  const session = await openSession(to);
  try {
    await session.say('EHLO client.example.org');
    await session.say(`MAIL FROM:<${envelope.from}>`);
    for (const recipient of recipients) {
      const reply = await session.say(`RCPT TO:<${recipient}>`);
      if (!reply.startsWith('250')) return reply;
    }
    const go = await session.say('DATA');
    return go.startsWith('354') ? await session.data(message) : go;
  } finally {
    session.close();
  }
}

export interface Session {
  /** Sends a line and answers the last line of the reply. */
  say(line: string): Promise<string>;
  /** Sends a message with dots stuffed and the final dot, and answers the reply. */
  data(message: string | Buffer): Promise<string>;
  close(): void;
}

const GREETING_MS = 30_000;
/** A host whose event loop lags defers new sessions. Mail servers try again, and so do the tests. */
const BUSY = '421 4.3.2 Server is busy';
const BUSY_PAUSE_MS = 500;
const BUSY_TRIES = 60;

/**
 * An SMTP session that waits for each reply; rejects when the connection is lost. `client`: whose connection a proxy
 * passes on, by the PROXY protocol.
 */
export async function openSession(to: HostPort, client?: string): Promise<Session> {
  for (let tries = 1; ; tries++) {
    const { greeting, session } = await connectTo(to, client);
    if (!greeting.startsWith(BUSY) || tries === BUSY_TRIES) return session;
    session.close();
    await new Promise((resolve) => setTimeout(resolve, BUSY_PAUSE_MS));
  }
}

async function connectTo({ host, port }: HostPort, client?: string): Promise<{ greeting: string; session: Session }> {
  const socket = connect(port, host);
  socket.setNoDelay(true);
  if (client !== undefined) socket.write(`PROXY TCP4 ${client} 192.0.2.1 50000 25\r\n`);
  let text = '';
  let wanted: { resolve: (line: string) => void; reject: (error: Error) => void } | undefined;
  const lost = (error?: Error) => {
    wanted?.reject(error ?? new Error('the connection was closed'));
    wanted = undefined;
  };
  /**
   * Gives the first whole reply to who waits for it; what comes behind it (a 421 at a shutdown) is the answer to what
   * is said next.
   */
  const give = () => {
    const [whole, last] = /^(?:\d{3}-[^\r\n]*\r\n)*(\d{3} [^\r\n]*)\r\n/.exec(text) ?? [];
    if (whole === undefined || !wanted) return;
    const { resolve } = wanted;
    wanted = undefined;
    text = text.slice(whole.length);
    resolve(last ?? '');
  };
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
    give();
  });
  socket.on('error', lost);
  socket.on('close', () => lost());
  const reply = () =>
    new Promise<string>((resolve, reject) => {
      wanted = { resolve, reject };
      give();
      if (socket.destroyed) lost();
    });
  // A port that was just given up may belong to anybody, who need not greet.
  const deadline = setTimeout(() => socket.destroy(new Error('no greeting came')), GREETING_MS);
  const greeting = await reply().finally(() => clearTimeout(deadline));
  const session: Session = {
    say(line) {
      const answer = reply();
      socket.write(`${line}\r\n`);
      return answer;
    },
    data(message) {
      const raw = Buffer.isBuffer(message) ? message.toString('latin1') : Buffer.from(message).toString('latin1');
      const stuffed = raw.replaceAll(/^\./gm, '..');
      const answer = reply();
      socket.write(Buffer.from(`${stuffed}${stuffed.endsWith('\r\n') ? '' : '\r\n'}.\r\n`, 'latin1'));
      return answer;
    },
    close() {
      socket.destroy();
    },
  };
  return { greeting, session };
}

/** A small message. */
export function message(subject: string, text = 'Hello.'): string {
  return `From: Ada <ada@example.org>\r\nTo: you@in.test\r\nSubject: ${subject}\r\nMessage-ID: <${subject}@example.org>\r\n\r\n${text}\r\n`;
}
