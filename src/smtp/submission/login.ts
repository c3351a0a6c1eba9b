import { isUtf8 } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Metrics } from '../../base/metrics.ts';
import { isLoopback } from '../../base/networks.ts';
import type { Spool } from '../../queue/delivery.ts';
import { StoreAway } from '../../store/driver/port.ts';
import type { KeyUses } from '../../store/key-uses.ts';
import { createKeyCheck, type KeyCheckSettings } from '../../store/rows/accounts.ts';
import type { Store } from '../../store/store.ts';
import type { UsageMeter } from '../../store/usage.ts';
import { splitCommand } from '../command-line.ts';
import { REFUSALS, REPLIES, type Reply } from '../replies.ts';
import type { Client, LoginGate } from '../session.ts';
import type { Login, SessionState } from '../session-state.ts';
import type { CommandAnswer } from '../verbs.ts';
import type { SubmissionSettings } from './submission.ts';

/** Delay of the reply to a wrong key, in milliseconds, to slow down guessing. */
export const WRONG_KEY_MS = 1500;
/** The session ends at this many wrong keys. */
const MAX_FAILED_LOGINS = 5;
/**
 * How long a login is trusted before its key is looked up again, in milliseconds. The lookup may use data a second old
 * (store/rows/accounts.ts).
 */
const FRESH_MS = 1000;

/** Handles the client's response to a challenge, on its next line. */
type NextLine = (response: string) => CommandAnswer | Promise<CommandAnswer>;

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

/** Creates the gate that handles AUTH (RFC 4954) and refuses MAIL without a login. */
export function createLoginGate(parts: GateParts, state: SessionState, { address, offersTls }: Client): LoginGate {
  const { settings, logins, spool, meter, clock } = parts;
  const developer = settings.loopbackOnly && !offersTls && isLoopback(address);
  let awaited: NextLine | undefined;
  let failed = 0;
  let checkedAt = 0;

  const mayLogIn = () => state.tls !== null || !settings.requireTls || developer;

  function refusedLogin(rest: string): Reply | undefined {
    if (state.countIdle()) return REFUSALS.tooManyCommands;
    if (state.helo === null) return REFUSALS.noHelo;
    if (state.login) return REFUSALS.loggedInAlready;
    if (state.transaction) return REFUSALS.loginTooLate;
    if (!mayLogIn()) return REFUSALS.needsTls;
    return /^\S+(?: +\S+)?$/.test(rest) ? undefined : REFUSALS.badArgument;
  }

  function auth(rest: string): CommandAnswer | Promise<CommandAnswer> {
    const refused = refusedLogin(rest);
    if (refused) return { reply: refused };
    const [mechanism = '', initial] = rest.split(/ +/);
    if (mechanism.toUpperCase() === 'PLAIN')
      return initial === undefined ? ask(REPLIES.askPlain, plain) : plain(initial);
    if (mechanism.toUpperCase() === 'LOGIN') return initial === undefined ? ask(REPLIES.askUser, user) : user(initial);
    return { reply: REFUSALS.unknownMechanism };
  }

  function ask(reply: Reply, next: NextLine): CommandAnswer {
    awaited = next;
    return { reply };
  }

  function plain(response: string): CommandAnswer | Promise<CommandAnswer> {
    const key = keyInPlain(parseResponse(response) ?? '');
    return key === undefined ? { reply: REFUSALS.badResponse } : logIn(key);
  }

  function user(response: string): CommandAnswer {
    const name = parseResponse(response);
    return name === undefined || !isPlainText(name)
      ? { reply: REFUSALS.badResponse }
      : ask(REPLIES.askPassword, password);
  }

  function password(response: string): CommandAnswer | Promise<CommandAnswer> {
    const key = parseResponse(response);
    return key === undefined || !isPlainText(key) ? { reply: REFUSALS.badResponse } : logIn(key);
  }

  async function logIn(key: string): Promise<CommandAnswer> {
    const result = await logins.logIn(key, address);
    if (result.login) {
      state.logIn(result.login);
      checkedAt = clock.monotonic();
      return { reply: REPLIES.loggedIn };
    }
    if (result.why === 'away') return { reply: REFUSALS.cannotLogIn };
    const ends = ++failed >= MAX_FAILED_LOGINS || result.why === 'too-many';
    return { reply: ends ? REFUSALS.tooManyFailedLogins : REFUSALS.wrongKey, delayMs: WRONG_KEY_MS };
  }

  /** Counts a refused MAIL, which does not reach the verbs that would count it. */
  function refuse(reply: Reply): CommandAnswer {
    return { reply: state.countIdle() ? REFUSALS.tooManyCommands : reply };
  }

  /** Checks the login and the account's limits at MAIL, where a session begins to cost something. */
  function mail(): CommandAnswer | undefined | Promise<CommandAnswer | undefined> {
    if (state.helo === null) return undefined;
    if (!state.login) return refuse(mayLogIn() || !offersTls ? REFUSALS.loginFirst : REFUSALS.startTlsFirst);
    if (spool.backlog(state.login.account) > settings.maxBacklogPerAccount) return refuse(REFUSALS.accountBacklog);
    return admit(state.login);
  }

  async function admit(login: Login): Promise<CommandAnswer | undefined> {
    const refused = clock.monotonic() - checkedAt < FRESH_MS ? undefined : await checkAgain(login);
    return refused ?? ((await hasTooMuch(login.account)) ? refuse(REFUSALS.accountFull) : undefined);
  }

  /** False while the store is unavailable: the limit cannot be checked, and the spool accepts the mail. */
  async function hasTooMuch(account: string): Promise<boolean> {
    try {
      return (await meter.of(account)).bytes >= settings.maxAccountBytes;
    } catch (error) {
      if (error instanceof StoreAway) return false;
      throw error;
    }
  }

  async function checkAgain(login: Login): Promise<CommandAnswer | undefined> {
    const result = await logins.check(login);
    if (result.login) {
      checkedAt = clock.monotonic();
      return undefined;
    }
    if (result.why === 'away') return refuse(REFUSALS.cannotLogIn);
    state.logIn(undefined);
    return refuse(REFUSALS.loginFirst);
  }

  return frozen({
    offers: () => (mayLogIn() ? ['AUTH PLAIN LOGIN'] : []),
    hear(line) {
      const next = awaited;
      awaited = undefined;
      if (next) return line === '*' ? { reply: REFUSALS.loginCancelled } : next(line);
      const { verb, rest } = splitCommand(line);
      if (verb === 'AUTH') return auth(rest);
      return verb === 'MAIL' ? mail() : undefined;
    },
  });
}

