import { hash } from 'node:crypto';
import { readAll } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import { deliveryId } from '../base/ids.ts';
import type { Tools } from '../base/tools.ts';
import { parseAddress } from '../mail/addresses/address.ts';
import { type DsnRequest, type RecipientDsn, toMailDate } from '../mail/addresses/envelope.ts';
import { REPORT_SCHEME } from '../mail/addresses/return-address.ts';
import type { Delivery, Message, Spool } from '../queue/delivery.ts';
import type { Fate, SenderReports } from '../queue/road.ts';

interface SenderReportSettings {
  readonly hostname: string;
  /** The From address of reports. */
  readonly from: string;
}

interface SenderReportDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'message' | 'body' | 'accept'>;
  /** Signs our own mail. */
  readonly signOwn: (message: Buffer) => Promise<Buffer>;
}

/** The account of reports on the spool. No real account has this id. */
const REPORTS = 'reports';

export function createSenderReports(
  { hostname, from }: SenderReportSettings,
  { spool, signOwn, clock, log }: SenderReportDeps,
): SenderReports {
  async function report(
    message: Message,
    { id, recipient }: Pick<Delivery, 'id' | 'recipient'>,
    fate: Fate,
    diag: string,
  ): Promise<void> {
    const { dsn, outgoing } = message.envelope;
    const asked = dsn?.recipients[recipient];
    const domain = parseAddress(dsn?.returnTo ?? '')?.domain;
    if (!dsn || !asked || domain === undefined || !asked.notify?.includes(fate === 'failed' ? 'FAILURE' : 'SUCCESS'))
      return;
    // A draft has no message whose header could be returned.
    const found = outgoing?.form === 'draft' ? undefined : await spool.message(message.id);
    const body = found && (await readAll(found.body));
    // Derived from the delivery, so that a report repeated after a crash is already on the spool.
    const reportId = hash('sha256', `report\0${fate}\0${id}`, 'hex').slice(0, 32);
    const now = clock.now();
    const unsigned = composeReport({
      hostname,
      from,
      id: reportId,
      at: now,
      receivedAt: message.receivedAt,
      dsn,
      asked,
      recipient,
      fate,
      diag,
      bytes: body ? Buffer.concat([Buffer.from(message.trace), body]) : null,
    });
    // A report without a signature is better than none: the store may be away.
    const bytes = await signOwn(unsigned).catch(() => unsigned);
    const writer = spool.body(reportId);
    await writer.write(bytes);
    const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
    const outcome = await spool.accept(
      { id: reportId, receivedAt: now, envelope, trace: '', body: await writer.finish() },
      [
        {
          id: deliveryId(reportId, 'report', dsn.returnTo),
          kind: 'return',
          task: 'report',
          messageId: reportId,
          account: REPORTS,
          url: `${REPORT_SCHEME}${domain}`,
          routeId: '',
          pattern: '',
          recipient: dsn.returnTo,
        },
      ],
    );
    if (outcome !== 'accepted')
      log.warn('report.lost', { message: message.id, delivery: id, recipient, reason: outcome });
  }

  return frozen({
    tell: (message, delivery, fate, diag) =>
      report(message, delivery, fate, diag).catch((error: unknown) =>
        log.warn('report.lost', { message: message.id, delivery: delivery.id, error }),
      ),
  });
}

interface ReportFacts {
  /** The reporting host and the From address. */
  readonly hostname: string;
  readonly from: string;
  readonly id: string;
  readonly at: number;
  readonly receivedAt: number;
  readonly dsn: DsnRequest;
  readonly asked: RecipientDsn;
  readonly recipient: string;
  readonly fate: Fate;
  /** `smtp;550 5.1.1 …`; empty if no server replied. */
  readonly diag: string;
  /** The original message after our Received line; null: nothing can be returned. */
  readonly bytes: Buffer | null;
}

const SUBJECTS: Readonly<Record<Fate, string>> = { delivered: 'Delivered', relayed: 'Relayed', failed: 'Undelivered' };
const SENTENCES: Readonly<Record<Fate, string>> = {
  delivered: 'Your message was delivered.',
  relayed: 'Your message was relayed to the next server, which may not send further notifications.',
  failed: 'Your message could not be delivered.',
};
/** The largest failed message that is returned in full, if requested. */
const MAX_RETURNED = 1024 * 1024;
const END_OF_HEADER = '\r\n\r\n';

