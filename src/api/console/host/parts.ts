import type { Clock } from '../../../base/clock.ts';
import type { TaskState } from '../../../base/service.ts';
import { createTurns } from '../../../base/turns.ts';
import type { History, Notes } from '../../../journal/types.ts';
import type { Spool } from '../../../queue/delivery.ts';
import type { Dispatcher } from '../../../queue/dispatcher.ts';
import type { Store } from '../../../store/store.ts';

// What operators can reach from the console. Nothing here is bound to one account, so nothing here is given to others.

/** A setting in force. */
export interface ShownSetting {
  readonly path: string;
  /** `(set)` for a secret. */
  readonly value: unknown;
  /** default, the name of a file, or that of an environment variable. */
  readonly origin: string;
}

/** What lives in parts of the daemon that the API does not know. */
export interface HostInsight {
  readonly tasks: () => readonly TaskState[];
  /** The settings in force. */
  readonly settings: () => readonly ShownSetting[];
}

export interface HostDeps {
  readonly store: Pick<Store, 'accounts' | 'people' | 'consoleSessions'>;
  readonly history: Pick<History, 'actions' | 'byAccount'>;
  readonly notes: Notes;
  readonly spool: Pick<Spool, 'ages' | 'backlog' | 'waitingOf'>;
  readonly dispatcher: Pick<Dispatcher, 'lanes' | 'making'>;
  readonly host: HostInsight;
  readonly clock: Clock;
}

/** An account as records name it. */
export interface AccountName {
  readonly id: string;
  readonly name: string;
}

export interface HostParts extends HostDeps {
  now(): number;
  /** Names of accounts by id; one that is gone is named by its id. */
  names(ids: Iterable<string>): Promise<(id: string) => AccountName>;
  /** Runs what reads much one at a time. */
  inTurn<T>(name: string, run: () => Promise<T>): Promise<T>;
}

/** Ids asked for in one query. */
const PAGE = 500;

export function createHostParts(deps: HostDeps): HostParts {
  const { store, clock } = deps;
  return {
    ...deps,
    now: () => clock.now(),
    inTurn: createTurns('run'),
    async names(ids) {
      const wanted = [...new Set(ids)];
      const names = new Map<string, string>();
      for (let at = 0; at < wanted.length; at += PAGE)
        for (const { id, name } of await store.accounts.many({ id: { in: wanted.slice(at, at + PAGE) } }))
          names.set(id, name);
      return (id) => ({ id, name: names.get(id) ?? id });
    },
  };
}
