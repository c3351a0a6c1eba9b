import { z } from 'zod';
import { messageIdOf } from '../../base/ids.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import {
  faultText,
  MAIL_FIELDS,
  type Parsed,
  parseMailQuery,
  parseRefusalQuery,
  REFUSAL_FIELDS,
} from '../../journal/query-language.ts';
import { TIMELINE_KINDS, type TimelineEntry, toTimeline } from '../../journal/timeline.ts';
import { MAIL_STATES, type MailRecord, type RefusalRecord } from '../../journal/types.ts';
import { STATE_MEANINGS } from '../../queue/states.ts';
import { WAIT_KINDS } from '../../queue/wait-reason.ts';
import { askAll, cursoredPage, duplicates, joinPages, localCursor } from '../hosts/join-hosts.ts';
import { type Call, operation } from '../operation.ts';
import { deliveryRecord, toDeliveryRecord } from './deliveries.ts';
import {
  ALL_HOSTS,
  bool,
  cursorOfHosts,
  earlier,
  int,
  intOrNull,
  later,
  limitOf,
  listOf,
  nextOfHosts,
  record,
  str,
  strOrNull,
  time,
  timeOrNull,
  toTime,
} from './fields.ts';

// The history of inbound mail and of refusals, which lasts longer than the mail in the queue.

export const mailRecord = record('mail record', {
  id: str('id of the delivery: one message for one recipient'),
  message_id: str('the message, as in the reply `250 2.0.0 OK: queued as …`; several recipients share one'),
  at: time('when it was accepted'),
  sender: strOrNull('the envelope sender; empty for a bounce, null if unknown'),
  from: strOrNull('the From header; null if it has none, or if headers are not kept (journal.subjects)'),
  to: str('the recipient'),
  subject: strOrNull('the Subject, at most 200 characters; empty if it has none, null if not kept'),
  thread: strOrNull(
    'id of its conversation, the same as `msg.thread` in its payload; null if it has none, or if not kept',
  ),
  size: int('bytes'),
  route: str('id of the route'),
  pattern: str('pattern of the route when the mail was accepted'),
  url: str('the URL of the route when the mail was accepted'),
  state: z.enum(MAIL_STATES).describe(`${STATE_MEANINGS}; unknown: no longer in the queue, outcome not recorded`),
  attempts: int('number of POSTs, including replays'),
  last_status: intOrNull('HTTP status of the last POST'),
  last_error: strOrNull('why the last POST got no response, or null'),
  ended_at: timeOrNull('when it became delivered, dead or dropped'),
  spf: strOrNull('result of SPF; null before the first POST'),
  dkim: strOrNull('pass, fail, or none without a signature'),
  dmarc: strOrNull('result of DMARC'),
  client: strOrNull('IP address of the client'),
  helo: strOrNull('the name in HELO or EHLO'),
  tls: strOrNull('TLS version of the session; null without TLS'),
  kept: bool('true if the queue still has the message, so that it can be replayed'),
});

export function toMailRecord(mail: MailRecord, kept: boolean) {
  const { id, sender, from, subject, thread, size, route, pattern, url, state, attempts, client, helo, tls } = mail;
  return {
    id,
    message_id: messageIdOf(id),
    at: toTime(mail.at),
    sender,
    from,
    to: mail.recipient,
    subject,
    thread,
    size,
    route,
    pattern,
    url,
    state,
    attempts,
    last_status: mail.lastStatus,
    last_error: mail.lastError,
    ended_at: toTime(mail.endedAt),
    spf: mail.spf,
    dkim: mail.dkim,
    dmarc: mail.dmarc,
    client,
    helo,
    tls,
    kept,
  };
}

/** Characters of a query. */
export const MAX_QUERY = 1000;

const range = {
  from: optionalTime.describe('at this time or later, UTC, YYYY-MM-DD HH:MM:SS'),
  to: optionalTime.describe('before this time, UTC, YYYY-MM-DD HH:MM:SS'),
};
const paging = { limit: limitOf(200, 50), before: cursorOfHosts };
const KEPT =
  'The history is kept for journal.keep_days (30 by default). An account can make four such calls at a time on each ' +
  'host.';

const mailQuery = optional(z.string().max(MAX_QUERY)).describe(
  'words and fields; matches all mail if omitted, empty or *',
);

const searching = {
  query: mailQuery,
  ...range,
  ...paging,
};
type Searching = z.output<z.ZodObject<typeof searching>>;

