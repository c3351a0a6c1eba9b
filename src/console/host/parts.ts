import type { HostQueue } from '../../api/hosts/host-queue.ts';
import type { Peers } from '../../api/hosts/peers.ts';
import { createKeyedMutex } from '../../base/concurrency.ts';
import type { Figures } from '../../base/prometheus.ts';
import type { RecentLog } from '../../base/recent-log.ts';
import type { TaskState } from '../../base/service.ts';
import type { Tools } from '../../base/tools.ts';
import type { History } from '../../journal/history.ts';
import type { Series } from '../../journal/series.ts';
import type { Notes } from '../../journal/types.ts';
import type { Spool } from '../../queue/delivery.ts';
import type { Dispatcher } from '../../queue/dispatcher.ts';
import type { EndpointPauses } from '../../queue/endpoint-pauses.ts';
import type { Store } from '../../store/store.ts';
import { createExaminations, type HostFinding } from './examinations.ts';

// The parts that operations of operators can use. They are not bound to one account, so other roles get none of them.

/** A setting in force. */
interface ShownSetting {
  readonly path: string;
  /** `(set)` for a secret. */
  readonly value: unknown;
  /** default, the name of a file, or that of an environment variable. */
  readonly origin: string;
}

/** Data of parts of the daemon that the API does not know. */
interface HostInsight {
  readonly series: Pick<Series, 'read'>;
  readonly tasks: () => readonly TaskState[];
  /** The last warnings and errors. */
  readonly log: Pick<RecentLog, 'lines' | 'counts'>;
  /** The settings in force. */
  readonly settings: () => readonly ShownSetting[];
  /** The address that opens the console with this token. */
  readonly signInUrl: (token: string) => string;
  /** Examines the host as `postern doctor` does. */
  readonly examine: () => AsyncIterable<HostFinding>;
  /** Where the daemon listens. */
  readonly listeners: () => readonly ListenerView[];
}

/** A listener of the daemon. */
export interface ListenerView {
  readonly name: 'smtp' | 'submission' | 'submissions' | 'http' | 'https';
  readonly tls: 'none' | 'starttls' | 'implicit';
  readonly addresses: readonly { readonly address: string; readonly port: number }[];
  /** The certificate in use, in PEM. */
  readonly certificate: string | undefined;
  /** The number of open sessions, or of connections for `http` and `https`. */
  sessions(): Promise<number>;
}

export interface HostSettings {
  readonly hostname: string;
  readonly version: string;
  /** How long a session lasts without a call. */
  readonly idleMs: number;
}

export interface HostDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly store: Pick<Store, 'accounts' | 'people' | 'enterLinks' | 'consoleSessions'>;
  readonly history: Pick<History, 'actions' | 'byAccount'>;
  readonly notes: Notes;
  readonly spool: Pick<Spool, 'ages' | 'backlog' | 'waitingOf'>;
  readonly dispatcher: Pick<Dispatcher, 'lanes' | 'preparing'>;
  readonly pauses: Pick<EndpointPauses, 'pause' | 'resume'>;
  /** Runs a task now. */
  readonly poke: (task: string) => void;
  readonly host: HostInsight;
  /** Whether mail is accepted, check by check. */
  readonly health: { ready(): Promise<{ readonly ok: boolean; readonly checks: Readonly<Record<string, string>> }> };
  readonly metrics: Pick<Figures, 'level'>;
  /** This host. */
  readonly member: { id(): string };
}

/** Changes of the queues of all hosts, and the other hosts of the store. */
export interface CrossHostParts {
  readonly queue: Pick<HostQueue, 'change' | 'endpoints' | 'jobs'>;
  readonly otherHosts: Peers['others'];
}

export type HostParts = ReturnType<typeof createHostParts>;

/** Ids asked for in one query. */
const PAGE = 500;

export function createHostParts(settings: HostSettings, deps: HostDeps) {
  const { store, clock } = deps;
  return {
    ...deps,
    settings,
    startedAt: clock.now(),
    examinations: createExaminations({ ...deps, examine: deps.host.examine }),
    now: () => clock.now(),
    /** Runs expensive reads of the same name one at a time. */
    inTurn: createKeyedMutex('run'),
    /** The names of accounts by id; a deleted account is named by its id. */
    async names(ids: Iterable<string>) {
      const wanted = [...new Set(ids)];
      const names = new Map<string, string>();
      for (let at = 0; at < wanted.length; at += PAGE)
        for (const { id, name } of await store.accounts.many({ id: { in: wanted.slice(at, at + PAGE) } }))
          names.set(id, name);
      return (id: string) => ({ id, name: names.get(id) ?? id });
    },
  };
}
