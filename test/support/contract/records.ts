import type { Shape, Struct } from './types.ts';

// The records, field by field, as "Resources and their fields" of the documented interface has them. What may be null
// is what the document says may be absent ("if provided", "if set", "if published", "or null"), and what the public
// ancestor answers with null there.

const ten = {
  sent: 'integer',
  hard_bounces: 'integer',
  soft_bounces: 'integer',
  rejects: 'integer',
  complaints: 'integer',
  unsubs: 'integer',
  opens: 'integer',
  unique_opens: 'integer',
  clicks: 'integer',
  unique_clicks: 'integer',
} as const;
const eight = {
  sent: 'integer',
  hard_bounces: 'integer',
  soft_bounces: 'integer',
  rejects: 'integer',
  complaints: 'integer',
  unsubs: 'integer',
  opens: 'integer',
  clicks: 'integer',
} as const;

/** Ten counters. */
export const statsBlock: Struct = { struct: ten };
const windows: Struct = {
  struct: {
    today: statsBlock,
    last_7_days: statsBlock,
    last_30_days: statsBlock,
    last_60_days: statsBlock,
    last_90_days: statsBlock,
  },
};

export const template: Struct = {
  struct: {
    slug: 'string',
    name: 'string',
    labels: { array: 'string' },
    code: 'string or null',
    subject: 'string or null',
    from_email: 'string or null',
    from_name: 'string or null',
    text: 'string or null',
    publish_name: 'string',
    publish_code: 'string or null',
    publish_subject: 'string or null',
    publish_from_email: 'string or null',
    publish_from_name: 'string or null',
    publish_text: 'string or null',
    published_at: 'time or null',
    created_at: 'time',
    updated_at: 'time',
  },
};

export const hour: Struct = {
  struct: {
    time: 'time',
    sent: 'integer',
    hard_bounces: 'integer',
    soft_bounces: 'integer',
    rejects: 'integer',
    complaints: 'integer',
    opens: 'integer',
    unique_opens: 'integer',
    clicks: 'integer',
    unique_clicks: 'integer',
  },
};

export const tagHour: Struct = { struct: { ...hour.struct, unsubs: 'integer' } };
export const tagHourOfAll: Struct = { ...tagHour, beyond: { tag: 'Mandrill says whose hour it is' } };

export const exportJob: Struct = {
  struct: {
    id: 'string',
    created_at: 'time',
    type: { oneOf: ['activity', 'reject', 'whitelist'] },
    finished_at: 'time or null',
    state: { oneOf: ['waiting', 'working', 'complete', 'error', 'expired'] },
    result_url: 'string or null',
  },
  beyond: { error: 'why a job failed' },
};

export const whitelistEntry: Struct = { struct: { email: 'string', detail: 'string or null', created_at: 'time' } };

export const sender: Struct = { struct: { address: 'string', created_at: 'time', ...ten } };

export const rejectEntry: Struct = {
  struct: {
    email: 'string',
    reason: { oneOf: ['hard-bounce', 'soft-bounce', 'spam', 'unsub', 'custom'] },
    detail: 'string or null',
    created_at: 'time',
    last_event_at: 'time',
    expires_at: 'time or null',
    expired: 'boolean',
    sender: { ...sender, orNull: true },
    subaccount: 'string or null',
  },
  beyond: { message_id: 'the message that caused it' },
};

export const ip: Struct = {
  struct: {
    ip: 'string',
    created_at: 'time',
    pool: 'string',
    domain: 'string',
    custom_dns: { struct: { enabled: 'boolean', valid: 'boolean', error: 'string or null' } },
    warmup: { struct: { warming_up: 'boolean', start_at: 'time or null', end_at: 'time or null' } },
  },
};

export const pool: Struct = { struct: { name: 'string', created_at: 'time', ips: { array: ip } } };

export const senderDetail: Struct = { struct: { address: 'string', created_at: 'time', ...eight, stats: windows } };

const dnsCheck: Shape = { struct: { valid: 'boolean', valid_after: 'time or null', error: 'string or null' } };

export const senderDomain: Struct = {
  struct: {
    domain: 'string',
    created_at: 'time',
    last_tested_at: 'time or null',
    spf: dnsCheck,
    dkim: dnsCheck,
    verified_at: 'time or null',
    valid_signing: 'boolean',
  },
};

export const tag: Struct = { struct: { tag: 'string', reputation: 'percent', ...ten } };

export const tagDetail: Struct = { struct: { tag: 'string', ...eight, stats: windows } };

export const subaccount: Struct = {
  struct: {
    id: 'string',
    name: 'string or null',
    custom_quota: 'integer or null',
    status: { oneOf: ['active', 'paused'] },
    reputation: 'percent',
    created_at: 'time',
    first_sent_at: 'time or null',
    sent_weekly: 'integer',
    sent_monthly: 'integer',
    sent_total: 'integer',
  },
};

export const subaccountDetail: Struct = {
  struct: {
    ...subaccount.struct,
    notes: 'string',
    sent_hourly: 'integer',
    hourly_quota: 'integer',
    last_30_days: statsBlock,
  },
};

export const HOOK_EVENTS = [
  'send',
  'hard_bounce',
  'soft_bounce',
  'open',
  'click',
  'spam',
  'unsub',
  'reject',
  'blacklist',
  'whitelist',
] as const;

export const webhook: Struct = {
  struct: {
    id: 'integer',
    url: 'string',
    description: 'string or null',
    auth_key: 'string',
    events: { array: { oneOf: HOOK_EVENTS } },
    created_at: 'time',
    last_sent_at: 'time or null',
    batches_sent: 'integer',
    events_sent: 'integer',
    last_error: 'string or null',
  },
};

export const inboundDomain: Struct = {
  struct: { domain: 'string', created_at: 'time', valid_mx: 'boolean' },
  beyond: {
    routed: 'whether its proof is awaited',
    verified_at: 'when the proof was seen',
    txt_name: 'where the proof belongs',
    txt_value: 'what the proof is',
    mx_hosts: 'what an MX record must name',
    mx_error: 'what it names instead',
    tested_at: 'when that was looked up',
  },
};

export const inboundRoute: Struct = {
  struct: { id: 'string', pattern: 'string', url: 'string' },
  beyond: {
    batch_events: 'how many messages may share a POST',
    format: 'the form of its posts',
    raw: 'whether the raw message is in them',
    attachments: 'how attachments reach the receiver',
    link_over: 'the size of those that are never links',
    facts: 'whether they say what a person sees',
    has_password: 'whether they carry a password',
    order: 'which of its mail goes out one after another',
    action: 'what it does with mail',
    when: 'which mail it takes',
    tags: 'what it says of mail',
    priority: 'its position among the routes',
    also: 'further URLs',
  },
};
