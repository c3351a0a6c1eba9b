import type { Clock } from '../base/clock.ts';
import type { Notes } from './types.ts';

/** The account of actions that concern the host as a whole: no account has this id. */
export const HOST = '';

/** The actor of commands. */
export const COMMAND_LINE = 'command line';

/** Maximum characters of a detail, which may hold user input. */
const MAX_DETAIL = 500;

/** Notes a person's action on the host, or on the mail of an account. */
export function noteAction(
  { notes, clock, by }: { readonly notes: Notes; readonly clock: Pick<Clock, 'now'>; readonly by: string },
  what: string,
  count: number,
  detail: string,
  account = HOST,
): void {
  const action = { at: clock.now(), by, account, what, count, detail: detail.slice(0, MAX_DETAIL) };
  notes.note({ what: 'action', action });
}
