import { sizeOf } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { type AttachmentMode, factsOf } from '../inbound/formats.ts';
import { createVerdictMeters } from '../inbound/verdicts/meters.ts';
import type { Notes } from '../journal/types.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { Delivery, Message, Spool } from '../queue/delivery.ts';
import type { SenderReports } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/waiting.ts';
import type { Settled } from '../queue/settle.ts';
import type { Scanning } from '../scan/scanning.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Destinations, PostTarget } from './destinations.ts';
import type { ReplyMatching } from './reply-matching.ts';
import type { SigningKeys } from './signing.ts';
import type { Findings, Mail, Post, Renderer } from './types.ts';

// Steps before a delivery becomes a signed POST, and after its attempt. Shared by deliveries that are posted (road.ts)
// and those that their consumer pulls (pulling.ts).

export interface PreparationDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly spool: Pick<Spool, 'message' | 'attempts'>;
  readonly renderer: Renderer;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly signingKeys: Pick<SigningKeys, 'keysFor'>;
  readonly senderReports: SenderReports;
  readonly answers: ReplyMatching;
  /** Undefined if no scanner is configured. */
  readonly scanning: Pick<Scanning, 'turn' | 'of'> | undefined;
  /** The history. */
  readonly notes: Notes;
}

/** How long damaged mail waits for a store that is away and may have a copy. Milliseconds. */
const AWAY_MS = 5000;

/** The fields of a due delivery on which its preparation depends. */
type Due = Pick<Waiting, 'delivery' | 'attempts' | 'budgetFrom'>;

/** A delivery with its message. */
type DueMail = readonly [due: Due, mail: Mail];

/**
 * later: its message is not scanned yet, or was damaged and the store is away; come back at `at` (milliseconds since
 * 1970) · missing: it has no message.
 */
type NoMail = { readonly none: 'later'; readonly at: number } | { readonly none: 'missing' };

export type Preparation = ReturnType<typeof createPreparation>;

