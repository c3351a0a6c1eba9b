import type { Context } from 'koa';
import { answerPage } from '../api/pages/small-page.ts';
import type { Params } from '../api/requests/parameters.ts';
import { frozen } from '../base/frozen.ts';
import { networkOf } from '../base/networks.ts';
import type { Tools } from '../base/tools.ts';
import { HOST, noteAction } from '../journal/actions.ts';
import type { Notes } from '../journal/types.ts';
import {
  addPerson,
  consumeSignInLink,
  findSignInLink,
  NAME_RULE,
  type PersonRow,
  personName,
  resetFactor,
  TOKEN,
} from '../store/rows/people.ts';
import type { Store } from '../store/store.ts';
import { Denial } from './denial.ts';
import type { Origin } from './guard.ts';
import { createPasswords, type PasswordCost, passwordFault } from './passwords.ts';
import { createSecondFactor, secretUrl } from './second-factor.ts';
import { isFresh, type Sessions, type Visitor } from './sessions.ts';
import { createThrottle } from './throttle.ts';

interface SignInDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly store: Pick<Store, 'people' | 'enterLinks' | 'consoleSessions'>;
  readonly sessions: Sessions;
  readonly notes: Notes;
  /** Named in authenticator apps. */
  readonly hostname: string;
  readonly passwordCost: PasswordCost;
}

const WRONG_CODE = 'Wrong or used code. Enter the next code that the app shows.';

export type SignIn = ReturnType<typeof createSignIn>;

