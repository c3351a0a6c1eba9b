// The records of the operations that the page calls, as docs/api.md describes them. Times are texts in UTC.

export type MailState = 'waiting' | 'delivered' | 'dead' | 'dropped' | 'held' | 'unknown';

/** A message for one recipient: /inbound/search. */
export interface Mail {
  readonly id: string;
  readonly message_id: string;
  readonly at: string;
  readonly sender: string | null;
  readonly from: string | null;
  readonly to: string;
  readonly subject: string | null;
  readonly thread: string | null;
  readonly size: number;
  readonly route: string;
  readonly pattern: string;
  readonly url: string;
  readonly state: MailState;
  readonly attempts: number;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly ended_at: string | null;
  readonly spf: string | null;
  readonly dkim: string | null;
  readonly dmarc: string | null;
  readonly client: string | null;
  readonly helo: string | null;
  readonly tls: string | null;
  /** Whether its content is still on the queue. */
  readonly kept: boolean;
}

/** /inbound/conversation. */
export interface Conversation {
  readonly mails: readonly {
    readonly way: 'in' | 'out';
    readonly id: string;
    readonly at: string;
    readonly from: string | null;
    readonly to: string;
    readonly subject: string | null;
  }[];
  readonly more: boolean;
}

/** /inbound/causes: mail that a search finds, by endpoint and last answer. */
export interface Causes {
  readonly count: number;
  readonly causes: readonly Cause[];
}

export interface Cause {
  readonly url: string;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly count: number;
  readonly oldest_at: string;
  readonly first_ended_at: string | null;
}

/** Something that happened to a message. */
export interface TimelineEntry {
  readonly at: string;
  /** Milliseconds since it was accepted. */
  readonly after_ms: number;
  readonly kind: string;
  readonly text: string;
  readonly detail: string | null;
}

/** /inbound/info. */
export interface MailStory extends Mail {
  /** Why it is not delivered yet; null if it has ended. */
  readonly waits: { readonly kind: string; readonly text: string } | null;
  readonly timeline: readonly TimelineEntry[];
  /** What the queue has of it; empty if it has deleted it. */
  readonly deliveries: readonly {
    readonly next_attempt_at: string | null;
    readonly attempts: readonly Attempt[];
    /** Null if it was not scanned, or not yet. */
    readonly scan: Scan | null;
  }[];
}

/** What scanners said of a message. */
export interface Scan {
  readonly spam: 'ham' | 'spam' | 'unknown';
  readonly virus: 'clean' | 'infected' | 'unknown';
  readonly name: string | null;
  readonly score: number | null;
  readonly by: readonly string[];
  readonly reason: string | null;
}

export interface Attempt {
  readonly time: string;
  readonly detail: AttemptDetail | null;
}

export interface Header {
  readonly name: string;
  readonly value: string;
}

export interface AttemptDetail {
  readonly address: string | null;
  readonly tls: string | null;
  /** Whether the connection was open before. */
  readonly reused: boolean;
  readonly dns_ms: number | null;
  readonly connect_ms: number | null;
  readonly tls_ms: number | null;
  readonly first_byte_ms: number | null;
  readonly request_headers: readonly Header[];
  readonly response_headers: readonly Header[];
  readonly headers_left_out: number;
}

/** /inbound/content. */
export interface Content {
  readonly headers: readonly Header[];
  readonly parts: readonly Part[];
  readonly text: string | null;
  readonly truncated: boolean;
  readonly has_html: boolean;
  readonly facts: MessageFacts | null;
  readonly raw_bytes: number;
  readonly automated: { readonly is: boolean; readonly why: string | null };
  readonly parse_error: string | null;
}

/** What a person does not see of a message. */
export interface MessageFacts {
  readonly hidden: readonly { readonly why: string; readonly text: string }[];
  readonly invisible: readonly {
    readonly kind: string;
    readonly where: string;
    readonly at: number;
    readonly length: number;
    readonly text?: string;
  }[];
  readonly links: readonly { readonly text: string; readonly text_host: string | null; readonly host: string }[];
  readonly counts: { readonly hidden: number; readonly invisible: number; readonly links: number };
}

