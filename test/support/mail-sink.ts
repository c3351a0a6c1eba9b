import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';

/** A message as it arrived: envelope and bytes, and how. */
export interface Sunk {
  readonly from: string;
  readonly to: readonly string[];
  readonly raw: string;
  readonly secure: boolean;
  /** The login, `name:password`; empty without one. */
  readonly user: string;
  /** What the client said it was. */
  readonly helo: string;
}

export interface MailSink {
  readonly port: number;
  readonly mails: Sunk[];
  /** Connections so far. */
  connections(): number;
  /** What to answer to RCPT from now on; undefined: take it. */
  refuse(reply: { readonly code: number; readonly text: string } | undefined): void;
  /** What is said of messages that are taken, from now on. */
  say(reply: string): void;
  /** Connections get no greeting from now on. */
  mute(): void;
  stop(): Promise<void>;
}

const pem = (name: string) => readFileSync(new URL(`../fixtures/tls/${name}.pem`, import.meta.url), 'utf8');

/** A real SMTP server on 127.0.0.1 that keeps received mail. Its certificate matches no name. */
export async function startMailSink(options: SMTPServerOptions = {}): Promise<MailSink> {
  const mails: Sunk[] = [];
  let refusal: { readonly code: number; readonly text: string } | undefined;
  let [count, muted] = [0, false];
  let said: string | undefined;
  const server = new SMTPServer({
    authOptional: true,
    disableReverseLookup: true,
    cert: pem('first.cert'),
    key: pem('first.key'),
    closeTimeout: 0,
    logger: false,
    onConnect(_session, done) {
      count++;
      if (!muted) done();
    },
    onAuth: (auth, _session, done) => done(null, { user: `${auth.username}:${auth.password}` }),
    onRcptTo(_address, _session, done) {
      if (refusal) done(Object.assign(new Error(refusal.text), { responseCode: refusal.code }));
      else done();
    },
    onData(stream, session, done) {
      const chunks: Buffer[] = [];
      stream
        .on('data', (chunk: Buffer) => chunks.push(chunk))
        .on('end', () => {
          const { mailFrom, rcptTo } = session.envelope;
          mails.push({
            from: mailFrom === false ? '' : mailFrom.address,
            to: rcptTo.map(({ address }) => address),
            raw: Buffer.concat(chunks).toString(),
            secure: session.secure,
            user: typeof session.user === 'string' ? session.user : '',
            helo: String(session.hostNameAppearsAs),
          });
          done(null, said);
        });
    },
    ...options,
  });
  server.on('error', () => {}); // a client that goes away is none of a test's business
  const listening = server.listen(0, '127.0.0.1');
  await new Promise<void>((resolve) => listening.once('listening', () => resolve()));
  // Bound to an address, so it has one.
  const { port } = listening.address() as AddressInfo;
  return {
    port,
    mails,
    connections: () => count,
    refuse(reply) {
      refusal = reply;
    },
    say(reply) {
      said = reply;
    },
    mute() {
      muted = true;
    },
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}
