import type { Context } from 'koa';
import { refusal } from '../api/errors.ts';
import type { SessionCalls } from '../api/http/app.ts';
import type { Operation } from '../api/operation.ts';
import type { Clock } from '../base/clock.ts';
import { createShares } from '../base/shares.ts';
import { noteAction } from '../journal/actions.ts';
import type { Notes } from '../journal/types.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import type { Store } from '../store/store.ts';
import { busy, Denial } from './denial.ts';
import { HOST_OPERATIONS } from './host/index.ts';
import type { CrossHostParts, HostParts } from './host/parts.ts';
import type { Permissions } from './roles.ts';
import type { Visitor } from './sessions.ts';
import type { Redactors } from './url-redaction.ts';

interface CallDeps extends Pick<SessionCalls, 'run' | 'runHost'> {
  /** Operations of accounts. */
  readonly operations: readonly Operation[];
  readonly hostParts: HostParts & CrossHostParts;
  readonly permissions: Permissions;
  /** Throws `Denial` if the visitor has to confirm their identity. */
  readonly mustBeFresh: (visitor: Visitor) => void;
  readonly store: Pick<Store, 'accounts'>;
  readonly notes: Notes;
  readonly redactors: Redactors;
  readonly clock: Clock;
}

/** Concurrent calls, in total and per session. A browser makes up to six. */
const CALLS = { all: 40, each: 8 };

/**
 * Runs operations by session instead of by key. The account is the visitor's, or that of `Postern-Account`; operations
 * of the group `host` have none.
 */
export function createCalls(deps: CallDeps): (ctx: Context, visitor: Visitor, path: string) => Promise<void> {
  const { operations, hostParts, permissions, mustBeFresh, run, runHost, store, notes, redactors, clock } = deps;
  const shares = createShares(CALLS);

  async function callForAccount(ctx: Context, visitor: Visitor, operation: Operation): Promise<void> {
    const { path, access } = operation;
    const account = await accountFor(ctx.get('postern-account'), visitor, store);
    const redactor = await redactors.for(visitor.role, account.id);
    await run(ctx, redactor?.wrap(operation) ?? operation, account, visitor.name, (params) => {
      // Before the answer: an access that is not recorded must not happen.
      if (visitor.role !== 'operator' || !permissions.showsContent(access)) return;
      const detail = `${path} ${String(params.get('id') ?? '')}`;
      noteAction({ notes, clock, by: visitor.name }, 'content viewed', 1, detail, account.id);
    });
  }

  return async (ctx, visitor, path) => {
    const operation = operations.find((one) => one.path === path);
    const ofHost = HOST_OPERATIONS.find((one) => one.path === path);
    const access = operation?.access ?? ofHost?.access;
    if (access === undefined) throw refusal('Unknown_Operation', `There is no operation ${path}`);
    permissions.must(visitor.role, access);
    if (permissions.needsProof(access)) mustBeFresh(visitor);
    if (shares.take(visitor.session.id, 1) !== 'taken') throw busy();
    try {
      const who = { by: visitor.name, session: visitor.session.id };
      if (ofHost) await runHost(ctx, ofHost.path, (params) => ofHost.run(params, hostParts, who));
      else if (operation) await callForAccount(ctx, visitor, operation);
    } finally {
      shares.give(visitor.session.id, 1);
    }
  };
}

/** The account that a call is for. An operator must name one if there are several. */
export async function accountFor(
  wanted: string,
  { account }: Visitor,
  { accounts }: Pick<Store, 'accounts'>,
): Promise<AccountRow> {
  if (account !== null && wanted !== '' && wanted !== account) throw unknownAccount(wanted);
  const id = account ?? wanted;
  const found = await accounts.many(id === '' ? {} : { id }, { limit: 2 });
  if (found.length === 1 && found[0]) return found[0];
  if (found.length === 0) throw unknownAccount(id);
  throw new Denial('ValidationError', 'Choose an account: the Postern-Account header is missing');
}

function unknownAccount(id: string): Denial {
  return new Denial('ValidationError', `There is no account ${id}`);
}
