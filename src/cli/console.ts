import { systemClock, toTimestamp } from '../base/clock.ts';
import { journalSettings, signInUrl } from '../composition/slices.ts';
import { isOver } from '../console/sessions.ts';
import { HOST } from '../journal/actions.ts';
import {
  addPerson,
  createSignInLink,
  forgetWrongCodes,
  isLocked,
  LINK_MS,
  type PersonRow,
  personName,
  ROLES,
  removePerson,
  resetFactor,
} from '../store/rows/people.ts';
import type { Store } from '../store/store.ts';
import { accountOption, theAccount } from './account.ts';
import { noteActions } from './actions.ts';
import { type Command, EXIT, UsageError } from './command.ts';
import { reachConsole } from './console-reach.ts';
import { runWithStore, type StoreCall, tools, withStore } from './open.ts';

export const consoleLink: Command = {
  notes:
    'If the console cannot be reached, the command says which setting to change. For everyday use, add a person: ' +
    'postern person add NAME.',
  run: runWithStore((parts) => printLink(parts, null)),
};

/** Records a change of a person in the history, in the words of the console. */
function notePerson(
  { io, settings }: StoreCall,
  what: PersonChange,
  { name, role, account }: Pick<PersonRow, 'name' | 'role' | 'account'>,
): void {
  const detail = what === 'person added' || what === 'person removed' ? `${name} (${role})` : name;
  noteActions(io, journalSettings(settings).file, new Map([[account ?? HOST, 1]]), { what, detail });
}

async function printLink(
  { call, io, settings, store }: StoreCall,
  person: Pick<PersonRow, 'id' | 'name'> | null,
): Promise<number> {
  const reach = await reachConsole(settings);
  if (reach.kind === 'off') {
    io.err(reach.text);
    if (person) io.err(`Then get a link: postern person invite ${person.name}\n`);
    return EXIT.failed;
  }
  const url = signInUrl(settings, await createSignInLink(store, person?.id ?? null, tools));
  for (const note of reach.notes) io.err(note);
  const until = toTimestamp(new Date(systemClock.now() + LINK_MS));
  call.print([{ url, until }], () => `${url}\n`);
  return EXIT.ok;
}

export const personAdd: Command = {
  args: 'NAME',
  options: {
    role: {
      value: 'ROLE',
      values: ROLES,
      help:
        'operator: all accounts · owner (default): one account · helper: finds and replays its mail, no content ' +
        'or settings · reader: statistics only',
    },
    account: accountOption,
  },
  async run(call, io) {
    const name = personName(call.words[0] ?? '');
    if (name === undefined) {
      const fault = call.words[0] === undefined ? 'missing argument: NAME' : `"${call.words[0]}" is not a valid name`;
      throw new UsageError(`${fault} (letters, digits and . _ @ + -)`);
    }
    const [role = 'owner'] = call.known('role', ROLES);
    if (role === 'operator' && call.text('account') !== undefined)
      throw new UsageError('an operator sees all accounts; omit --account');
    const { settings } = call.settings();
    return withStore(settings, async (store) => {
      const parts = { call, io, settings, store };
      const account = role === 'operator' ? null : (await theAccount(store, call)).id;
      const added = await addPerson(store, { name, role, account }, tools);
      if (added === 'taken')
        throw new UsageError(`${name} exists already; for a new link: postern person invite ${name}`);
      notePerson(parts, 'person added', added);
      if (call.format === 'text') io.err(`Added ${name} (${role}).\n`);
      return printLink(parts, added);
    });
  },
};

export const personInvite: Command = {
  args: 'NAME',
  run: runWithStore(async (parts) => {
    const person = await thePerson(parts);
    notePerson(parts, 'person invited', person);
    return printLink(parts, person);
  }),
};

