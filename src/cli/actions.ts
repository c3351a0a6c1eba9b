import { systemClock, toTimestamp } from '../base/clock.ts';
import { noteBeside } from '../journal/beside.ts';
import type { Selection, Spool } from '../queue/delivery.ts';
import type { Io } from './command.ts';

// Records commands in the history of the accounts whose mail they change.

/** How many of the selected deliveries each account has. */
export async function countByAccount(
  spool: Spool,
  selections: readonly Selection[],
): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  for (const selection of selections) {
    const pages = selection.ids ? [await spool.list(selection, selection.ids.length)] : spool.scan(selection);
    for await (const page of pages) for (const { account } of page) counts.set(account, (counts.get(account) ?? 0) + 1);
  }
  return counts;
}

/** Records an action in the history of each account that it affects. */
export function noteActions(
  io: Io,
  file: string,
  whose: ReadonlyMap<string, number>,
  { what, detail }: { readonly what: string; readonly detail: string },
): void {
  const at = systemClock.now();
  const actions = [...whose].map(([account, count]) => ({ at, by: 'command line', account, what, count, detail }));
  try {
    noteBeside(file, actions);
  } catch (error) {
    io.err(`Not recorded in the history: ${error instanceof Error ? error.message : String(error)}\n`);
  }
}

/** The selection as the list of actions shows it. */
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
