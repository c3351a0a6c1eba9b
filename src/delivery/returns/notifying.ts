import { hash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { deliveryId } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { parseAddress } from '../../mail/address.ts';
import { REPORT_SCHEME } from '../../mail/returns/address.ts';
import { composeReport, type Fate } from '../../mail/returns/report.ts';
import type { Delivery, Message, Spool } from '../../spool/types.ts';

export interface NotifyingSettings {
  readonly hostname: string;
  /** Whom reports are from. */
  readonly from: string;
}

export interface NotifyingDeps {
  readonly spool: Pick<Spool, 'message' | 'body' | 'accept'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Tells senders what became of their messages, as far as they asked for it (RFC 3461). */
export interface Notifying {
  /**
   * Puts a report onto the spool when this is something that was asked for. `diag`: what a server said. Never throws.
   */
  tell(message: Message, delivery: Pick<Delivery, 'id' | 'recipient'>, fate: Fate, diag: string): Promise<void>;
}

/** The account of reports on the spool. No account has this id. */
const REPORTS = 'reports';

export function createNotifying(
  { hostname, from }: NotifyingSettings,
  { spool, clock, log }: NotifyingDeps,
): Notifying {
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
    // Of what a template made there is no message to show the beginning of.
    const found = outgoing?.form === 'draft' ? undefined : await spool.message(message.id);
    const body = found && (found.body.kind === 'blob' ? await readFile(found.body.path) : found.body.bytes);
    // From the delivery: what is told again after a crash is on the spool already.
    const reportId = hash('sha256', `report\0${fate}\0${id}`, 'hex').slice(0, 32);
    const now = clock.now();
    const bytes = composeReport({
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
    const writer = spool.body(reportId);
    await writer.write(bytes);
    const envelope = { mailFrom: '', client: { address: null, helo: null, tls: null } };
    const outcome = await spool.accept(
      { id: reportId, receivedAt: now, envelope, trace: '', body: await writer.finish() },
      [
        {
          id: deliveryId(reportId, 'report', dsn.returnTo),
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

  return Object.freeze({
    tell: (message: Message, delivery: Pick<Delivery, 'id' | 'recipient'>, fate: Fate, diag: string) =>
      report(message, delivery, fate, diag).catch((error: unknown) =>
        log.warn('report.lost', { message: message.id, delivery: delivery.id, error }),
      ),
  });
}
