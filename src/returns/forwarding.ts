import { readFile } from 'node:fs/promises';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Message, Settlement, Spool } from '../queue/delivery.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { settleUnattempted } from '../queue/settle.ts';
import { settleMail } from '../sending/settle-mail.ts';
import type { MailCarrier } from '../sending/types.ts';
import type { Carried, Gate } from '../webhooks/carry.ts';
import type { Told } from '../webhooks/types.ts';

/** Where mail to the postmaster goes. */
export interface ForwardingParts {
  /** `smtp.postmaster`; empty: nowhere, it waits. */
  readonly address: string;
  /** What carries mail of our own. */
  readonly carrier: MailCarrier;
}

export interface ForwardingDeps extends ForwardingParts {
  readonly spool: Pick<Spool, 'message'>;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly time: RunningTime;
  /**
   * After how many milliseconds it is given up: it is a dead letter then, and can be read as long as those are kept.
   */
  readonly limit: number;
  readonly abandoned: () => boolean;
  /** Writes a settlement, however long the spool takes to be able to. */
  note(settlement: Settlement): Promise<void>;
}

/** How often mail is looked at that has nowhere to go. A start with another setting does so at once. */
const LOOK_MS = 3_600_000;

/**
 * The way of mail to the postmaster: on to the operator, byte for byte behind our Received line; and that of reports to
 * senders.
 */
export interface Forwarding {
  attempt(waiting: Waiting, gate: Gate): Promise<Carried>;
}

export function createForwarding(deps: ForwardingDeps): Forwarding {
  const { address, carrier, spool, clock, ids, log, time, limit } = deps;

  async function end({ delivery, parked }: Waiting, state: 'dropped' | 'dead'): Promise<Carried> {
    await deps.note(settleUnattempted(delivery.id, state, parked, clock.now()));
    return { kind: 'gone' };
  }

  /** Kept on the queue, where `postern queue` shows it; a line of the log says so once. */
  async function keep(waiting: Waiting, { id, envelope }: Message): Promise<Carried> {
    const age = time.age(waiting.budgetFrom);
    if (time.sure() && age >= limit) return end(waiting, 'dead');
    if (age < LOOK_MS) {
      log.warn('postmaster.kept', {
        delivery: waiting.delivery.id,
        message: id,
        sender: envelope.mailFrom,
        recipient: waiting.delivery.recipient,
        note: 'smtp.postmaster is not set',
      });
    }
    return { kind: 'put off', at: clock.now() + LOOK_MS };
  }

  return frozen({
    async attempt(waiting, gate): Promise<Carried> {
      const { delivery, attempts, budgetFrom } = waiting;
      const found = await spool.message(delivery.messageId, delivery.id);
      if (!found) return end(waiting, 'dropped');
      const to = delivery.task === 'report' ? delivery.recipient : address;
      if (to === '') return keep(waiting, found.message);
      if (!(await gate.enter())) return { kind: 'turned back' };
      const body = found.body.kind === 'inline' ? found.body.bytes : await readFile(found.body.path);
      // From nobody (RFC 5321 section 4.5.5): SPF judges our host and not the sender's, and what cannot be forwarded
      // comes back to none.
      const composed = { bytes: Buffer.concat([Buffer.from(found.message.trace), body]), mailFrom: '', links: [] };
      const attempt = await carrier.carry({ composed, recipient: to, sourceAddresses: [] });
      if (deps.abandoned() && attempt.kind === 'unanswered') return { kind: 'turned back' };
      const settled = settleMail({
        delivery: { id: delivery.id, attempts },
        attempt,
        now: clock.now(),
        jitter: ids.jitter(),
        budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
      });
      const result = toTold(attempt);
      gate.leave(result, settled);
      await deps.note(settled.settlement);
      return { kind: 'settled', settled, result };
    },
  });
}

function toTold(attempt: Awaited<ReturnType<MailCarrier['carry']>>): Told {
  if (attempt.kind === 'unanswered')
    return { kind: 'unanswered', error: attempt.reason, durationMs: attempt.durationMs };
  return { kind: 'answered', status: attempt.code, durationMs: attempt.durationMs };
}
