import type { Context } from 'koa';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { type Ids, tokenHash } from '../base/ids.ts';
import { type ConsoleSessionRow, openConsoleSession, type PersonRow, type Role, TOKEN } from '../store/rows/people.ts';
import type { Store } from '../store/store.ts';
import type { Origin } from './guard.ts';

export interface SessionSettings {
  /** The lifetime of a session, and its idle timeout. */
  readonly sessionMs: number;
  readonly idleMs: number;
}

/** The visitor of the console. */
export interface Visitor {
  readonly session: ConsoleSessionRow;
  /** Undefined for an operator who signed in by a command-line link. */
  readonly person: PersonRow | undefined;
  /** Their name in the journal. */
  readonly name: string;
  readonly role: Role;
  /** The account that they see; null: all. */
  readonly account: string | null;
}

/** The name in the journal of an operator who signed in by a command-line link. */
const UNNAMED = 'operator';
/** The minimum interval between writes of the time of the last call. */
const SEEN_MS = 60_000;

export type Sessions = ReturnType<typeof createSessions>;

/** The sessions of the console: a cookie in the browser, a row in the store. */
export function createSessions(
  settings: SessionSettings,
  deps: { readonly store: Pick<Store, 'people' | 'consoleSessions'>; readonly clock: Clock; readonly ids: Ids },
) {
  const { store, clock } = deps;

  /** Reads a session with its person, who may have been removed or given another role. */
  async function find(id: string): Promise<Visitor | undefined> {
    const session = await store.consoleSessions.one({ id });
    if (!session) return undefined;
    if (isOver(session, settings.idleMs, clock.now())) return undefined;
    if (session.person === null) return toVisitor(session, undefined);
    const person = await store.people.one({ id: session.person });
    return person && toVisitor(session, person);
  }

  return frozen({
    /** Begins a session and sets the cookie. */
    async begin(
      ctx: Context,
      origin: Origin,
      by: ConsoleSessionRow['by'],
      person: PersonRow | undefined,
      address: string,
    ) {
      const who = { person: person?.id ?? null, by, address };
      const { token, row } = await openConsoleSession(store, who, settings.sessionMs, deps);
      setCookie(ctx, origin, token, settings.sessionMs);
      return toVisitor(row, person);
    },
    /** The visitor of the cookie; undefined if the session has ended, `none` if there is no cookie. */
    async visitor(ctx: Context, origin: Origin): Promise<Visitor | 'none' | undefined> {
      const token = ctx.cookies.get(cookieName(origin));
      if (token === undefined) return 'none';
      const visitor = TOKEN.test(token) ? await find(tokenHash(token)) : undefined;
      if (visitor && clock.now() - visitor.session.seenAt.getTime() >= SEEN_MS) {
        await store.consoleSessions.change({ id: visitor.session.id }, { seenAt: new Date(clock.now()) });
      }
      return visitor;
    },
    /** The visitor by session id, for requests without the cookie. Does not keep the session alive. */
    byId: find,
    /** Whether the session of an open stream still exists with the same role and account. Does not keep it alive. */
    async lasts({ session, role, account }: Visitor) {
      const now = await find(session.id);
      return now !== undefined && now.role === role && now.account === account;
    },
    /** Records that the visitor has just confirmed their identity. */
    async prove({ session: { id } }: Visitor) {
      await store.consoleSessions.change({ id }, { provedAt: new Date(clock.now()) });
    },
    /** Ends the session, in the store and in the browser. */
    async end(ctx: Context, origin: Origin, visitor: Visitor) {
      await store.consoleSessions.remove({ id: visitor.session.id });
      setCookie(ctx, origin, '', 0);
    },
    /** Removes the cookie of a session that has ended. */
    forget: (ctx: Context, origin: Origin) => setCookie(ctx, origin, '', 0),
  });
}

/** Whether a session has reached its maximum age or its idle timeout. */
export function isOver({ until, seenAt }: ConsoleSessionRow, idleMs: number, now: number): boolean {
  return until.getTime() <= now || seenAt.getTime() + idleMs <= now;
}

/** How long a sign-in or confirmation is enough for changes of people, keys or secrets. */
const FRESH_MS = 600_000;

/** Whether the visitor signed in, or confirmed their password, within the last minutes. */
export function isFresh({ createdAt, provedAt }: ConsoleSessionRow, now: number): boolean {
  return now - (provedAt ?? createdAt).getTime() < FRESH_MS;
}

function toVisitor(session: ConsoleSessionRow, person: PersonRow | undefined): Visitor {
  const { name = UNNAMED, role = 'operator', account = null } = person ?? {};
  return { session, person, name, role, account };
}

/** `__Host-` makes the browser refuse a cookie of this name that another host, or plain HTTP, tries to set. */
const cookieName = ({ secure }: Origin) => (secure ? '__Host-postern' : 'postern');

function setCookie(ctx: Context, origin: Origin, token: string, ms: number): void {
  const parts = [
    `${cookieName(origin)}=${token}`,
    'Path=/',
    `Max-Age=${Math.round(ms / 1000)}`,
    'HttpOnly',
    'SameSite=Strict',
  ];
  ctx.set('Set-Cookie', [...parts, ...(origin.secure ? ['Secure'] : [])].join('; '));
}
