import { isUtf8 } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { type Metrics, NO_METRICS } from '../../base/metrics.ts';
import { isLoopback } from '../../base/networks.ts';
import type { Spool } from '../../queue/delivery.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { createKeyCheck, type KeyCheckSettings } from '../../store/rows/accounts.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import { MAX_IDLE_COMMANDS } from '../limits.ts';
import { REFUSALS, REPLIES, type Reply } from '../refusal.ts';
import type { Gate } from '../session.ts';
import { type Answer, type Said, splitCommand, type Who } from '../verbs.ts';
import type { SubmissionSettings } from './listener.ts';

/** How long a wrong key waits for its answer, so that guessing is slow. */
export const WRONG_KEY_MS = 1500;
/** Wrong keys in one session. */
const MAX_FAILED_LOGINS = 5;
/** How long a session is believed before its key is looked up again. The look-up may be a second old (store/rows/accounts.ts). */
const FRESH_MS = 1000;

/** What the client is asked for; each takes its next line. */
type Asked = (response: string) => Answer | Promise<Answer>;

interface GateParts {
  readonly settings: Pick<
    SubmissionSettings,
    'requireTls' | 'loopbackOnly' | 'maxBacklogPerAccount' | 'maxAccountBytes'
  >;
  readonly logins: Logins;
  readonly spool: Pick<Spool, 'backlog'>;
  readonly meter: Pick<UsageMeter, 'of'>;
  readonly clock: Clock;
}

/** AUTH (RFC 4954), and nothing for anybody who did not pass it. */
export function createGate(
  parts: GateParts,
  said: Said,
  connection: { readonly address: string; readonly offersTls: boolean },
): Gate {
  const { settings, logins, spool, meter, clock } = parts;
  const { address, offersTls } = connection;
  const developer = settings.loopbackOnly && !offersTls && isLoopback(address);
  let asked: Asked | undefined;
  let failed = 0;
  let checkedAt = 0;

  const mayLogIn = () => said.tls !== null || !settings.requireTls || developer;

  function refusedLogin(rest: string): Reply | undefined {
    if (++said.idleCommands > MAX_IDLE_COMMANDS) return REFUSALS.tooManyCommands;
    if (said.helo === null) return REFUSALS.noHelo;
    if (said.who) return REFUSALS.loggedInAlready;
    if (said.transaction) return REFUSALS.loginTooLate;
    if (!mayLogIn()) return REFUSALS.needsTls;
    return /^\S+(?: +\S+)?$/.test(rest) ? undefined : REFUSALS.badArgument;
  }

  function auth(rest: string): Answer | Promise<Answer> {
    const refused = refusedLogin(rest);
    if (refused) return { reply: refused };
    const [mechanism = '', initial] = rest.split(/ +/);
    if (mechanism.toUpperCase() === 'PLAIN')
      return initial === undefined ? ask(REPLIES.askPlain, plain) : plain(initial);
    if (mechanism.toUpperCase() === 'LOGIN') return initial === undefined ? ask(REPLIES.askUser, user) : user(initial);
    return { reply: REFUSALS.unknownMechanism };
  }

  function ask(reply: Reply, next: Asked): Answer {
    asked = next;
    return { reply };
  }

  function plain(response: string): Answer | Promise<Answer> {
    const credentials = parsePlain(parseResponse(response) ?? '');
    return credentials ? logIn(credentials.key) : { reply: REFUSALS.badResponse };
  }

  function user(response: string): Answer {
    const name = parseResponse(response);
    return name === undefined || !isPlainText(name)
      ? { reply: REFUSALS.badResponse }
      : ask(REPLIES.askPassword, password);
  }

  function password(response: string): Answer | Promise<Answer> {
    const key = parseResponse(response);
    return key === undefined || !isPlainText(key) ? { reply: REFUSALS.badResponse } : logIn(key);
  }

  async function logIn(key: string): Promise<Answer> {
    const login = await logins.logIn(key, address);
    if (login.who) {
      said.who = login.who;
      checkedAt = clock.monotonic();
      return { reply: REPLIES.loggedIn };
    }
    if (login.why === 'away') return { reply: REFUSALS.cannotLogIn };
    const ends = ++failed >= MAX_FAILED_LOGINS || login.why === 'too-many';
    return { reply: ends ? REFUSALS.tooManyFailedLogins : REFUSALS.wrongKey, delayMs: WRONG_KEY_MS };
  }

  /** The verbs count a MAIL that reaches them; this one does not. */
  function refuse(reply: Reply): Answer {
    return { reply: ++said.idleCommands > MAX_IDLE_COMMANDS ? REFUSALS.tooManyCommands : reply };
  }

  /** MAIL is where a session begins to cost something. */
  function mail(): Answer | undefined | Promise<Answer | undefined> {
    if (said.helo === null) return undefined;
    if (!said.who) return refuse(mayLogIn() || !offersTls ? REFUSALS.loginFirst : REFUSALS.startTlsFirst);
    if (spool.backlog(said.who.account) > settings.maxBacklogPerAccount) return refuse(REFUSALS.accountBacklog);
    return admit(said.who);
  }

  async function admit(who: NonNullable<Said['who']>): Promise<Answer | undefined> {
    const refused = clock.monotonic() - checkedAt < FRESH_MS ? undefined : await checkAgain(who);
    return refused ?? ((await hasTooMuch(who.account)) ? refuse(REFUSALS.accountFull) : undefined);
  }

  /** While the store is away nobody is held to a limit that cannot be read: the spool takes the mail. */
  async function hasTooMuch(account: string): Promise<boolean> {
    try {
      return (await meter.of(account)).bytes >= settings.maxAccountBytes;
    } catch (error) {
      if (error instanceof StoreAway) return false;
      throw error;
    }
  }

  async function checkAgain(who: NonNullable<Said['who']>): Promise<Answer | undefined> {
    const login = await logins.check(who);
    if (login.who) {
      checkedAt = clock.monotonic();
      return undefined;
    }
    if (login.why === 'away') return refuse(REFUSALS.cannotLogIn);
    said.who = undefined;
    return refuse(REFUSALS.loginFirst);
  }

  return frozen({
    offers: () => (mayLogIn() ? ['AUTH PLAIN LOGIN'] : []),
    hear(line) {
      const next = asked;
      asked = undefined;
      if (next) return line === '*' ? { reply: REFUSALS.loginCancelled } : next(line);
      const { verb, rest } = splitCommand(line);
      if (verb === 'AUTH') return auth(rest);
      return verb === 'MAIL' ? mail() : undefined;
    },
  });
}