export const personList: Command = {
  run: runWithStore(async ({ call, store }) => {
    const rows = await store.people.many({}, { sort: 'name' });
    const shown = await Promise.all(
      rows.map(async ({ name, role, account, password, factor, wrongCodes, createdAt }) => ({
        name,
        role,
        account: account && ((await store.accounts.one({ id: account }))?.name ?? account),
        has_password: password !== null,
        has_factor: Boolean(factor),
        locked: isLocked({ wrongCodes }),
        created_at: toTimestamp(createdAt),
      })),
    );
    call.table(shown, {
      none: 'No people. Add one: postern person add NAME',
      headings: ['name', 'role', 'account', 'password', 'second factor', 'created'],
      cells: (row) => [
        row.name,
        row.role,
        row.account,
        row.has_password ? 'yes' : 'no',
        row.locked ? 'locked' : row.has_factor ? 'yes' : 'no',
        row.created_at,
      ],
    });
  }),
};

type PersonChange =
  | 'person added'
  | 'person invited'
  | 'person removed'
  | 'person unlocked'
  | 'two-factor authentication reset';

interface Changing extends Pick<Command, 'notes'> {
  readonly what: PersonChange;
  change(store: Store, id: string): Promise<unknown>;
  /** The change, for JSON and as text. */
  readonly now: object;
  said(name: string): string;
}

/** A command that changes one person. */
const changing = ({ what, change, now, said, ...command }: Changing): Command => ({
  ...command,
  args: 'NAME',
  run: runWithStore(async (parts) => {
    const person = await thePerson(parts);
    await change(parts.store, person.id);
    notePerson(parts, what, person);
    parts.call.print([{ name: person.name, ...now }], () => `${said(person.name)}\n`);
  }),
});

export const personRemove = changing({
  what: 'person removed',
  change: removePerson,
  now: { removed: true },
  said: (name) => `Removed ${name}`,
});

export const personResetFactor = changing({
  what: 'two-factor authentication reset',
  change: resetFactor,
  now: { has_factor: false },
  said: (name) => `${name} can sign in without a code now`,
});

export const personUnlock = changing({
  notes:
    'The wrong codes were entered after a correct password or link. If that was somebody else, have the person ' +
    'choose a new password: postern person invite NAME.',
  what: 'person unlocked',
  change: forgetWrongCodes,
  now: { locked: false },
  said: (name) => `${name} can sign in again`,
});

async function thePerson({ call, store }: StoreCall): Promise<PersonRow> {
  const given = call.word('NAME');
  const person = await store.people.one({ name: personName(given) ?? '' });
  if (!person) throw new UsageError(`no such person: ${given} (see: postern person list)`);
  return person;
}

/** Characters of a session's id that are shown and identify it. */
const SHOWN_ID = 12;

export const consoleSessionList: Command = {
  run: runWithStore(async ({ call, settings, store }) => {
    const now = systemClock.now();
    const idleMs = settings.console.idle_minutes * 60_000;
    const lasting = await store.consoleSessions.many({ until: { range: { gt: new Date(now) } } });
    const rows = lasting.filter((row) => !isOver(row, idleMs, now));
    const names = new Map((await store.people.many({})).map(({ id, name }) => [id, name]));
    const shown = rows.map(({ id, person, by, address, createdAt, seenAt }) => ({
      id: id.slice(0, SHOWN_ID),
      name: person === null ? 'operator' : (names.get(person) ?? '(removed)'),
      by,
      address,
      created_at: toTimestamp(createdAt),
      seen_at: toTimestamp(seenAt),
    }));
    call.table(shown, {
      none: 'No console sessions.',
      headings: ['id', 'name', 'signed in by', 'address', 'started', 'last seen'],
    });
  }),
};

export const consoleEnd: Command = {
  args: '[ID…]',
  options: { all: { help: 'end all sessions' } },
  async run(call) {
    if (call.flag('all') === call.words.length > 0) throw new UsageError('pass the ids of sessions, or --all');
    return withStore(call.settings().settings, async (store) => {
      const rows = (await store.consoleSessions.many({})).filter(
        ({ id }) => call.flag('all') || call.words.includes(id.slice(0, SHOWN_ID)),
      );
      for (const { id } of rows) await store.consoleSessions.remove({ id });
      call.print(
        rows.map(({ id }) => ({ id: id.slice(0, SHOWN_ID), ended: true })),
        () =>
          rows.length === 0
            ? 'No matching sessions (see: postern console sessions).\n'
            : `Ended ${rows.length} ${rows.length === 1 ? 'session' : 'sessions'}\n`,
      );
      return rows.length > 0 ? EXIT.ok : EXIT.failed;
    });
  },
};
