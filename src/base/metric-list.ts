/**
 * The declaration of a metric; its name is the key in `METRICS`. Its kind follows: a histogram has buckets, the name of
 * a counter ends in `_total`, all others are gauges.
 */
interface Declaration {
  /** One sentence, with the unit where the name has none. */
  readonly help: string;
  /** Each label, with the source of its values. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Upper bounds, ascending. */
  readonly buckets?: readonly number[];
  /** Set if threads count it too: all possible values of each label. */
  readonly threads?: Readonly<Record<string, readonly string[]>>;
}

const LISTENER = 'smtp, submission, submissions (implicit TLS)';
const CERTIFIED = 'own, policy (`mta-sts.` of an inbound domain), tracking';
// Placeholders, filled in docs/metrics.md from `KINDS` in src/queue/delivery.ts.
const CLASS = '{kinds}';
const ENDPOINT = '{endpoints}';

/** Milliseconds to half a minute, for posts and lookups. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** For disk and database operations. */
const SHORT = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
const BYTES = [1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];
const FEW = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/**
 * All metrics of Postern. Names and labels are stable: dashboards and alerts depend on them. The list is closed, and
 * docs/metrics.md is generated from it.
 */
export const METRICS = {
  // inbound mail
  postern_smtp_sessions_total: { help: 'SMTP sessions opened.', labels: { listener: LISTENER } },
  postern_smtp_sessions_active: { help: 'SMTP sessions open now.', labels: { listener: LISTENER } },
  postern_smtp_tls_sessions_total: {
    help: 'SMTP sessions encrypted with TLS.',
    labels: { listener: LISTENER, version: 'TLSv1.2, TLSv1.3, other' },
  },
  postern_smtp_refusals_total: {
    help: 'SMTP refusals sent, by reply code: 4xx is temporary, 5xx permanent.',
    labels: { listener: LISTENER, code: 'the reply code', reason: 'the names in src/smtp/replies.ts, in snake_case' },
  },
  postern_smtp_threads_died_total: { help: 'SMTP session threads that died and were replaced.' },
  postern_smtp_logins_total: {
    help: 'SMTP logins for submission.',
    labels: { result: 'ok, wrong, away (the store is unavailable)' },
  },
  postern_messages_accepted_total: { help: 'Inbound messages accepted.', labels: { source: 'smtp, api' } },
  postern_loops_total: {
    help: 'Mail loops detected: pairs of an author and a recipient whose mail loop protection began to mark.',
  },
  postern_accept_delay_seconds: {
    help: 'Back pressure: delay of replies to accepted inbound messages, in seconds; only delayed replies are counted.',
    buckets: SECONDS,
  },
  postern_message_bytes: {
    help: 'Size of accepted messages in bytes.',
    labels: { direction: 'inbound, outbound' },
    buckets: BYTES,
  },
  postern_message_parse_seconds: {
    help: 'Time taken to parse an inbound message, per attempt, in seconds.',
    buckets: SHORT,
    threads: {},
  },
  postern_message_parse_failures_total: {
    help: 'Inbound messages that could not be parsed and were delivered raw, per attempt.',
  },
  postern_authentication_results_total: {
    help: 'Authentication results of inbound messages.',
    labels: { method: 'spf, dkim, dmarc, arc', result: 'the result names of RFC 8601, or other' },
  },

  // scanners
  postern_scans_total: {
    help: 'Inbound messages scanned, by scanner and result.',
    labels: {
      scanner: 'rspamd, spamd, clamd, milter-1 and so on',
      result: 'ham, spam, clean, infected, skipped, deferred, error (no usable answer)',
    },
  },
  postern_scan_seconds: {
    help: 'Time until a scanner answered, in seconds.',
    labels: { scanner: 'as above' },
    buckets: SECONDS,
  },
  postern_scanner_away: {
    help: '1 while a scanner does not answer and deliveries wait for it.',
    labels: { scanner: 'as above' },
  },

  // the journal
  postern_journal_lost_total: {
    help: 'Entries that the history lost because they came faster than they could be written, or the disk failed.',
  },

  // copies of inbound mail
  postern_copies_total: {
    help: 'Accepted mail by when its copy was made (queue.copies), and mail refused because it could not be copied.',
    labels: { result: 'delivered (before its 250), copied, without (a copy is made later), refused (451)' },
  },
  postern_copies_missing: { help: 'Messages in the queue whose copy in the store is still to be written.' },

  // the other hosts of the store
  postern_hosts_lost: {
    help:
      'Hosts that were not stopped and have been silent for hosts.adopt_after_s (60 s if that is 0), ' +
      'as seen by this host.',
  },
  postern_hosts_adopted_total: { help: 'Lost hosts whose mail this host has taken over automatically.' },

  // the queue
  postern_spool_deliveries: {
    help:
      'Deliveries in the queue of this host. In a very large queue, states other than waiting are recounted less ' +
      'often.',
    labels: { state: 'waiting, delivered, dead, dropped, held' },
  },
  postern_spool_waiting: { help: 'Deliveries waiting, by type of endpoint.', labels: { endpoint: ENDPOINT } },
  postern_spool_waiting_in_order: {
    help: 'Deliveries that wait behind an earlier one of the same sender or conversation (`order` of a route).',
  },
  postern_spool_oldest_waiting_seconds: {
    help:
      'Age of the oldest waiting delivery since it was accepted, scheduled or replayed, in seconds; 0 when none ' +
      'is waiting.',
  },
  postern_spool_accepts_mail: {
    help: '1 while new mail is accepted; 0 when the disk is nearly full or the queue cannot be written.',
  },
  postern_spool_disk_free_bytes: { help: 'Free space on the disk that holds the queue, in bytes.' },
  postern_spool_disk_bytes: { help: 'Size of the disk that holds the queue, in bytes.' },
  postern_spool_commit_seconds: {
    help: 'Time taken by a commit of the queue, including its fsync, in seconds.',
    buckets: SHORT,
  },
  postern_spool_commit_writes: { help: 'Writes per commit.', buckets: FEW },
  postern_spool_commit_messages: { help: 'New messages per commit, for commits with at least one.', buckets: FEW },

  // deliveries
  postern_attempts_total: {
    help: 'Delivery attempts, by outcome and response code. A POST of several messages counts once for each.',
    labels: {
      class: CLASS,
      outcome: 'delivered, deferred, failed',
      code: '2xx, 3xx, 4xx, 5xx, other, none (no response)',
    },
  },
  postern_attempt_seconds: {
    help:
      'Time from the start of a delivery attempt to its response, in seconds. A POST of several messages counts ' +
      'once.',
    labels: { class: CLASS },
    buckets: SECONDS,
  },
  postern_batched_deliveries_total: { help: 'Deliveries attempted in one POST with others (batch_events of a route).' },
  postern_attempts_in_flight: { help: 'Delivery attempts in progress.', labels: { endpoint: ENDPOINT } },
  postern_dead_letters_total: {
    help: 'Deliveries that became dead letters. For outbound mail: bounces and messages that expired.',
    labels: { class: CLASS },
  },
  postern_deliveries_behind: {
    help: 'Inbound deliveries that are waiting for Postern to prepare them, not for an endpoint.',
  },
  postern_endpoint_places: {
    help:
      'Maximum concurrent attempts, summed over the endpoints with recent work; the limit of each adapts to its ' +
      'capacity.',
    labels: { endpoint: ENDPOINT },
  },
  postern_endpoints: {
    help: 'Endpoints with recent work, by state of the circuit breaker: half_open during a probe, paused after a 410.',
    labels: { endpoint: ENDPOINT, state: 'closed, open, half_open, paused' },
  },

  // outbound mail
  postern_submissions_total: { help: 'Outbound messages accepted from accounts.', labels: { source: 'smtp, api' } },
  postern_submission_recipients_total: {
    help: 'Recipients of submitted messages, by the status returned.',
    labels: { status: 'queued, scheduled, rejected, invalid' },
  },
  postern_sending_results_total: {
    help: 'Results of sending, per attempt, and of messages that ended without an attempt.',
    labels: { result: 'send, deferral, hard_bounce, soft_bounce, reject' },
  },

  // name servers
  postern_dns_questions_total: {
    help: 'DNS queries sent to name servers; answers from the cache are not counted.',
    labels: {
      type: 'the record type',
      result: 'answered, nxdomain, timeout, servfail, refused, malformed, unreachable',
    },
    threads: {
      type: ['A', 'AAAA', 'MX', 'TXT', 'CNAME', 'PTR', 'NS'],
      result: ['answered', 'nxdomain', 'timeout', 'servfail', 'refused', 'malformed', 'unreachable'],
    },
  },
  postern_dns_seconds: {
    help: 'Time until a DNS query was answered or abandoned, in seconds.',
    buckets: SECONDS,
    threads: {},
  },

  // the store
  postern_store_operation_seconds: {
    help: 'Time taken by a store operation, in seconds.',
    labels: { operation: 'one, many, insert, insertAll, change, add, remove, removeAll, ping' },
    buckets: SHORT,
  },
  postern_store_errors_total: {
    help: 'Store operations that failed.',
    labels: { operation: 'as above', reason: 'away (no response), fault (anything else)' },
  },
  postern_store_away: { help: '1 while the store is unavailable.' },

  // the API
  postern_api_calls_total: {
    help: 'API calls.',
    labels: { operation: 'the path of the operation, or unknown', status: 'the HTTP status' },
  },
  postern_api_call_seconds: {
    help: 'Time taken by an API call, in seconds.',
    labels: { group: 'the first part of the path' },
    buckets: SECONDS,
  },

  postern_peer_calls_total: {
    help: 'Calls to other hosts of the store.',
    labels: { result: 'answered, or silent: the host did not answer' },
  },

  // tasks
  postern_task_runs_total: {
    help: 'Task runs on this host.',
    labels: { task: 'the names of src/tasks', result: 'done, failed, skipped (the store is unavailable)' },
  },
  postern_task_seconds: {
    help: 'Time taken by a task run, in seconds.',
    labels: { task: 'the names of src/tasks' },
    buckets: [0.01, 0.1, 1, 10, 60, 600],
  },
  postern_task_last_success_timestamp_seconds: {
    help:
      'Time of the last successful run of a task on this host, in seconds since 1970. With several hosts on one ' +
      'store, use the maximum.',
    labels: { task: 'the names of src/tasks' },
  },

  // the process
  postern_log_lines_total: {
    help: 'Warnings and errors logged, by event.',
    labels: { level: 'warn, error', event: 'the names in src/base/log.ts' },
  },
  postern_tls_certificate_not_after_timestamp_seconds: {
    help: 'Expiry of the TLS certificate in use, in seconds since 1970.',
    labels: { listener: LISTENER },
  },
  postern_tls_certificate_covers_hostname: {
    help:
      '1 if the names of the TLS certificate in use cover `hostname`, else 0: senders that verify it then do not ' +
      'deliver.',
  },
  postern_acme_certificates: {
    help: 'Names for which Postern gets certificates by ACME, by whether they have a valid one.',
    labels: { kind: CERTIFIED, state: 'valid, missing' },
  },
  postern_acme_certificate_not_after_timestamp_seconds: {
    help: 'The earliest expiry of the certificates from ACME, in seconds since 1970.',
    labels: { kind: CERTIFIED },
  },
  postern_acme_failures_total: {
    help: 'Certificate orders that failed on this host.',
    labels: { kind: CERTIFIED },
  },
  postern_config_last_reload_success: {
    help: '1 if the last load of settings and certificates succeeded, including at startup.',
  },
  postern_config_last_reload_success_timestamp_seconds: {
    help: 'Time of the last successful load of settings and certificates, in seconds since 1970.',
  },
  postern_build_info: {
    help: 'Always 1.',
    labels: { version: 'of Postern', node: 'of Node', store: 'embedded, mongodb' },
  },
  postern_scrape_missing: {
    help: '1 for each metric that could not be read in time for this scrape.',
    labels: { metric: 'the names of this list' },
  },
} as const satisfies Record<`postern_${string}`, Declaration>;

export interface MetricDeclaration extends Declaration {
  readonly kind: 'counter' | 'gauge' | 'histogram';
}

/** All metrics, typed without their names. */
export const DECLARED: readonly (readonly [name: string, declared: MetricDeclaration])[] = Object.entries<Declaration>(
  METRICS,
).map(([name, declared]) => [name, { kind: kindOf(name, declared), ...declared }]);

function kindOf(name: string, { buckets }: Declaration): MetricDeclaration['kind'] {
  if (buckets) return 'histogram';
  return name.endsWith('_total') ? 'counter' : 'gauge';
}