/** wrong: no such key, or it was revoked · too-many: wrong, as were too many from that address · away: the store cannot be asked. */
export type Login = { readonly who: Who } | { readonly who?: undefined; readonly why: 'wrong' | 'too-many' | 'away' };

/** Finds the account of a key. */
export interface Logins {
  /** Looks the key up, and counts a failure against the address. */
  logIn(key: string, address: string): Promise<Login>;
  /** Looks again whether the key still holds. */
  check(who: Who): Promise<Login>;
}

/** Each login is counted in the metrics by its result. */
export function createLogins(
  settings: KeyCheckSettings,
  deps: {
    readonly store: Pick<Store, 'keys' | 'accounts'>;
    readonly clock: Clock;
    readonly metrics?: Metrics | undefined;
  },
): Logins {
  const keys = createKeyCheck(settings, deps);
  const count = (result: string) => (deps.metrics ?? NO_METRICS).counter('postern_smtp_logins_total', { result });
  const wrong = count('wrong');
  const results = { ok: count('ok'), wrong, 'too-many': wrong, away: count('away') };

  return frozen({
    async logIn(key, address) {
      const login = await unlessAway(async () => {
        const found = await keys.check(key, address);
        return found.kind === 'good' ? { who: { account: found.account.id, key: found.id } } : { why: found.kind };
      });
      results[login.who ? 'ok' : login.why].add();
      return login;
    },
    check: (who) => unlessAway(async () => ((await keys.accountOf(who.key)) ? { who } : { why: 'wrong' })),
  });
}

async function unlessAway(look: () => Promise<Login>): Promise<Login> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof StoreAway) return { why: 'away' };
    throw error;
  }
}

/** What a client says of itself. The name is of no interest: the key alone says who it is. */
export interface Credentials {
  readonly key: string;
}

const BASE64 = /^(?:[\w+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const CONTROL = /\p{Cc}/u;

/** Reads a response: `=` is an empty one (RFC 4954 section 4). Undefined: not base64, or bytes that are no text. */
export function parseResponse(text: string): string | undefined {
  if (text === '=') return '';
  if (!BASE64.test(text) || text.includes('_')) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return isUtf8(bytes) ? bytes.toString() : undefined;
}

/**
 * Reads the message of PLAIN (RFC 4616): authorization identity, user name, password, with a NUL between them. Undefined when it
 * is none, or holds a control character, which no key and no user name has and which would break lines wherever it is shown.
 */
export function parsePlain(message: string): Credentials | undefined {
  const parts = message.split('\0');
  const [, , key] = parts;
  return parts.length === 3 && key !== undefined && parts.every(isPlainText) ? { key } : undefined;
}

/** Whether a text may be a user name or a key. */
export function isPlainText(text: string): boolean {
  return !CONTROL.test(text);
}
