import { randomBytes } from 'node:crypto';
import { type HostPort, openSession, type Session } from '../mail.ts';
import { messageHash } from './hash.ts';
import type { Ledger } from './ledger.ts';

/** A reply that was not the one hoped for. */
export interface Refused {
  /** The command that was answered. */
  readonly step: 'MAIL' | 'RCPT' | 'DATA' | 'end of data';
  readonly reply: string;
  /** Milliseconds since 1970. */
  readonly at: number;
}

export interface LoadSettings {
  readonly connections: number;
  /** Size of a message, or a size for each (they are numbered from 1). */
  readonly bytes: number | ((n: number) => number);
  /** Recipient, or one for each message. */
  readonly to: string | ((n: number) => string);
  /** Acknowledged messages after which it ends by itself. */
  readonly limit?: number;
  /** Messages begun in a second at most; as fast as it goes when nothing is said. */
  readonly perSecond?: number;
  /** What a client says before its first mail. */
  readonly hello?: readonly string[];
}

/**
 * Clients that send mail without end. No message is ever sent twice, so two ids for one body are a fault of the
 * daemon's.
 */
export interface Load {
  /** Turns to a daemon; without one, the clients wait. Connections that are lost come back here. */
  turnTo(server: HostPort | undefined): void;
  /** Messages answered 250 so far and in the ledger. */
  acknowledged(): number;
  /** Messages whose end was sent and whose reply has not come. */
  unanswered(): number;
  readonly refused: readonly Refused[];
  /** When the last 250 came, in milliseconds since 1970. */
  lastAccepted(): number;
  /** Resolves when the limit is reached and every client has stopped. */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

interface State {
  server: HostPort | undefined;
  stopped: boolean;
  acknowledged: number;
  unanswered: number;
  lastAccepted: number;
  next: number;
  slot: number;
  readonly refused: Refused[];
  readonly open: Set<Session>;
}

const PAUSE_MS = 5;
const pause = (ms = PAUSE_MS) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, ms);
  });

export function startLoad(settings: LoadSettings, ledger: Ledger, server?: HostPort): Load {
  const state: State = {
    server,
    stopped: false,
    acknowledged: 0,
    unanswered: 0,
    lastAccepted: 0,
    next: 0,
    slot: performance.now(),
    refused: [],
    open: new Set(),
  };
  const done = Promise.all(Array.from({ length: settings.connections }, () => client(settings, ledger, state))).then(
    () => {},
  );
  return {
    done,
    refused: state.refused,
    turnTo(next) {
      state.server = next;
    },
    acknowledged: () => state.acknowledged,
    unanswered: () => state.unanswered,
    lastAccepted: () => state.lastAccepted,
    async stop() {
      state.stopped = true;
      if (!state.server) for (const session of state.open) session.close();
      await done;
    },
  };
}

async function client(settings: LoadSettings, ledger: Ledger, state: State): Promise<void> {
  while (!isOver(settings, state)) {
    if (!state.server) {
      await pause();
      continue;
    }
    const session = await openSession(state.server).catch(() => undefined);
    if (!session) {
      await pause();
      continue;
    }
    state.open.add(session);
    try {
      for (const line of settings.hello ?? ['EHLO client.example.org']) await session.say(line);
      while (!isOver(settings, state) && (await send(session, settings, ledger, state)));
    } catch {
      // The connection was lost: that is what these tests are about.
    }
    state.open.delete(session);
    session.close();
  }
}

const isOver = ({ limit }: LoadSettings, { stopped, acknowledged }: State): boolean =>
  stopped || (limit !== undefined && acknowledged >= limit);

/** One message. False when the session is over. */
async function send(session: Session, settings: LoadSettings, ledger: Ledger, state: State): Promise<boolean> {
  await turn(settings, state);
  const n = ++state.next;
  const to = typeof settings.to === 'string' ? settings.to : settings.to(n);
  for (const [step, line] of [
    ['MAIL', 'MAIL FROM:<ada@example.org>'],
    ['RCPT', `RCPT TO:<${to}>`],
    ['DATA', 'DATA'],
  ] as const) {
    const reply = await session.say(line);
    if (!/^[23]/.test(reply)) return refuse(state, step, reply, session);
  }
  const message = compose(n, typeof settings.bytes === 'number' ? settings.bytes : settings.bytes(n));
  const hash = messageHash(message);
  ledger.sending(hash);
  state.unanswered++;
  const reply = await session.data(message).finally(() => {
    state.unanswered--;
  });
  const id = /^250 .*queued as (\w+)/.exec(reply)?.[1];
  if (id === undefined) return refuse(state, 'end of data', reply, session);
  await ledger.note(hash, id);
  state.acknowledged++;
  state.lastAccepted = Date.now();
  return true;
}

async function refuse(state: State, step: Refused['step'], reply: string, session: Session): Promise<boolean> {
  state.refused.push({ step, reply, at: Date.now() });
  if (reply.startsWith('421')) return false;
  await pause();
  if (step !== 'end of data') await session.say('RSET');
  return true;
}

/** Keeps to the rate. */
async function turn({ perSecond }: LoadSettings, state: State): Promise<void> {
  if (perSecond === undefined) return;
  const now = performance.now();
  state.slot = Math.max(state.slot + 1000 / perSecond, now);
  if (state.slot > now) await pause(state.slot - now);
}

/** A message that is like no other. Its first line tells the sink where our own lines end. */
function compose(n: number, bytes: number): string {
  const head = headOf(String(n), `<${n}.${randomBytes(6).toString('hex')}@example.org>`);
  const text = randomBytes(Math.max(48, Math.ceil((bytes - head.length) * 0.73))).toString('base64');
  return `${head}${text.replaceAll(/.{1,76}/g, '$&\r\n')}`;
}

/** Its header, with the empty line that ends it. */
export const headOf = (n: string, id: string): string =>
  `X-Ledger: ${n}\r\nFrom: Ada <ada@example.org>\r\nTo: you@in.test\r\nSubject: ${n}\r\nMessage-ID: ${id}\r\n\r\n`;
