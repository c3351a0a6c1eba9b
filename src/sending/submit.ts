import { mapConcurrently, runInSlices, type SlicedWork } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import { deliveryId, type Ids } from '../base/ids.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { Tools } from '../base/tools.ts';
import type { Lists } from '../events/lists.ts';
import type { NewSentMessage, Recorder } from '../events/record.ts';
import { type Recipient, readRecipient } from '../mail/addresses/address.ts';
import { isUnambiguousAddress } from '../mail/addresses/author.ts';
import { type DsnRequest, type Envelope, traceLine } from '../mail/addresses/envelope.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import { mailUrl, type Outgoing } from '../mail/outgoing.ts';
import { type AcceptOutcome, type Delivery, type Spool, writeAll } from '../queue/delivery.ts';
import { StoreAway } from '../store/driver/port.ts';
import { subaccountId } from '../store/rows/subaccounts.ts';
import type { Store } from '../store/store.ts';
import { fillingSubject } from './compose/merge-fields.ts';
import type { Copies } from './copies.ts';
import type { OwnDomains } from './domains/own-domains.ts';
import type { SendingQuota } from './sending-quota.ts';
import type { Signing } from './signing.ts';
import type { RecipientOutcome, SigningOutlook, Submission, SubmitOutcome } from './types.ts';

interface SubmitSettings {
  /** Used in our Received line. */
  readonly hostname: string;
  /** The domain of return paths; it has no mailboxes. */
  readonly returnDomain: string;
}

interface SubmitDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'subaccounts' | 'scheduled'>;
  readonly spool: Pick<Spool, 'hasRoom' | 'isWithinShare' | 'body' | 'accept'>;
  readonly lists: Pick<Lists, 'suppression'>;
  readonly copies: Pick<Copies, 'epochForNew' | 'write' | 'unwrite'>;
  readonly recorder: Recorder;
  readonly sendingQuota: Pick<SendingQuota, 'heldBecause'>;
  readonly ownDomains: OwnDomains;
  readonly signing: Pick<Signing, 'outlookOf'>;
  readonly ids: Pick<Ids, 'message'>;
}

/** A submission with its recipients sorted: deliverable, suppressed, invalid. */
interface SortedSubmission {
  readonly submission: Submission;
  readonly messageId: string;
  readonly receivedAt: number;
  readonly deliveries: readonly Delivery[];
  readonly suppressed: readonly { readonly delivery: Delivery; readonly reason: string }[];
  /** Message rows by delivery id. */
  readonly rows: ReadonlyMap<string, NewSentMessage>;
  readonly answers: readonly RecipientOutcome[];
}

/** Accepts an account's mail; nothing else may queue it. */
export type Submitting = ReturnType<typeof createSubmitting>;

/**
 * Accepts an account's mail: one message on the spool, with a delivery for each recipient that is not suppressed. Its
 * rows are written after the sync; if the store becomes unavailable in between, they are created when the deliveries
 * are reported.
 */
export function createSubmitting(settings: SubmitSettings, deps: SubmitDeps) {
  const { store, log } = deps;
  const count = createCount(deps.metrics);
  return frozen({
    async submit(submission: Submission): Promise<SubmitOutcome> {
      const {
        account,
        outgoing: { subaccount },
      } = submission;
      try {
        if (subaccount !== null && !(await store.subaccounts.one({ id: subaccountId(account, subaccount) })))
          return { outcome: 'unknown-subaccount' };
        const foreign = await foreignAuthor(submission, deps);
        if (foreign !== undefined) {
          log.warn('message.refused', { account, from: foreign, reason: 'invalid-sender' });
          return { outcome: 'accepted', recipients: refuseSender(submission, deps), signing: NOT_SENT };
        }
        const sorted = await sort(submission, settings, deps);
        const size = submission.bytes.length; // the spool takes ownership of them
        const outcome = sorted.deliveries.length === 0 ? 'accepted' : await accept(sorted, settings, deps);
        if (outcome !== 'accepted') return { outcome };
        await recordAll(sorted, deps);
        log.info('message.submitted', {
          account,
          message: sorted.messageId,
          deliveries: sorted.deliveries.length,
          rejected: sorted.suppressed.length,
        });
        count(sorted, size);
        return { outcome, recipients: sorted.answers, signing: await outlook(submission, deps) };
      } catch (error) {
        // store outages are logged elsewhere, once
        if (!(error instanceof StoreAway)) log.error('message.fault', { account, error });
        return { outcome: 'fault' };
      }
    },
  });
}

function createCount(metrics: Metrics): (sorted: SortedSubmission, size: number) => void {
  const of = (source: string) => metrics.counter('postern_submissions_total', { source });
  const sources = { smtp: of('smtp'), api: of('api') };
  const sizes = metrics.histogram('postern_message_bytes', { direction: 'outbound' });
  const statuses = new Map<string, Counter>(
    ['queued', 'scheduled', 'rejected', 'invalid'].map((status) => [
      status,
      metrics.counter('postern_submission_recipients_total', { status }),
    ]),
  );
  return ({ submission, answers }, size) => {
    (submission.client === null ? sources.api : sources.smtp).add();
    sizes.observe(size);
    for (const { status } of answers) statuses.get(status)?.add();
  };
}

