import { systemClock, toTimestamp } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { COMMAND_LINE } from '../journal/actions.ts';
import { recordCommandActions } from '../journal/command-access.ts';
import type { Selection } from '../queue/delivery.ts';
import type { Io } from './command.ts';

// Records commands in the history of the accounts whose mail they change.

/** Records an action in the history of each account that it affects. */
export function noteActions(
  io: Io,
  file: string,
  whose: ReadonlyMap<string, number>,
  { what, detail }: { readonly what: string; readonly detail: string },
): void {
  const at = systemClock.now();
  const actions = [...whose].map(([account, count]) => ({ at, by: COMMAND_LINE, account, what, count, detail }));
  try {
    recordCommandActions(file, actions);
  } catch (error) {
    io.err(`Not recorded in the history: ${errorText(error)}\n`);
  }
}

/** The selection as text, for the list of actions. */
export function toWords({ ids, ...rest }: Selection): string {
  const named = ids === undefined ? [] : [ids.length === 1 ? `id ${ids[0]}` : `${ids.length} ids`];
  const given = Object.entries(rest).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [`${WORDS[name] ?? name} ${typeof value === 'number' ? toTimestamp(new Date(value)) : value}`],
  );
  return [...named, ...given].join(', ') || 'all';
}

const WORDS: Readonly<Record<string, string>> = { routeIds: 'route', kinds: 'kind' };
