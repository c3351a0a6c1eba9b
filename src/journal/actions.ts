import type { Clock } from '../base/clock.ts';
import type { Notes } from './types.ts';

/** The account of actions that concern the host as a whole: no account has this id. */
export const HOST = '';

/** A detail may hold what a person typed. */
const MAX_DETAIL = 500;

/** Notes what a person did to the host, or to the mail of an account. */
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