/** Parses a query. Throws a ValidationError. */
export function readQuery<F>(query: string, parse: (text: string, now: number) => Parsed<F>, call: Call<never>): F {
  const parsed = parse(query, call.now().getTime());
  if ('fault' in parsed) throw call.invalid('query', faultText(parsed.fault));
  return parsed.filter;
}

/** `isOwn`: without mail that another host has taken over and has in its own history. */
async function findMail({ query = '', from, to, limit, before }: Searching, isOwn: boolean, call: Call<never>) {
  const { since: after, before: until, ...filter } = readQuery(query, parseMailQuery, call);
  const times = { since: later(after, from?.getTime()), before: earlier(until, to?.getTime()) };
  const { rows, next } = await call.history.mail({ ...filter, ...times, isOwn }, limit, localCursor(before, call));
  const ids = rows.map(({ id }) => id);
  const queued = ids.length === 0 ? [] : await call.queue.deliveries({ ids }, ids.length);
  const kept = new Set(queued.map(({ id }) => id));
  return {
    rows: rows.map((mail) => ({ n: mail.n, at: mail.at, record: toMailRecord(mail, kept.has(mail.id)) })),
    next,
  };
}

async function searchHere(given: Searching, call: Call<never>) {
  const { rows, next } = await findMail(given, false, call);
  return { mails: rows.map(({ record }) => record), next };
}

const search = operation({
  path: '/inbound/search',
  access: 'mail',
  extension: true,
  summary: 'Finds inbound mail in the history, newest first, including mail whose content was deleted.',
  notes:
    'All words must occur, each anywhere in envelope sender, From, recipient, Subject or Message-ID; case is ' +
    `ignored. Fields: ${MAIL_FIELDS}. from: searches the sender and From, route: takes an id or a pattern, id: the ` +
    'id of a delivery or of a message, thread: the id of a conversation, status: takes 500, 5xx or none, after: and ' +
    'before: a time or an age, such as `after:2h`. Quote phrases: `subject:"order 4711"`. There are no wildcards, ' +
    `because each word matches parts of words. ${KEPT} ${ALL_HOSTS}`,
  params: searching,
  returns: z.object({ mails: z.array(mailRecord), next: nextOfHosts }),
  example: { query: 'from:sam@sender.example state:dead', limit: 10 },
  handle: searchHere,
  across: {
    part: cursoredPage(mailRecord),
    own: (given, call) => findMail(given, true, call),
    async join(hosts, given, call) {
      const { before, limit } = given;
      if (hosts.others.length === 0 && typeof before !== 'string') return searchHere(given, call);
      const { records, next } = await joinPages(hosts, { before, limit }, duplicates);
      return { mails: records, next };
    },
  },
});

/** Causes in an answer. */
const MAX_CAUSES = 100;

const causeRecord = record('cause record', {
  url: str('the URL of the route when the mail was accepted'),
  last_status: intOrNull('HTTP status of the last POST'),
  last_error: strOrNull('why the last POST got no response, or null'),
  count: int('number of deliveries'),
  oldest_at: time('when the oldest of them was accepted'),
  first_ended_at: timeOrNull('when the first of them became delivered, dead or dropped', 'null if none has'),
});

const causesFound = z.object({
  count: int('number of deliveries that match'),
  causes: listOf(causeRecord, 'the most frequent first'),
});

/** The causes of several hosts; times in this form are ordered as texts. */
function joinCauses(parts: readonly z.output<typeof causesFound>[]): z.output<typeof causesFound> {
  const joined = new Map<string, z.output<typeof causeRecord>>();
  for (const cause of parts.flatMap(({ causes }) => causes)) {
    const key = JSON.stringify([cause.url, cause.last_status, cause.last_error]);
    const known = joined.get(key);
    const ends = [known?.first_ended_at, cause.first_ended_at].filter((at) => typeof at === 'string').sort();
    joined.set(key, {
      ...cause,
      count: cause.count + (known?.count ?? 0),
      oldest_at: known && known.oldest_at < cause.oldest_at ? known.oldest_at : cause.oldest_at,
      first_ended_at: ends[0] ?? null,
    });
  }
  return {
    count: parts.reduce((sum, { count }) => sum + count, 0),
    causes: [...joined.values()].sort((a, b) => b.count - a.count).slice(0, MAX_CAUSES),
  };
}

