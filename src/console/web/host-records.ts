import type { Action } from './records.ts';

// The records of the operations of the host (host/README.md), which only operators call. Times are texts in UTC.

/** An account with its mail of the last 24 hours: /host/accounts. */
export interface HostAccount {
  readonly id: string;
  readonly name: string;
  readonly number: number;
  readonly created_at: string;
  readonly waiting: number;
  readonly day: {
    readonly received: number;
    readonly delivered: number;
    readonly given_up: number;
    readonly refused: number;
    readonly sent: number;
  };
}

export type Role = 'operator' | 'owner' | 'helper' | 'reader';

/** Something that was done: host/actions. */
export interface HostAction extends Action {
  /** Null: to the host itself. */
  readonly account: AccountName | null;
}

interface AccountName {
  readonly id: string;
  readonly name: string;
}

/** Somebody who may use the console: /host/people. */
export interface HostPerson {
  readonly name: string;
  readonly role: Role;
  readonly account: AccountName | null;
  readonly has_password: boolean;
  readonly has_factor: boolean;
  /** After too many wrong codes; only a command on the host ends it. */
  readonly locked: boolean;
  readonly created_at: string;
  readonly sessions: number;
}

/** Somebody who is at the console: /host/sessions. */
export interface HostSession {
  readonly id: string;
  readonly name: string;
  readonly role: Role;
  readonly account: AccountName | null;
  readonly by: 'link' | 'password';
  readonly address: string;
  readonly since: string;
  readonly seen_at: string;
  readonly until: string;
  readonly own: boolean;
}

/** A link that lets a person in once: /host/add-person, /host/invite-person. */
export interface EnterLink {
  readonly name: string;
  readonly url: string;
  readonly until: string;
}

/** host/overview. */
export interface HostOverview {
  readonly hostname: string;
  readonly version: string;
  readonly started_at: string;
  readonly state: 'ok' | 'warning' | 'fault';
  readonly text: string;
  readonly takes_mail: boolean;
  readonly waiting: number;
  readonly oldest_at: string | null;
  readonly endpoints_down: number;
  readonly dead: number;
  readonly needs: readonly HostNeed[];
}

export interface HostNeed {
  readonly what: 'listener' | 'queue' | 'routes' | 'store' | 'certificate' | 'endpoint' | 'task' | 'log';
  readonly level: 'warning' | 'fault';
  readonly text: string;
  readonly account: { readonly id: string; readonly name: string } | null;
  readonly url: string | null;
  readonly since: string | null;
}

/** host/series. */
export interface HostSeries {
  readonly step: number;
  /** Seconds since 1970. */
  readonly times: readonly number[];
  readonly series: readonly {
    readonly name: string;
    readonly kind: 'count' | 'level' | 'quantile';
    readonly unit: '' | 's' | 'ms' | 'bytes';
    /** Null where nothing is known. */
    readonly values: readonly (number | null)[];
  }[];
}

/** One of host/tasks. */
export interface HostTask {
  readonly name: string;
  readonly schedule: string;
  readonly per_host: boolean;
  readonly running: boolean;
  readonly last_at: string | null;
  readonly last_ms: number | null;
  readonly last_result: 'done' | 'failed' | 'skipped' | 'elsewhere' | null;
  readonly last_text: string;
  readonly next_at: string | null;
}

/** One of host/settings. */
export interface HostSetting {
  readonly path: string;
  readonly value: unknown;
  readonly origin: string;
}

/** host/log. */
export interface HostLogPage {
  readonly lines: readonly HostLogLine[];
  readonly next: number | null;
  readonly events: readonly {
    readonly event: string;
    readonly level: 'warn' | 'error';
    readonly count: number;
    readonly last_at: string;
  }[];
}

export interface HostLogLine {
  readonly n: number;
  readonly at: string;
  readonly level: 'warn' | 'error';
  readonly event: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** /host/queue: what waits on the host, by age. */
export interface WaitingQueue {
  readonly waiting: number;
  readonly oldest_at: string | null;
  /** Minutes. */
  readonly ages: readonly number[];
  readonly rows: readonly Waiting[];
  readonly left_out: number;
  readonly making: {
    readonly total: number;
    readonly by: readonly {
      readonly waits_for: 'preparing' | 'verdicts' | 'parsing' | 'place';
      readonly count: number;
      readonly oldest_at: string;
    }[];
  };
}

export interface Waiting {
  readonly account: { readonly id: string; readonly name: string } | null;
  readonly url: string | null;
  readonly kind: 'inbound' | 'events' | 'outbound' | 'return' | null;
  readonly waiting: number;
  /** One more than there are ages: the last is older. */
  readonly ages: readonly number[];
  readonly later: number;
  readonly parked: number;
  readonly oldest_at: string;
  readonly breaker: 'up' | 'down' | 'gone' | null;
  readonly down_since: string | null;
  readonly paused_until: string | null;
  readonly in_flight: number;
}

/** host/examine: what `postern doctor` finds. */
export interface HostExamination {
  readonly id: string;
  readonly state: 'running' | 'done';
  readonly started_at: string;
  readonly ended_at: string | null;
  readonly counts: Readonly<Record<HostCheck['level'], number>>;
  readonly checks: readonly HostCheck[];
}

export interface HostCheck {
  readonly name: string;
  readonly level: 'ok' | 'warning' | 'fault' | 'skipped';
  readonly text: string;
  /** What to do about it. */
  readonly advice: string | null;
}

/** One of host/listeners. */
export interface HostListener {
  readonly name: 'smtp' | 'submission' | 'submissions' | 'http';
  readonly tls: 'none' | 'starttls' | 'implicit';
  readonly places: readonly { readonly address: string; readonly port: number }[];
  readonly sessions: number;
  readonly certificate: {
    readonly names: readonly string[];
    readonly issuer: string;
    readonly not_after: string;
    readonly days_left: number;
  } | null;
}