export interface Part {
  readonly n: number;
  readonly path: string;
  readonly type: string;
  readonly name: string | null;
  readonly size: number;
  readonly disposition: string | null;
}

/** A refused command or session: /inbound/refusals. */
export interface Refusal {
  readonly at: string;
  readonly stage: string;
  readonly reply: string;
  readonly reason: string;
  readonly advice: string;
  readonly client: string;
  readonly helo: string | null;
  readonly tls: string | null;
  readonly sender: string | null;
  readonly recipient: string | null;
  readonly times: number;
}

/** Where mail is posted to: /endpoints/list. */
export interface Endpoint {
  readonly url: string;
  readonly kind: 'inbound' | 'events';
  readonly routes: readonly string[];
  readonly webhooks: readonly number[];
  readonly breaker: 'up' | 'down' | 'gone';
  readonly since: string | null;
  readonly next_probe_at: string | null;
  readonly paused: boolean;
  readonly paused_by: 'account' | 'operator' | null;
  readonly paused_until: string | null;
  readonly waiting: number;
  readonly oldest_at: string | null;
  readonly in_flight: number;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly last_at: string | null;
}

export interface Figures {
  readonly attempts: number;
  readonly ok: number;
  readonly failed: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
}

/** /endpoints/info. */
export interface EndpointDetail extends Endpoint {
  readonly hour: Figures;
  readonly day: Figures;
  readonly strip: readonly {
    readonly at: string;
    readonly status: number | null;
    readonly ms: number;
    readonly error: string | null;
  }[];
  readonly answers: readonly {
    readonly status: number | null;
    readonly error: string | null;
    readonly text: string;
    readonly count: number;
    readonly last_at: string;
    readonly example_id: string;
  }[];
  readonly most_in_flight: number | null;
  readonly sampled: boolean;
  readonly making: readonly {
    readonly id: string;
    readonly since: string;
    readonly waits_for: 'preparing' | 'verdicts' | 'parsing' | 'place';
    readonly question: string | null;
  }[];
}

/** /inbound/domains. */
export interface InboundDomain {
  readonly domain: string;
  readonly created_at: string;
  readonly valid_mx: boolean;
  /** Whether mail to it is accepted; if not, the TXT record must be published first. */
  readonly routed: boolean;
  readonly verified_at: string | null;
  readonly txt_name: string;
  readonly txt_value: string;
  readonly mx_hosts: readonly string[];
  readonly mx_error: string | null;
  readonly tested_at: string | null;
}

/** /inbound/domain-servers: what each name server of a domain says. */
export interface DomainServers {
  readonly domain: string;
  readonly asked_at: string;
  readonly next_test_at: string | null;
  readonly records: readonly DomainRecord[];
}

export interface DomainRecord {
  readonly type: 'MX' | 'TXT';
  readonly name: string;
  readonly expected: readonly string[];
  readonly since: string | null;
  readonly zone: string | null;
  readonly error: string | null;
  readonly servers: readonly DomainServer[];
  readonly left_out: number;
}

export interface DomainServer {
  readonly server: string;
  readonly address: string | null;
  readonly state: 'ok' | 'differs' | 'missing' | 'failed' | 'not_asked';
  readonly says: readonly string[];
  readonly reason: string | null;
}

/** /inbound/routes. */
export interface InboundRoute {
  readonly id: string;
  readonly pattern: string;
  readonly url: string;
  readonly batch_events: number;
  readonly order: string;
  readonly format: string;
  readonly attachments: string;
  readonly facts: boolean;
  readonly has_password: boolean;
  readonly action: 'post' | 'tag' | 'hold' | 'discard' | 'reject';
  readonly when: Readonly<Record<string, unknown>>;
  readonly tags: readonly string[];
  readonly priority: number;
  readonly also: readonly { readonly url: string; readonly format: string }[];
}