/** Sign-in by link or by name and password, then by a code of the second factor, if there is one. */
export function createSignIn({ store, sessions, notes, hostname, passwordCost, clock, ids, log }: SignInDeps) {
  const passwords = createPasswords(passwordCost);
  const throttle = createThrottle(clock);
  const factor = createSecondFactor({ store, clock });

  /** Whether the visitor may set a password without the old one, because they have just come in by link. */
  function maySetPassword({ session }: Visitor): boolean {
    return session.by === 'link' && isFresh(session, clock.now());
  }

  /**
   * Uses up a code of the person's second factor. Throws `Denial` if it is wrong, or if there were too many wrong ones.
   */
  async function useCode(person: PersonRow, code: string, address: string): Promise<void> {
    const used = await factor.use(person, code);
    if (used === 'right') return;
    log.info('console.refused', { address, by: 'code' });
    if (used === 'locks') {
      log.warn('console.locked', { name: person.name, address });
      noteFactor(person, 'locked after too many wrong codes');
    }
    if (used === 'wrong') throw new Denial('Wrong_Code', WRONG_CODE);
    const command = `postern person unlock ${person.name}`;
    throw new Denial('Locked', `Too many wrong codes: ${person.name} is locked. Unlock on the host: ${command}`);
  }

  const guessesOf = (name: string, address: string) => [`password ${networkOf(address)}`, `name ${name}`];

  /** Returns the person with this name if password and code are right. Throws `Denial`. */
  async function identify(name: string, params: Params, address: string): Promise<PersonRow> {
    const password = textOf(params, 'password');
    const keys = guessesOf(name, address);
    await throttle.admit(keys);
    const person = name === '' ? undefined : await store.people.one({ name });
    if (!(await passwords.matches(password, person?.password ?? null)) || !person) {
      log.info('console.refused', { address, by: 'password' });
      throw new Denial('Wrong_Login', 'Wrong name or password.');
    }
    const code = codeOf(params);
    if (person.factor && code !== '') await useCode(person, code, address);
    throttle.forgive(keys);
    if (person.factor && code === '') throw new Denial('Code_Needed', 'Enter the code of your authenticator app.');
    return person;
  }

  /** Returns the visitor's person. Throws `Denial` without a password: second factor and confirmation need one. */
  function withPassword({ person }: Visitor): PersonRow {
    if (!person || person.password === null) throw new Denial('Not_Allowed', 'Choose a password first.');
    return person;
  }

  /** Throws `Denial` unless the visitor has proved who they are within the last minutes. */
  function mustBeFresh({ session, person }: Visitor): void {
    if (isFresh(session, clock.now())) return;
    if (person && person.password !== null)
      throw new Denial('Confirm_Password', 'Enter your password again to do this.');
    const command = person ? `postern person invite ${person.name}` : 'postern console link';
    throw new Denial('Confirm_Password', `To do this, sign in with a new link (on the host: ${command}).`);
  }

  /** Adds an operator with the chosen name and password, and gives them the session. */
  async function becomePerson(visitor: Visitor, params: Params): Promise<void> {
    if (!maySetPassword(visitor))
      throw new Denial('Not_Allowed', 'Only people have passwords. Add one on the host: postern person add NAME');
    const name = personName(textOf(params, 'name'));
    if (name === undefined) throw new Denial('ValidationError', NAME_RULE);
    const password = textOf(params, 'password');
    const fault = passwordFault(password, name);
    if (fault !== undefined) throw new Denial('ValidationError', fault);
    const hash = await passwords.hash(password);
    const added = await addPerson(store, { name, role: 'operator', account: null }, { clock, ids });
    if (added === 'taken') throw new Denial('ValidationError', `The name ${name} is taken. Choose another one.`);
    await store.people.change({ id: added.id }, { password: hash });
    await store.consoleSessions.change({ id: visitor.session.id }, { person: added.id });
    noteAction({ notes, clock, by: name }, 'person added', 1, `${name} (operator)`);
  }

  const noteFactor = ({ name, account }: PersonRow, what: string) =>
    noteAction({ notes, clock, by: name }, what, 1, name, account ?? HOST);

  /** Ends all other sessions and unused links: the password may be changed because it leaked. */
  async function endOthers({ session, person }: Visitor): Promise<void> {
    if (!person) return;
    for (const { id } of await store.consoleSessions.many({ person: person.id }))
      if (id !== session.id) await store.consoleSessions.remove({ id });
    while (await store.enterLinks.remove({ person: person.id }));
  }

  /** Signs in by a link. Throws `Denial` after too many tries. */
  async function tryLink(ctx: Context, origin: Origin, token: string, params: Params, address: string): Promise<void> {
    const keys = [`link ${networkOf(address)}`];
    const refuse = (status: number, title: string, main: string) => {
      log.info('console.refused', { address, by: 'link' });
      answerLinkPage(ctx, status, title, main);
    };
    await throttle.admit(keys);
    const link = TOKEN.test(token) ? await findSignInLink(store, token, { clock }) : undefined;
    // A link without a person signs in an unnamed operator.
    const person = link && link.person !== null ? await store.people.one({ id: link.person }) : undefined;
    if (!link || (link.person !== null && !person)) return refuse(410, NO_WAY, SPENT);
    if (person?.factor) {
      const code = codeOf(params);
      const guesses = [`name ${person.name}`];
      if (code === '') {
        throttle.forgive(keys);
        return answerLinkPage(ctx, 200, 'Postern', CODE_PAGE);
      }
      await throttle.admit(guesses);
      try {
        await useCode(person, code, address);
      } catch (error) {
        if (!(error instanceof Denial) || error.name !== 'Wrong_Code') throw error;
        return answerLinkPage(ctx, 401, 'Wrong code', WRONG_CODE_PAGE);
      }
      throttle.forgive(guesses);
    }
    if (!(await consumeSignInLink(store, token, { clock }))) return refuse(410, NO_WAY, SPENT);
    throttle.forgive(keys);
    const visitor = await sessions.begin(ctx, origin, 'link', person, address);
    log.info('console.entered', { name: visitor.name, by: 'link', address });
    ctx.redirect('/console/');
    ctx.status = 303;
  }

  return frozen({
    /** The page that a link leads to. It says nothing about the link: mail scanners and chat previews fetch links. */
    showLink(ctx: Context) {
      answerLinkPage(ctx, 200, 'Postern', '<form method="post"><button>Open the console</button></form>');
    },
    /** Uses up the link, and signs in. A person with a second factor enters a code first. */
    async enterByLink(ctx: Context, origin: Origin, token: string, params: Params, address: string) {
      try {
        await tryLink(ctx, origin, token, params, address);
      } catch (error) {
        if (!(error instanceof Denial)) throw error;
        if (error.retryAfterS !== undefined) ctx.set('Retry-After', String(error.retryAfterS));
        answerLinkPage(ctx, error.status, 'Too many attempts', `<p>${error.message}</p>`);
      }
    },
    async enterByPassword(ctx: Context, origin: Origin, params: Params, address: string) {
      const person = await identify(personName(textOf(params, 'name')) ?? '', params, address);
      const visitor = await sessions.begin(ctx, origin, 'password', person, address);
      log.info('console.entered', { name: visitor.name, by: 'password', address });
      return visitor;
    },
    mustBeFresh,
    /** Confirms the visitor's identity by password and code. */
    async confirm(visitor: Visitor, params: Params, address: string) {
      await identify(withPassword(visitor).name, params, address);
      await sessions.prove(visitor);
    },
    /** Returns a new secret for an authenticator app, as text and as a URL for the app. */
    async offerFactor(visitor: Visitor) {
      const person = withPassword(visitor);
      mustBeFresh(visitor);
      const secret = await factor.offer(person);
      return { secret, url: secretUrl(secret, person.name, hostname) };
    },
    /** Turns the second factor on, with a code of the offered secret. Returns the recovery codes. */
    async turnFactorOn(visitor: Visitor, params: Params) {
      const person = withPassword(visitor);
      mustBeFresh(visitor);
      const codes = await factor.turnOn(person, textOf(params, 'code'));
      if (!codes) throw new Denial('Wrong_Code', 'Wrong code. Check the clock of the device.');
      await endOthers(visitor);
      noteFactor(person, 'two-factor authentication turned on');
      return codes;
    },
    async turnFactorOff(visitor: Visitor) {
      const person = withPassword(visitor);
      mustBeFresh(visitor);
      await resetFactor(store, person.id);
      noteFactor(person, 'two-factor authentication turned off');
    },
    maySetPassword,
    /** Sets a new password. An unnamed operator, signed in by a command-line link, becomes a person. */
    async changePassword(visitor: Visitor, params: Params, address: string) {
      const { person } = visitor;
      mustBeFresh(visitor);
      if (!person) return becomePerson(visitor, params);
      const password = textOf(params, 'password');
      if (!maySetPassword(visitor)) {
        const current = textOf(params, 'current');
        const keys = guessesOf(person.name, address);
        await throttle.admit(keys);
        if (!(await passwords.matches(current, person.password)))
          throw new Denial('Wrong_Login', 'Wrong current password.');
        throttle.forgive(keys);
      }
      const fault = passwordFault(password, person.name);
      if (fault !== undefined) throw new Denial('ValidationError', fault);
      await store.people.change({ id: person.id }, { password: await passwords.hash(password) });
      await endOthers(visitor);
    },
    /** Counts a cookie that belongs to no session. Throws `Denial` if there were too many. */
    wrongCookie: (address: string) => throttle.admit([`cookie ${networkOf(address)}`]),
  });
}