async function sort(
  submission: Submission,
  { returnDomain }: SubmitSettings,
  { lists, clock, ids, sendingQuota }: SubmitDeps,
): Promise<SortedSubmission> {
  const { account, recipients, sendAt, outgoing } = submission;
  const { subaccount } = outgoing;
  const messageId = ids.message();
  const receivedAt = clock.now();
  const notBefore = sendAt && sendAt.getTime() > receivedAt ? { notBefore: sendAt.getTime() } : {};
  const answers: RecipientOutcome[] = [];
  const deliveries: Delivery[] = [];
  const suppressed: { delivery: Delivery; reason: string }[] = [];
  const wanted = distinct(recipients);
  const queuedReason = (await sendingQuota.heldBecause(account, outgoing, receivedAt)) ?? 'sending-backlog';
  const found = await mapConcurrently(
    wanted,
    async ({ read }) => read && lists.suppression(account, read.recipient, subaccount, new Date(receivedAt)),
  );
  for (const [at, { text, read }] of wanted.entries()) {
    const id = deliveryId(messageId, 'out', read?.recipient ?? text);
    const answer = { id: sentId(id), email: read?.email ?? text, rejectReason: null, queuedReason: null };
    const listed = found[at];
    if (!read || read.domain === returnDomain) {
      answers.push({ ...answer, status: 'invalid', rejectReason: 'invalid' });
      continue;
    }
    const delivery = {
      id,
      messageId,
      account,
      kind: 'outbound' as const,
      url: mailUrl(read.domain),
      routeId: subaccount === null ? '' : subaccountId(account, subaccount),
      pattern: '',
      recipient: read.recipient,
      ...notBefore,
    };
    if (listed) suppressed.push({ delivery, reason: listed.reason });
    else deliveries.push(delivery);
    answers.push({
      ...answer,
      ...(listed
        ? { status: 'rejected', rejectReason: listed.reason }
        : 'notBefore' in notBefore
          ? { status: 'scheduled' }
          : { status: 'queued', queuedReason }),
    });
  }
  const rows = new Map<string, NewSentMessage>();
  for (const delivery of [...deliveries, ...suppressed.map((one) => one.delivery)])
    rows.set(delivery.id, await runInSlices(makingSentMessage(outgoing, delivery, receivedAt)));
  return { submission, messageId, receivedAt, deliveries, suppressed, rows, answers };
}

const NOT_SENT: SigningOutlook = { signedBy: null, warning: null };

/** The signing domain, which does not affect acceptance. */
async function outlook({ account, outgoing }: Submission, { signing, log }: SubmitDeps): Promise<SigningOutlook> {
  try {
    return await signing.outlookOf(account, outgoing);
  } catch (error) {
    if (!(error instanceof StoreAway)) log.error('message.fault', { account, error });
    return NOT_SENT;
  }
}

/** The first author that the account may not write as, or that mail programs read differently. */
async function foreignAuthor(
  { account, outgoing: { sender }, otherAuthors }: Submission,
  { ownDomains }: SubmitDeps,
): Promise<string | undefined> {
  if (!isUnambiguousAddress(sender)) return sender;
  for (const author of new Set([sender, ...otherAuthors]))
    if (!(await ownDomains.mayWriteFrom(account, author))) return author;
  return undefined;
}

/** The account may not use this From address: all recipients are rejected and nothing is stored. */
function refuseSender({ recipients }: Submission, { ids }: SubmitDeps): RecipientOutcome[] {
  const messageId = ids.message();
  return distinct(recipients).map(({ text, read }) => ({
    id: sentId(deliveryId(messageId, 'out', read?.recipient ?? text)),
    email: read?.email ?? text,
    status: 'rejected',
    rejectReason: 'invalid-sender',
    queuedReason: null,
  }));
}

/** Removes duplicate recipients; invalid addresses are compared as text. */
function distinct(recipients: readonly string[]): { readonly text: string; readonly read: Recipient | undefined }[] {
  const once = new Map<string, { readonly text: string; readonly read: Recipient | undefined }>();
  for (const text of recipients) {
    const read = readRecipient(text);
    const key = read ? read.key : ` ${text}`;
    if (!once.has(key)) once.set(key, { text, read });
  }
  return [...once.values()];
}