export function createPreparation(deps: PreparationDeps) {
  const { spool, renderer, destinations, signingKeys, clock, log } = deps;
  const unparsed = deps.metrics.counter('postern_message_parse_failures_total');
  const countVerdicts = createVerdictMeters(deps.metrics);

  async function unlessAway(all: readonly [DueMail, ...DueMail[]], target: PostTarget, records: boolean) {
    const [[first]] = all;
    const keys = await signingKeys.keysFor(first.delivery.account, first.delivery.url);
    if (!keys) return 'store away';
    try {
      const mails = await Promise.all(all.map((one) => withAnswers(one, records)));
      return await renderWith(all[0], mails, target, inTurn(keys, first.attempts));
    } catch (error) {
      // It is not known what it answers, or the secret for links is not in memory.
      if (error instanceof StoreAway) return 'store away';
      throw error;
    }
  }

  /**
   * Adds the message that it answers. While the store is away, mail waits ANSWERS_WAIT and then goes without, because
   * an application that takes an answer for a new message opens a second ticket. Throws `StoreAway`.
   */
  async function withAnswers([{ delivery, budgetFrom }, mail]: DueMail, records: boolean): Promise<Mail> {
    if (delivery.kind !== 'inbound') return mail;
    try {
      return { ...mail, answers: await deps.answers.of(delivery.account, mail, records) };
    } catch (error) {
      if (error instanceof StoreAway && clock.now() - budgetFrom >= ANSWERS_WAIT) return mail;
      throw error;
    }
  }

  async function renderWith(
    first: DueMail,
    mails: readonly Mail[],
    target: PostTarget,
    keys: readonly string[],
  ): Promise<Post | undefined> {
    const { account, url } = first[0].delivery;
    const at = clock.now();
    const style = { ...target, attachments: await attachmentsOf(first, target) };
    const job = { mails, url, account, keys, at, style };
    return mails.length === 1 ? renderer.render(job) : renderer.renderShared(job);
  }

  /** The form of its attachments in this attempt: once the receiver has found a post too large, `auto` means links. */
  async function attachmentsOf(
    [{ delivery, attempts }, { body }]: DueMail,
    target: PostTarget,
  ): Promise<AttachmentMode> {
    const { attachments, format } = target;
    if (attachments !== 'auto' || attempts === 0 || delivery.kind !== 'inbound') return attachments;
    if (factsOf(format).whole) return attachments;
    const statuses = (await spool.attempts(delivery.id)).map(({ status }) => status);
    const bytes = sizeOf(body);
    if (!wasTooLarge(statuses, bytes)) return attachments;
    log.info('delivery.too_large', { delivery: delivery.id, message: delivery.messageId, bytes });
    return 'link';
  }

  function note([{ delivery }, { message }]: DueMail, { summary, verdicts, parseError }: Findings): void {
    const { id, kind } = delivery;
    if (parseError !== null) unparsed.add();
    if (kind === 'inbound')
      deps.notes.note({ what: 'parsed', id, sender: message.envelope.mailFrom, summary, verdicts });
  }

  /** Reads the message. If it is damaged on the disk, the store may have a copy. */
  async function load({ id, messageId }: Pick<Delivery, 'id' | 'messageId'>) {
    try {
      return await spool.message(messageId, id);
    } catch (error) {
      if (error instanceof StoreAway) return 'store away' as const;
      throw error;
    }
  }

  return frozen({
    /** Finds the message of a delivery, and has it scanned. */
    async find({ delivery, attempts, budgetFrom }: Due): Promise<Mail | NoMail> {
      const scanning = delivery.kind === 'inbound' ? deps.scanning : undefined;
      const turn = scanning && attempts === 0 ? await scanning.turn(delivery, budgetFrom) : undefined;
      if (turn !== undefined) return { none: 'later', at: turn };
      const found = await load(delivery);
      if (found === 'store away') return { none: 'later', at: clock.now() + AWAY_MS };
      if (!found) return { none: 'missing' };
      const { message, body } = found;
      if (!scanning || message.scan) return { delivery, message, body };
      const { id, envelope, trace } = message;
      const input = { id, envelope, trace, recipients: [delivery.recipient], body };
      const { scan, at } = await scanning.of(input, budgetFrom);
      if (scan) return { delivery, message: { ...message, scan }, body };
      return { none: 'later', at };
    },
    /**
     * Renders and signs the POST of one message, or of several of one route. `store away`: try later. Undefined: a
     * shared POST broke the parser. A shared POST omits messages with slow verdicts. Pass the result to `discard`.
     */
    async render(all: readonly [DueMail, ...DueMail[]], target: PostTarget): Promise<Post | 'store away' | undefined> {
      const post = await unlessAway(all, target, true);
      if (post === undefined || post === 'store away') return post;
      for (const [i, one] of all.entries()) {
        const found = post.found[i];
        if (found) note(one, found);
      }
      return post;
    },
    /** Like `render`, of one message, for tap: nothing is recorded or counted. */
    async renderForTap(one: DueMail): Promise<Post | 'store away'> {
      // Only a shared POST may be undefined.
      return (await unlessAway([one], destinations.target(one[0].delivery), false)) ?? 'store away';
    },
    /** Discards the body of a POST. Never throws. */
    async discard({ id }: Pick<Delivery, 'id'>, { body }: Post) {
      // Failing to remove the file does not change the outcome of the attempt.
      await renderer.discard(body)?.catch((error: unknown) => log.error('delivery.fault', { delivery: id, error }));
    },
    /** The verdicts to store with the message, if they were computed in this attempt; counts them. */
    newVerdicts(delivery: Delivery, message: Message, { verdicts }: Findings) {
      if (message.verdicts || delivery.kind === 'events') return undefined;
      countVerdicts(verdicts);
      return verdicts;
    },
    /**
     * Sends the DSN if the sender requested one. Reports to the reverse-path only if SPF passed: a forged one would
     * make us send mail to third parties (RFC 3834 section 2).
     */
    async sendReport(message: Message, { spf }: Verdicts, delivery: Delivery, outcome: Settled['outcome']) {
      if (!message.envelope.dsn || outcome === 'deferred' || spf.result !== 'pass') return;
      const diag = outcome === 'failed' ? '5.4.7 delivery time expired' : '';
      await deps.senderReports.tell(message, delivery, outcome, diag);
    },
  });
}

/** How long mail waits for a store that is away, to find the message that it answers. Milliseconds. */
const ANSWERS_WAIT = 10 * 60_000;

/** No framework is known to refuse a smaller form for its size without answering 413. */
const LARGE_FORM = 1024 * 1024;

/**
 * Whether a receiver refused a message of `size` bytes for its size: by 413, or by the answers of frameworks that have
 * no status for it (Django 400, Rack 500), given twice.
 */
function wasTooLarge(statuses: readonly (number | null)[], size: number): boolean {
  if (statuses.includes(413)) return true;
  return size > LARGE_FORM && statuses.filter((status) => status === 400 || status === 500).length > 1;
}

/**
 * During a rotation there are two keys, but X-Mandrill-Signature holds one signature: odd attempts use the current key,
 * even ones the previous, so that a consumer with the old key accepts the second attempt.
 */
function inTurn(keys: readonly string[], attempts: number): readonly string[] {
  return keys.length > 1 && attempts % 2 === 1 ? [...keys].reverse() : keys;
}