/** The page after the button of a link, for a person with a second factor. */
const CODE_PAGE =
  '<form method="post"><p><label>Code of your authenticator app, or a recovery code<br>' +
  '<input name="code" autocomplete="one-time-code" autocapitalize="none" required autofocus></label></p>' +
  '<button>Open the console</button></form>';
const WRONG_CODE_PAGE = `<p>${WRONG_CODE}</p>${CODE_PAGE}`;

const NO_WAY = 'This link does not open the console';
const SPENT =
  '<p>It has been used, or is older than an hour.</p><p class="soft">Ask an operator for a new one, or create it on ' +
  'the host:</p><pre>postern console link</pre>' +
  '<p class="soft">or, for a person:</p><pre>postern person invite NAME</pre>';

function answerLinkPage(ctx: Context, status: number, title: string, main: string): void {
  answerPage(ctx, { status, title, main });
  // With no-referrer a browser would send the form with `Origin: null`.
  ctx.set('Referrer-Policy', 'same-origin');
}

/** The code of the second factor; empty if there is none. */
function codeOf(params: Params): string {
  const { code } = params.of(['code']);
  return typeof code === 'string' ? code.trim() : '';
}

/** Parameters whose names say too little. */
const NAMES: Readonly<Record<string, string>> = { current: 'current password' };

function textOf(params: Params, name: string): string {
  const value = params.of([name])[name];
  if (typeof value !== 'string' || value === '')
    throw new Denial('ValidationError', `Please enter the ${NAMES[name] ?? name}`);
  return value;
}
