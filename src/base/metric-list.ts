/** What a metric is: the name is its key in `METRICS`. */
export interface Declared {
  readonly kind: 'counter' | 'gauge' | 'histogram';
  /** One sentence, with the unit where the name has none. */
  readonly help: string;
  /** Each label with where its values come from. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Upper bounds, ascending. */
  readonly buckets?: readonly number[];
  /** Counted in threads too: then every value that a label may have stands here. */
  readonly threads?: Readonly<Record<string, readonly string[]>>;
}

const LISTENER = 'smtp, submission, submissions (TLS from the first byte)';
const CLASS =
  'inbound (messages for routes), events (batches for webhooks), outbound (messages of accounts), return (bounces, mail to the postmaster, reports to senders)';
const ENDPOINT = 'webhook, outbound (a destination of mail going out), return';

/** Milliseconds to half a minute, as posts and look-ups take. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** What a disk or a database takes. */
const SHORT = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
const BYTES = [1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];
const FEW = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/**
 * Every metric of Postern. Names and labels are stable: dashboards and alerts are written against them. The list is closed, and
 * what is not in it cannot be counted; docs/metrics.md is written from it.
 */
export const METRICS = {
  // mail coming in
  postern_smtp_sessions_total: { kind: 'counter', help: 'Sessions that were begun.', labels: { listener: LISTENER } },
  postern_smtp_sessions_active: { kind: 'gauge', help: 'Sessions that are open.', labels: { listener: LISTENER } },
  postern_smtp_tls_sessions_total: {
    kind: 'counter',
    help: 'Sessions that became encrypted, by the version of TLS.',
    labels: { listener: LISTENER, version: 'TLSv1.2, TLSv1.3, other' },
  },
  postern_smtp_refusals_total: {
    kind: 'counter',
    help: 'Refusals that were said, each with its reply code: 4xx means later, 5xx never.',
    labels: { listener: LISTENER, code: 'the reply code', reason: 'the names in src/smtp/refusal.ts' },
  },
  postern_smtp_logins_total: {
    kind: 'counter',
    help: 'Logins of those who hand mail over.',
    labels: { result: 'ok, wrong, away (the store cannot be asked)' },
  },
  postern_messages_accepted_total: {
    kind: 'counter',
    help: 'Inbound messages that we took responsibility for.',
    labels: { source: 'smtp, api' },
  },
  postern_message_bytes: {
    kind: 'histogram',
    help: 'Sizes of the messages that were taken, in bytes.',
    labels: { direction: 'inbound, outbound' },
    buckets: BYTES,
  },
  postern_message_parse_seconds: {
    kind: 'histogram',
    help: 'Time that parsing an inbound message took, in seconds, for each attempt.',
    buckets: SHORT,
    threads: {},
  },
  postern_message_parse_failures_total: {
    kind: 'counter',
    help: 'Inbound messages that could not be parsed and went out raw, for each attempt.',
  },
  postern_authentication_results_total: {
    kind: 'counter',
    help: 'Verdicts on inbound messages.',
    labels: { method: 'spf, dkim, dmarc, arc', result: 'the words of RFC 8601; other for any else' },
  },

  // the queue
  postern_spool_deliveries: {
    kind: 'gauge',
    help: 'Deliveries on the queue of this host. All but those that wait are counted from time to time when there are very many.',
    labels: { state: 'waiting, delivered, dead, dropped' },
  },
  postern_spool_waiting: {
    kind: 'gauge',
    help: 'Deliveries that wait, by where they go.',
    labels: { endpoint: ENDPOINT },
  },
  postern_spool_oldest_waiting_seconds: {
    kind: 'gauge',
    help: 'How long the oldest delivery has waited since it was accepted, was to go, or was replayed; 0 when none waits.',
  },
  postern_spool_accepts_mail: {
    kind: 'gauge',
    help: '1 while new mail may come; 0 when the disk is nearly full or the queue cannot be written.',
  },
  postern_spool_disk_free_bytes: { kind: 'gauge', help: 'Free bytes on the disk of the queue.' },
  postern_spool_disk_bytes: { kind: 'gauge', help: 'Size of the disk of the queue in bytes.' },
  postern_spool_commit_seconds: {
    kind: 'histogram',
    help: 'Time that a commit of the queue took with its sync, in seconds.',
    buckets: SHORT,
  },
  postern_spool_commit_writes: { kind: 'histogram', help: 'Writes that shared a commit.', buckets: FEW },
  postern_spool_commit_messages: {
    kind: 'histogram',
    help: 'New messages that shared a commit, for commits that had any.',
    buckets: FEW,
  },

  // deliveries
  postern_attempts_total: {
    kind: 'counter',
    help: 'Attempts, by what became of them and how they were answered.',
    labels: {
      class: CLASS,
      outcome: 'delivered, deferred, failed',
      code: '2xx, 3xx, 4xx, 5xx, other, none (no answer)',
    },
  },
  postern_attempt_seconds: {
    kind: 'histogram',
    help: 'Time from the start of an attempt to its answer, in seconds.',
    labels: { class: CLASS },
    buckets: SECONDS,
  },
  postern_attempts_in_flight: {
    kind: 'gauge',
    help: 'Attempts that wait for an answer.',
    labels: { endpoint: ENDPOINT },
  },
  postern_dead_letters_total: {
    kind: 'counter',
    help: 'Deliveries that were given up. For mail these are bounces and what could not be sent in time.',
    labels: { class: CLASS },
  },
  postern_endpoints: {
    kind: 'gauge',
    help: 'Endpoints that have work, or had some of late, by their breaker: half_open while a probe is under way, paused after a 410.',
    labels: { endpoint: ENDPOINT, state: 'closed, open, half_open, paused' },
  },

  // mail going out
  postern_submissions_total: {
    kind: 'counter',
    help: 'Messages that accounts handed over to be sent and that we took responsibility for.',
    labels: { source: 'smtp, api' },
  },
  postern_submission_recipients_total: {
    kind: 'counter',
    help: 'Recipients of those messages, by what was answered.',
    labels: { status: 'queued, scheduled, rejected, invalid' },
  },
  postern_sending_results_total: {
    kind: 'counter',
    help: 'What became of mail at each attempt to send it, and of what was ended without one.',
    labels: { result: 'send, deferral, hard_bounce, soft_bounce, reject' },
  },

  // name servers
  postern_dns_questions_total: {
    kind: 'counter',
    help: 'Questions that name servers were asked; what was remembered is not among them.',
    labels: {
      type: 'the type of the record',
      result: 'answered, nxdomain, timeout, servfail, refused, malformed, unreachable',
    },
    threads: {
      type: ['A', 'AAAA', 'MX', 'TXT', 'CNAME', 'PTR', 'NS'],
      result: ['answered', 'nxdomain', 'timeout', 'servfail', 'refused', 'malformed', 'unreachable'],
    },
  },
  postern_dns_seconds: {
    kind: 'histogram',
    help: 'Time until a question was answered or given up, in seconds.',
    buckets: SECONDS,
    threads: {},
  },

  // the store
  postern_store_operation_seconds: {
    kind: 'histogram',
    help: 'Time that an operation of the store took, in seconds.',
    labels: { operation: 'one, many, insert, change, add, remove, ping' },
    buckets: SHORT,
  },
  postern_store_errors_total: {
    kind: 'counter',
    help: 'Operations of the store that failed.',
    labels: { operation: 'as above', reason: 'away (no answer), fault (any other)' },
  },
  postern_store_away: { kind: 'gauge', help: '1 while the last operation of the store found it away.' },

  // the API
  postern_api_calls_total: {
    kind: 'counter',
    help: 'Calls of the API.',
    labels: { operation: 'the path of the operation; unknown for all others', status: 'the HTTP status' },
  },
  postern_api_call_seconds: {
    kind: 'histogram',
    help: 'Time that a call took, in seconds.',
    labels: { group: 'the first part of the path' },
    buckets: SECONDS,
  },

  // tasks
  postern_task_runs_total: {
    kind: 'counter',
    help: 'Runs of tasks on this host.',
    labels: { task: 'the names of src/tasks', result: 'done, failed, skipped (the store is away)' },
  },
  postern_task_seconds: {
    kind: 'histogram',
    help: 'Time that a run took, in seconds.',
    labels: { task: 'the names of src/tasks' },
    buckets: [0.01, 0.1, 1, 10, 60, 600],
  },
  postern_task_last_success_timestamp_seconds: {
    kind: 'gauge',
    help: 'When a task last ran well on this host, seconds since 1970; with several hosts on one store, the greatest counts.',
    labels: { task: 'the names of src/tasks' },
  },

  // the process
  postern_log_lines_total: {
    kind: 'counter',
    help: 'Warnings and errors of the log, by event.',
    labels: { level: 'warn, error', event: 'the names in src/base/log.ts' },
  },
  postern_tls_certificate_not_after_timestamp_seconds: {
    kind: 'gauge',
    help: 'When the certificate in use expires, seconds since 1970.',
    labels: { listener: LISTENER },
  },
  postern_config_last_reload_success: {
    kind: 'gauge',
    help: '1 when the last reading of settings and certificates was taken over, the start included.',
  },
  postern_config_last_reload_success_timestamp_seconds: {
    kind: 'gauge',
    help: 'When settings and certificates were last taken over, seconds since 1970.',
  },
  postern_build_info: {
    kind: 'gauge',
    help: 'Always 1.',
    labels: { version: 'of Postern', node: 'of Node', store: 'embedded, mongodb' },
  },
  postern_scrape_missing: {
    kind: 'gauge',
    help: '1 for a metric that could not be read in time for this scrape.',
    labels: { metric: 'the names of this list' },
  },
} as const satisfies Record<`postern_${string}`, Declared>;

/** A metric as the list has it, whatever its name. */
export const DECLARED: readonly (readonly [name: string, declared: Declared])[] = Object.entries(METRICS);
