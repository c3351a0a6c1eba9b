import { OPERATIONS } from '../api/operations/index.ts';
import { withPort } from '../base/networks.ts';
import type { Store } from '../store/store.ts';
import type { ConsoleDeps, ConsoleSettings } from './console.ts';
import { HOST_OPERATIONS } from './host/index.ts';
import type { Permissions } from './roles.ts';
import { recoveryCodesLeft } from './second-factor.ts';
import type { Visitor } from './sessions.ts';
import type { SignIn } from './sign-in.ts';

/** Accounts in the list from which an operator chooses. */
const MAX_SHOWN = 1000;

interface MeDeps extends Pick<ConsoleDeps, 'smtpAddresses'> {
  readonly store: Pick<Store, 'accounts'>;
  readonly permissions: Permissions;
  readonly signIn: Pick<SignIn, 'maySetPassword'>;
}

/** The visitor's own record, and what the page offers them: /console/me. */
export function createMe(settings: ConsoleSettings, { store, permissions, signIn, smtpAddresses }: MeDeps) {
  return async (visitor: Visitor) => {
    const { session, person, name, role, account } = visitor;
    const rows = await store.accounts.many(account === null ? {} : { id: account }, {
      sort: 'number',
      limit: MAX_SHOWN,
    });
    const accounts = rows.map((row) => ({ id: row.id, name: row.name }));
    return {
      name,
      role,
      account: account === null ? null : (accounts[0] ?? null),
      accounts,
      is_person: person !== undefined,
      has_password: person !== undefined && person.password !== null,
      has_factor: Boolean(person?.factor),
      recovery_codes: person ? recoveryCodesLeft(person) : 0,
      can_set_password: signIn.maySetPassword(visitor),
      signed_in_at: session.createdAt.toISOString(),
      expires_at: session.until.toISOString(),
      idle_minutes: Math.round(settings.idleMs / 60_000),
      keeps_days: {
        history: settings.keeps.history,
        refusals: settings.keeps.refusals,
        given_up: settings.keeps.givenUp,
      },
      hostname: settings.hostname,
      version: settings.version,
      smtp: smtpAddresses().map(({ address, port }) => withPort(address, port)),
      reads_content: permissions.may(role, 'content'),
      calls: [...OPERATIONS, ...HOST_OPERATIONS]
        .filter(({ access }) => permissions.may(role, access))
        .map(({ path }) => path.slice(1)),
    };
  };
}

export type Me = Awaited<ReturnType<ReturnType<typeof createMe>>>;