/** /inbound/test-route. */
export interface RouteTest {
  readonly email: string;
  readonly route: InboundRoute | null;
  readonly routes: readonly (InboundRoute & {
    readonly result: 'hit' | 'tags' | 'conditions' | 'depends' | 'less specific' | 'no match';
    readonly why: string;
  })[];
  readonly payload: unknown;
  readonly content_type: string | null;
}

/** /rejects/list. */
export interface RejectEntry {
  readonly email: string;
  readonly reason: 'hard-bounce' | 'soft-bounce' | 'spam' | 'unsub' | 'custom';
  readonly detail: string | null;
  readonly created_at: string;
  readonly last_event_at: string;
  readonly expires_at: string | null;
  readonly expired: boolean;
  readonly subaccount: string | null;
  readonly message_id: string | null;
}

/** /whitelists/list. */
export interface WhitelistEntry {
  readonly email: string;
  readonly detail: string | null;
  readonly created_at: string;
}

export type SentState = 'queued' | 'sent' | 'deferred' | 'bounced' | 'soft-bounced' | 'rejected' | 'spam' | 'unsub';

/** A message to one recipient: /messages/search. Times are seconds since 1970. */
export interface SentMessage {
  readonly ts: number;
  readonly _id: string;
  readonly sender: string;
  readonly template: string | null;
  readonly subject: string;
  readonly email: string;
  readonly tags: readonly string[];
  readonly opens: number;
  readonly opens_detail: readonly Visit[];
  readonly clicks: number;
  readonly clicks_detail: readonly (Visit & { readonly url: string })[];
  readonly state: SentState;
  readonly subaccount: string | null;
  readonly diag: string | null;
  readonly bounce_description: string | null;
}

export interface Visit {
  readonly ts: number;
  readonly ip: string | null;
  readonly ua: string | null;
}

/** /messages/info. */
export interface SentStory extends SentMessage {
  readonly thread: string;
  readonly smtp_events: readonly {
    readonly ts: number;
    readonly type: string;
    readonly diag: string;
    readonly destination_ip: string | null;
    readonly destination: string | null;
  }[];
  /** What the queue has of it; null if it has deleted it, or is that of another host. */
  readonly delivery: {
    readonly state: 'waiting' | 'delivered' | 'dead' | 'dropped';
    readonly next_attempt_at: string | null;
    readonly attempts: readonly MailAttempt[];
  } | null;
}

export interface MailAttempt {
  readonly time: string;
  readonly duration_ms: number;
  readonly status: number | null;
  readonly error: string | null;
  readonly answer: string;
  readonly connections: readonly Connection[];
  readonly connections_left_out: number;
}

export interface Connection {
  readonly host: string;
  readonly address: string;
  readonly source_ip: string | null;
  readonly tls: string | null;
  readonly reused: boolean;
  readonly duration_ms: number;
  readonly error: string | null;
  readonly dialog: readonly string[];
}

/** /messages/content. */
export interface SentContent {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly text: string | null;
  readonly html: string | null;
  readonly attachments: readonly { readonly name: string; readonly type: string; readonly content: string }[];
}

/** /messages/list-scheduled. */
export interface Scheduled {
  readonly _id: string;
  readonly send_at: string;
}

/** /keys/list. */
export interface ApiKey {
  readonly id: string;
  readonly starts_with: string;
  readonly label: string;
  readonly created_at: string;
  readonly last_used_at: string | null;
}

/** /actions/list. */
export interface Action {
  readonly at: string;
  readonly by: string;
  readonly what: string;
  readonly count: number;
  readonly detail: string;
}

/** How much the account sent, by window: /users/info. */
export interface AccountNumbers {
  readonly stats: Readonly<Record<string, Readonly<Record<string, number>>>>;
}
