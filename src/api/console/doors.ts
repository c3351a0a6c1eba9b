import type { Context } from 'koa';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { networkOf } from '../../base/networks.ts';
import { type PersonRow, personName, spendEnterLink, TOKEN } from '../../store/rows/people.ts';
import type { Store } from '../../store/store.ts';
import { answerPage } from '../pages/small-page.ts';
import type { Params } from '../parameters.ts';
import { Denial } from './denial.ts';
import type { Origin } from './guard.ts';
import { createPasswords, passwordFault } from './passwords.ts';
import type { Sessions, Visitor } from './sessions.ts';
import { createThrottle } from './throttle.ts';

/** The ways in: a link from the command line, or name and password. */
export interface Doors {
  /** The page that a link leads to. It says nothing about the link: mail scanners and chat previews fetch links. */
  showLink(ctx: Context): void;
  /** Uses the link up, and lets in. */
  enterByLink(ctx: Context, origin: Origin, token: string, address: string): Promise<void>;
  enterByPassword(ctx: Context, origin: Origin, params: Params, address: string): Promise<Visitor>;
  /** Gives the visitor a new password. */
  changePassword(visitor: Visitor, params: Params, address: string): Promise<void>;
  /** Whether the visitor may set a password without the old one, because they have just come in by link. */
  maySetPassword(visitor: Visitor): boolean;
  /** Counts a cookie that belongs to no session; throws `Denial` when there were too many. */
  wrongCookie(address: string): Promise<void>;
}

interface DoorDeps {
  readonly store: Pick<Store, 'people' | 'enterLinks' | 'consoleSessions'>;
  readonly sessions: Sessions;
  readonly clock: Clock;
  readonly log: Log;
}

/** How long somebody who came in by link may set a password without the old one. */
const FRESH_MS = 600_000;
const WRONG_LOGIN = 'The name or the password is wrong.';

export function createDoors({ store, sessions, clock, log }: DoorDeps): Doors {
  const passwords = createPasswords();
  const throttle = createThrottle(clock);

  function maySetPassword({ session, person }: Visitor): boolean {
    const fresh = session.by === 'link' && clock.now() - session.createdAt.getTime() < FRESH_MS;
    return person !== undefined && (fresh || person.password === null);
  }

  /** A password that is changed because it leaked must end what was entered with it. */
  async function endOthers({ session, person }: Visitor): Promise<void> {
    if (!person) return;
    for (const { id } of await store.consoleSessions.many({ person: person.id }))
      if (id !== session.id) await store.consoleSessions.remove({ id });
  }

  /** Undefined: an operator without a name. */
  async function personOf(
    spent: { readonly person: string | null } | undefined,
  ): Promise<PersonRow | 'gone' | undefined> {
    if (!spent || spent.person === null) return undefined;
    return (await store.people.one({ id: spent.person })) ?? 'gone';
  }

  return frozen({
    showLink(ctx) {
      answerLinkPage(ctx, 200, 'Postern', '<form method="post"><button>Open the console</button></form>');
    },
    async enterByLink(ctx, origin, token, address) {
      const keys = [`link ${networkOf(address)}`];
      try {
        await throttle.admit(keys);
      } catch (error) {
        if (!(error instanceof Denial)) throw error;
        ctx.set('Retry-After', String(error.retryAfterS));
        return answerLinkPage(ctx, error.status, 'Too many tries', `<p>${error.message}</p>`);
      }
      const spent = TOKEN.test(token) ? await spendEnterLink(store, token, { clock }) : undefined;
      const person = await personOf(spent);
      if (!spent || person === 'gone') {
        log.info('console.refused', { address, by: 'link' });
        return answerLinkPage(ctx, 410, 'This link does not open the console', SPENT);
      }
      throttle.forgive(keys);
      const visitor = await sessions.begin(ctx, origin, 'link', person, address);
      log.info('console.entered', { name: visitor.name, by: 'link', address });
      ctx.redirect('/console/');
      ctx.status = 303;
    },
    async enterByPassword(ctx, origin, params, address) {
      const name = personName(textOf(params, 'name')) ?? '';
      const password = textOf(params, 'password');
      const keys = [`password ${networkOf(address)}`, `name ${name}`];
      await throttle.admit(keys);
      const person = name === '' ? undefined : await store.people.one({ name });
      if (!(await passwords.matches(password, person?.password ?? null)) || !person) {
        log.info('console.refused', { address, by: 'password' });
        throw new Denial('Wrong_Login', WRONG_LOGIN);
      }
      throttle.forgive(keys);
      const visitor = await sessions.begin(ctx, origin, 'password', person, address);
      log.info('console.entered', { name: visitor.name, by: 'password', address });
      return visitor;
    },
    maySetPassword,
    async changePassword(visitor, params, address) {
      const { person } = visitor;
      if (!person) throw new Denial('Not_Allowed', 'Only people have passwords: postern person add NAME');
      if (!maySetPassword(visitor)) {
        const keys = [`password ${networkOf(address)}`, `name ${person.name}`];
        await throttle.admit(keys);
        const right = await passwords.matches(textOf(params, 'current'), person.password);
        if (!right) throw new Denial('Wrong_Login', 'The current password is wrong.');
        throttle.forgive(keys);
      }
      const password = textOf(params, 'password');
      const fault = passwordFault(password, person.name);
      if (fault !== undefined) throw new Denial('ValidationError', fault);
      await store.people.change({ id: person.id }, { password: await passwords.hash(password) });
      await endOthers(visitor);
    },
    wrongCookie: (address) => throttle.admit([`cookie ${networkOf(address)}`]),
  });
}

const SPENT =
  '<p>It has been used, or is older than an hour.</p><p class="soft">A new one, in a shell on the host:</p><pre>postern console link</pre>' +
  '<p class="soft">or, for a person:</p><pre>postern person invite NAME</pre>';

function answerLinkPage(ctx: Context, status: number, title: string, main: string): void {
  answerPage(ctx, { status, title, main });
  // With no-referrer a browser would send the form with `Origin: null`.
  ctx.set('Referrer-Policy', 'same-origin');
}

function textOf(params: Params, name: string): string {
  const value = params.of([name])[name];
  if (typeof value !== 'string' || value === '') throw new Denial('ValidationError', `Please enter the ${name}`);
  return value;
}