/** Composes a delivery status notification (RFC 3464) with CRLF line endings. */
function composeReport(facts: ReportFacts): Buffer {
  const { hostname, from, id, at, dsn, fate, bytes } = facts;
  const boundary = `report-${id}`;
  const head = [
    `From: Mail Delivery System <${from}>`,
    `To: <${dsn.returnTo}>`,
    `Subject: ${SUBJECTS[fate]}: delivery status notification`,
    `Date: ${toMailDate(at)}`,
    `Message-ID: <${id}@${hostname}>`,
    // RFC 3834 section 5.
    'Auto-Submitted: auto-replied',
    'MIME-Version: 1.0',
    `Content-Type: multipart/report; report-type=delivery-status; boundary="${boundary}"`,
    '',
    `--${boundary}`,
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: 8bit',
    '',
    SENTENCES[fate],
    '',
    `Recipient: ${facts.recipient}`,
    ...(facts.diag === '' ? [] : [`Reply of the server: ${oneLine(facts.diag)}`]),
    '',
    `--${boundary}`,
    'Content-Type: message/delivery-status',
    '',
    ...statusFields(facts),
    '',
  ];
  return Buffer.concat([
    Buffer.from(`${head.join('\r\n')}\r\n`),
    ...(bytes ? returnedPart(facts, bytes, boundary) : []),
    Buffer.from(`--${boundary}--\r\n`),
  ]);
}

/** The returned message, or its header. */
function returnedPart({ fate, dsn }: ReportFacts, bytes: Buffer, boundary: string): Buffer[] {
  const whole = fate === 'failed' && dsn.ret === 'FULL' && bytes.length <= MAX_RETURNED;
  const end = bytes.indexOf(END_OF_HEADER);
  const returned = whole ? bytes : bytes.subarray(0, end < 0 ? bytes.length : end + 2).subarray(0, MAX_RETURNED);
  const fields = [
    `--${boundary}`,
    `Content-Type: ${whole ? 'message/rfc822' : 'text/rfc822-headers'}`,
    ...(isSevenBit(returned) ? [] : ['Content-Transfer-Encoding: 8bit']),
  ];
  return [Buffer.from(`${fields.join('\r\n')}\r\n\r\n`), returned, Buffer.from('\r\n')];
}

/** RFC 3464 section 2.2 and 2.3: per-message fields, an empty line, per-recipient fields. */
function statusFields({ hostname, receivedAt, at, dsn, asked, recipient, fate, diag }: ReportFacts): string[] {
  const original = /^([^;]*);(.*)$/s.exec(asked.orcpt ?? '');
  return [
    ...(dsn.envid === null ? [] : [`Original-Envelope-Id: ${dsn.envid}`]),
    `Reporting-MTA: dns; ${hostname}`,
    `Arrival-Date: ${toMailDate(receivedAt)}`,
    '',
    ...(original ? [`Original-Recipient: ${address(original[1] ?? '', original[2] ?? '')}`] : []),
    `Final-Recipient: ${address('rfc822', recipient)}`,
    `Action: ${fate}`,
    `Status: ${statusOf(fate, diag)}`,
    ...(diag === '' ? [] : [`Diagnostic-Code: ${oneLine(diag).replace(/^(\w+);\s*/, '$1; ')}`]),
    `Last-Attempt-Date: ${toMailDate(at)}`,
  ];
}

/** Non-ASCII addresses are encoded as \x{…} (RFC 6533 section 3), which any report reader may receive. */
function address(type: string, text: string): string {
  const ascii = text.replace(/[^ -~]/gu, (char) => `\\x{${(char.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`);
  return `${ascii === text ? type : 'utf-8'};${ascii}`;
}

function statusOf(fate: Fate, diag: string): string {
  if (fate !== 'failed') return '2.0.0';
  return /\b5\.\d{1,3}\.\d{1,3}\b/.exec(diag)?.[0] ?? (/\b4\.4\.7\b/.test(diag) ? '4.4.7' : '5.0.0');
}

const oneLine = (text: string): string => text.replace(/[^ -~]+/g, ' ').slice(0, 500);

const isSevenBit = (bytes: Buffer): boolean => bytes.every((byte) => byte < 0x80);