/**
 * wrong: the key is unknown or revoked · too-many: wrong, after too many wrong keys from that address · away: the store
 * is unavailable.
 */
type LoginResult =
  | { readonly login: Login }
  | { readonly login?: undefined; readonly why: 'wrong' | 'too-many' | 'away' };

/** Finds the account of an API key. */
type Logins = ReturnType<typeof createLogins>;

/** Creates the key check; the metrics count logins by result. */
export function createLogins(
  settings: KeyCheckSettings,
  deps: {
    readonly store: Pick<Store, 'keys' | 'accounts'>;
    readonly keyUses: Pick<KeyUses, 'note'>;
    readonly clock: Clock;
    readonly metrics: Metrics;
  },
) {
  const keys = createKeyCheck(settings, deps);
  const count = (result: string) => deps.metrics.counter('postern_smtp_logins_total', { result });
  const wrong = count('wrong');
  const results = { ok: count('ok'), wrong, 'too-many': wrong, away: count('away') };

  return frozen({
    /** Looks up the key, and counts a failure against the address. */
    async logIn(key: string, address: string): Promise<LoginResult> {
      const result = await unlessAway(async () => {
        const found = await keys.check(key, address);
        return found.kind === 'good' ? { login: { account: found.account.id, key: found.id } } : { why: found.kind };
      });
      results[result.login ? 'ok' : result.why].add();
      return result;
    },
    /** Checks whether the key is still valid. */
    check: (login: Login): Promise<LoginResult> =>
      unlessAway(async () => ((await keys.accountOf(login.key)) ? { login } : { why: 'wrong' })),
  });
}

async function unlessAway(look: () => Promise<LoginResult>): Promise<LoginResult> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof StoreAway) return { why: 'away' };
    throw error;
  }
}

const BASE64 = /^(?:[\w+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const CONTROL = /\p{Cc}/u;

/** Decodes a response; `=` is an empty one (RFC 4954 section 4). Undefined if it is not base64 or not UTF-8. */
function parseResponse(text: string): string | undefined {
  if (text === '=') return '';
  if (!BASE64.test(text) || text.includes('_')) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return isUtf8(bytes) ? bytes.toString() : undefined;
}

/**
 * The password in a message of PLAIN (RFC 4616), after the authorization identity and the user name: the key alone
 * identifies the account. Undefined if the message is malformed or contains a control character, which no key or user
 * name has and which would break lines wherever it is shown.
 */
function keyInPlain(message: string): string | undefined {
  const parts = message.split('\0');
  return parts.length === 3 && parts.every(isPlainText) ? parts[2] : undefined;
}

const isPlainText = (text: string): boolean => !CONTROL.test(text);