const causes = operation({
  path: '/inbound/causes',
  access: 'mail',
  extension: true,
  summary: 'Counts the inbound mail found by a search, by endpoint and last response.',
  notes:
    `Takes the same queries as /inbound/search. Lists at most the ${MAX_CAUSES} most frequent causes; \`count\` ` +
    `includes all. ${KEPT} ${ALL_HOSTS}`,
  params: { query: mailQuery },
  returns: causesFound,
  example: { query: 'state:dead' },
  handle: (given, call) => countCauses(given, false, call),
  across: {
    own: (given, call) => countCauses(given, true, call),
    async join(hosts, given, call) {
      return hosts.others.length === 0 ? countCauses(given, false, call) : joinCauses(await askAll(hosts));
    },
  },
});

async function countCauses({ query = '' }: { readonly query?: string | undefined }, isOwn: boolean, call: Call<never>) {
  const found = await call.history.causes({ ...readQuery(query, parseMailQuery, call), isOwn });
  return {
    count: found.reduce((sum, { count }) => sum + count, 0),
    causes: found.slice(0, MAX_CAUSES).map(({ url, lastStatus, lastError, count, oldestAt, firstEnded }) => ({
      url,
      last_status: lastStatus,
      last_error: lastError,
      count,
      oldest_at: toTime(oldestAt),
      first_ended_at: toTime(firstEnded),
    })),
  };
}

export const timelineEntry = record('timeline entry', {
  at: time('when'),
  after_ms: int('milliseconds since the mail was accepted; negative before'),
  kind: z
    .enum(TIMELINE_KINDS)
    .describe(
      'session: the SMTP session started; refused: a command of its transaction was refused, or the number of ' +
        'other refusals in the session; preparing: it is being prepared; verdicts: SPF, DKIM and DMARC were ' +
        'checked; given_up: retries have ended; next_attempt: time of the next POST',
    ),
  text: str('the event in words'),
  detail: strOrNull('details, such as the start of a response or advice about a refusal'),
});

export function toTimelineRecords(entries: readonly TimelineEntry[], acceptedAt: number) {
  return entries.map(({ at, kind, text, detail }) => ({
    at: toTime(at),
    after_ms: Math.round(at - acceptedAt),
    kind,
    text,
    detail,
  }));
}

const info = operation({
  path: '/inbound/info',
  access: 'mail',
  extension: true,
  summary: 'Shows the history of one inbound delivery, from the SMTP session to the response of the webhook.',
  notes:
    'The session is shown once it has ended. Refusals in the transaction of the mail are listed; other refusals ' +
    `of the session are one entry. Recipients of other accounts are left out. ${KEPT}`,
  params: { id: text(255).describe('id of the delivery') },
  returns: mailRecord.extend({
    waits: z
      .object({
        kind: z
          .enum(WAIT_KINDS)
          .describe(
            'held: by its route or by loop protection; behind: an earlier message of its sender or conversation ' +
              'goes first; paused, gone, down: state of its endpoint; preparing: it is being prepared; scanner: ' +
              'waits for a scanner; pulled: waits for its consumer; parked, backoff: waits for the next attempt ' +
              'after a failure; scheduled: waits for its send time; due: goes out next',
          ),
        text: str('the reason as a sentence'),
      })
      .nullable()
      .describe('why it is not delivered yet; null if it has ended'),
    timeline: listOf(timelineEntry, 'the events, oldest first'),
    deliveries: listOf(deliveryRecord, 'the delivery with every attempt, while the queue has it; otherwise empty'),
  }),
  notHereError: 'Unknown_Message',
  example: { id: '01kcexamplemessage00000000-eKx7WvL3VyFo' },
  async handle({ id }, { history, queue, endpoints, refusals, orRefuse }) {
    const story = orRefuse(await history.one(id), 'Unknown_Message', id);
    const [delivery] = await queue.deliveries({ ids: [id] }, 1);
    const queued = delivery && {
      delivery,
      attempts: await queue.attempts(delivery),
      preparing: (await endpoints.preparing(delivery.url)).find((one) => one.id === id),
    };
    const entries = toTimeline(story, queued, refusals.adviceOf);
    return {
      ...toMailRecord(story.mail, queued !== undefined),
      waits: (queued && (await endpoints.waitReason(queued.delivery, queued.preparing))) ?? null,
      timeline: toTimelineRecords(entries, story.mail.at),
      deliveries: queued
        ? [toDeliveryRecord(queued.delivery, queued.attempts, await queue.scanOf(queued.delivery))]
        : [],
    };
  },
});