async function accept(sorted: SortedSubmission, settings: SubmitSettings, deps: SubmitDeps): Promise<AcceptOutcome> {
  const { spool, copies, log } = deps;
  const {
    submission: { bytes, client, outgoing, account, dsn },
    messageId,
    receivedAt,
    deliveries,
  } = sorted;
  if (!spool.hasRoom() || !spool.isWithinShare(account)) return 'full';
  const envelope: Envelope = {
    mailFrom: '',
    client: client ?? { address: null, helo: null, tls: null },
    outgoing: { ...outgoing, host: settings.hostname },
    ...(dsn && { dsn: renamed(dsn) }),
  };
  const copiedIn = copies.epochForNew();
  const copied = copiedIn === undefined ? envelope : { ...envelope, copiedIn };
  const trace = traceOf(sorted, envelope, settings);
  const writer = spool.body(messageId);
  try {
    // The queue takes ownership of the bytes.
    await copies.write({ id: messageId, receivedAt, envelope: copied, trace, bytes }, deliveries);
    await writeAll(writer, bytes);
    const body = await writer.finish();
    await schedule(sorted, deps);
    const outcome = await spool.accept({ id: messageId, receivedAt, envelope: copied, trace, body }, deliveries);
    if (outcome !== 'accepted') await Promise.all([unschedule(sorted, deps), copies.unwrite(copied, deliveries)]);
    return outcome;
  } catch (error) {
    await Promise.allSettled([writer.abort(), unschedule(sorted, deps), copies.unwrite(copied, deliveries)]);
    if (!(error instanceof StoreAway)) log.error('message.fault', { account, error });
    return 'fault';
  }
}

/** Rewrites DSN recipients with the domain in A-labels, as deliveries have it; RCPT may not. */
function renamed(dsn: DsnRequest): DsnRequest {
  return {
    ...dsn,
    recipients: Object.fromEntries(
      Object.entries(dsn.recipients).map(([text, wish]) => [readRecipient(text)?.recipient ?? text, wish]),
    ),
  };
}

/** The Received line; empty for the API, where the message originates here. */
function traceOf(
  { submission: { client, outgoing }, messageId, receivedAt, deliveries }: SortedSubmission,
  envelope: Envelope,
  { hostname }: SubmitSettings,
): string {
  if (client === null) return '';
  // RFC 3848: authenticated, with and without TLS.
  const protocol = client.tls === null ? 'ESMTPA' : 'ESMTPSA';
  const only = deliveries.length === 1 ? deliveries[0]?.recipient : undefined;
  return traceLine({
    envelope: { ...envelope, mailFrom: outgoing.sender },
    protocol,
    hostname,
    messageId,
    receivedAt,
    recipient: only,
  });
}

/**
 * Writes the schedule rows before the spool accepts the message: a delivery without a row could never be cancelled; a
 * row without a delivery leaves the list at its send time.
 */
async function schedule(
  {
    submission: {
      account,
      outgoing: { sender, subject },
    },
    receivedAt,
    deliveries,
    rows,
  }: SortedSubmission,
  { store }: SubmitDeps,
): Promise<void> {
  await mapConcurrently(
    deliveries.filter(({ notBefore }) => notBefore !== undefined),
    ({ id, recipient, notBefore = receivedAt }) =>
      store.scheduled.insert({
        id: sentId(id),
        account,
        createdAt: new Date(receivedAt),
        sendAt: new Date(notBefore),
        sender,
        subject: rows.get(id)?.subject ?? subject,
        email: recipient.toLowerCase(),
        delivery: id,
        state: null,
      }),
  );
}

async function unschedule({ deliveries }: SortedSubmission, { store }: SubmitDeps): Promise<void> {
  await mapConcurrently(
    deliveries.filter(({ notBefore }) => notBefore !== undefined),
    ({ id }) => store.scheduled.remove({ id: sentId(id) }),
  );
}

/**
 * Writes the rows of all messages, and the reject events of suppressed recipients. Stops at the first error, so that an
 * unavailable store is not waited for a thousand times.
 */
async function recordAll(
  { submission: { account }, messageId, rows, deliveries, suppressed }: SortedSubmission,
  { recorder, log }: SubmitDeps,
): Promise<void> {
  try {
    const rowOf = (delivery: Delivery) => rows.get(delivery.id);
    await mapConcurrently(deliveries.map(rowOf), async (row) => {
      if (row) await recorder.begin(row);
    });
    await mapConcurrently(suppressed, async ({ delivery, reason }) => {
      const row = rowOf(delivery);
      if (!row) return;
      await recorder.begin(row);
      await recorder.record({
        id: `${row.id}-reject`,
        account,
        message: row.id,
        kind: 'reject',
        at: row.createdAt,
        detail: { reason },
      });
    });
  } catch (error) {
    log.warn('message.unrecorded', { account, message: messageId, error });
  }
}

/**
 * The initial row of the message that a delivery carries; `receivedAt` is the spool message's. In steps, because the
 * subject is merged and a call may have a thousand recipients.
 */
export function* makingSentMessage(
  outgoing: Outgoing,
  delivery: Pick<Delivery, 'id' | 'account' | 'recipient'>,
  receivedAt: number,
): SlicedWork<NewSentMessage> {
  const { sender, tags, template, subaccount, apiKey, conversation } = outgoing;
  const subject = yield* fillingSubject(outgoing, delivery.recipient, new Date(receivedAt));
  const metadata = { ...outgoing.metadata, ...outgoing.rcptMetadata[delivery.recipient.toLowerCase()] };
  return {
    id: sentId(delivery.id),
    account: delivery.account,
    createdAt: new Date(receivedAt),
    email: delivery.recipient,
    delivery: delivery.id,
    sender,
    subject,
    tags,
    template,
    subaccount,
    apiKey,
    metadata,
    ...conversation,
  };
}