export const refusalRecord = record('refusal record', {
  at: time('when'),
  listener: str('the listener: smtp, submission or submissions'),
  stage: str('the refused command, such as RCPT; CONNECT for a rejected connection'),
  reply: str('the SMTP reply'),
  reason: str('name of the reason'),
  advice: str('the meaning, and what to do'),
  client: str('IP address of the client'),
  helo: strOrNull('the name in HELO or EHLO'),
  tls: strOrNull('TLS version of the session; null without TLS'),
  sender: strOrNull('the envelope sender; empty for a bounce, null before MAIL FROM'),
  recipient: strOrNull('the recipient; all recipients if the message was refused'),
  times: int(
    'number of refusals in this record: beyond 60 a minute, refusals of a client network with the same ' +
      'reason share one record',
  ),
});

export function toRefusalRecord(refusal: RefusalRecord, adviceOf: (reason: string) => string) {
  const { at, listener, stage, reply, reason, client, helo, tls, sender, recipient, times } = refusal;
  const advice = adviceOf(reason);
  return { at: toTime(at), listener, stage, reply, reason, advice, client, helo, tls, sender, recipient, times };
}

const searchingRefusals = {
  query: optional(z.string().max(MAX_QUERY)).describe('words and fields; matches all refusals if omitted, empty or *'),
  reason: optional(text(100)).describe('only refusals with this reason'),
  domain: optional(text(255)).describe('only refusals for recipients in this domain'),
  ...range,
  ...paging,
};
type SearchingRefusals = z.output<z.ZodObject<typeof searchingRefusals>>;

async function findRefusals(
  { query = '', reason, domain, from, to, limit, before }: SearchingRefusals,
  call: Call<never>,
) {
  const filter = readQuery(query, parseRefusalQuery, call);
  if (reason !== undefined && filter.reason !== undefined)
    throw call.invalid('reason', 'Please give reason as a parameter or in the query, not both');
  if (domain !== undefined && filter.domain !== undefined)
    throw call.invalid('domain', 'Please give domain as a parameter or in the query, not both');
  const wanted = reason ?? filter.reason;
  if (wanted !== undefined && !call.refusals.reasons.includes(wanted))
    throw call.invalid(
      reason === undefined ? 'query' : 'reason',
      `The reasons are ${call.refusals.reasons.join(', ')}`,
    );
  const { rows, next, byReason } = await call.history.refusals(
    {
      ...filter,
      reason: wanted,
      domain: domain ?? filter.domain,
      since: later(filter.since, from?.getTime()),
      before: earlier(filter.before, to?.getTime()),
    },
    limit,
    localCursor(before, call),
  );
  return {
    rows: rows.map((one) => ({ n: one.n, at: one.at, record: toRefusalRecord(one, call.refusals.adviceOf) })),
    by_reason: [...byReason],
    next,
  };
}

const reasonCount = z.object({
  reason: str('the reason'),
  count: int('number of refusals'),
});

/** The refusals of several hosts by reason, the most frequent first. */
export function joinReasons(all: readonly z.output<typeof reasonCount>[]): z.output<typeof reasonCount>[] {
  const counts = new Map<string, number>();
  for (const { reason, count } of all) counts.set(reason, (counts.get(reason) ?? 0) + count);
  return [...counts].map(([reason, count]) => ({ reason, count })).sort((a, b) => b.count - a.count);
}

const listRefusals = operation({
  path: '/inbound/refusals',
  access: 'mail',
  extension: true,
  summary: 'Lists mail refused by SMTP, with the meaning of each refusal and what to do, newest first.',
  notes:
    'An account sees refusals for recipients in its inbound domains, and of mail that it submitted. All words ' +
    'must occur, each anywhere in sender, recipient, client or HELO name. ' +
    `Fields: ${REFUSAL_FIELDS}. Refusals are kept for journal.keep_refusals_days. ${ALL_HOSTS}`,
  params: searchingRefusals,
  returns: z.object({
    refusals: z.array(refusalRecord),
    by_reason: listOf(reasonCount, 'all matching refusals on all pages, the most frequent reason first'),
    next: nextOfHosts,
  }),
  example: { query: 'nobody@inbound.example.com', limit: 10 },
  async handle(given, call) {
    const { rows, by_reason, next } = await findRefusals(given, call);
    return { refusals: rows.map(({ record }) => record), by_reason, next };
  },
  across: {
    part: cursoredPage(refusalRecord).extend({ by_reason: z.array(reasonCount) }),
    own: findRefusals,
    async join(hosts, { before, limit }) {
      const { records, next, parts } = await joinPages(hosts, { before, limit, all: true });
      return { refusals: records, by_reason: joinReasons(parts.flatMap((part) => part.by_reason)), next };
    },
  },
});

export const inboundHistory = [search, causes, info, listRefusals];
