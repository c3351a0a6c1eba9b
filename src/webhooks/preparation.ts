import { sizeOf } from '../base/bytes.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { type AttachmentMode, factsOf } from '../inbound/formats.ts';
import type { SigningKeys } from '../inbound/types.ts';
import { createVerdictMeters } from '../inbound/verdicts/meters.ts';
import type { Notes } from '../journal/types.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, Message, Spool } from '../queue/delivery.ts';
import type { SenderReports } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import type { Settled } from '../queue/settle.ts';
import type { Scanning } from '../scan/scanning.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Answers } from './answers.ts';
import type { Destinations, PostTarget } from './road.ts';
import type { Findings, Rendered, Renderer, RenderPart } from './types.ts';

// What is done with a delivery before it is a signed POST, and after its attempt: the same for those that are posted
// (road.ts) and for those that their consumer pulls (pulling.ts).

export interface PreparationDeps {
  readonly spool: Pick<Spool, 'message' | 'attempts'>;
  readonly renderer: Renderer;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly signingKeys: Pick<SigningKeys, 'keysFor'>;
  readonly senderReports: SenderReports;
  readonly answers: Answers;
  /** Undefined if no scanner is configured. */
  readonly scanning: Pick<Scanning, 'turn' | 'of'> | undefined;
  /** The history. */
  readonly notes: Notes;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** A delivery whose turn it is, as far as preparing it depends on that. */
type Due = Pick<Waiting, 'delivery' | 'attempts' | 'budgetFrom'>;

/** A delivery with its message. */
export interface Mail<W extends Due = Due> extends RenderPart {
  readonly waiting: W;
  readonly delivery: Delivery;
}

/** A POST and its contents. */
export interface RenderedMail<W extends Due = Due> extends Pick<Rendered, 'body' | 'headers'> {
  /** How it is posted, from its first byte to what its answer means. */
  readonly target: PostTarget;
  /** The id of the POST if several messages share it. */
  readonly batch: string | undefined;
  readonly parts: readonly (Mail<W> & Findings)[];
}

/** later: its message is not scanned yet, come back at `at` (milliseconds since 1970) · missing: it has no message. */
type Found<W extends Due> = Mail<W> | { readonly none: 'later'; readonly at: number } | { readonly none: 'missing' };

export interface Preparation {
  /** Finds the message of a delivery, and has it scanned. */
  find<W extends Due>(waiting: W): Promise<Found<W>>;
  /**
   * Renders and signs the POST of one message, or of several of one route. `store away`: not now. Undefined: a shared
   * POST broke the parser. A shared POST omits messages whose verdicts take long. Discard the body at the end.
   */
  render<W extends Due>(mail: readonly [Mail<W>, ...Mail<W>[]]): Promise<RenderedMail<W> | 'store away' | undefined>;
  /** As `render`, of one message, for whoever only watches: nothing is noted or counted. */
  show(mail: Mail): Promise<RenderedMail | 'store away'>;
  /** Discards a body that was rendered. Never throws. */
  discard(delivery: Pick<Delivery, 'id'>, rendered: Pick<Rendered, 'body'>): Promise<void>;
  /** Verdicts that are to be kept with the message, because they were computed now; counts them. */
  fresh(part: Mail & Findings): Verdicts | undefined;
  /** Sends the DSN if the sender requested one. */
  tell(message: Message, verdicts: Verdicts, delivery: Delivery, outcome: Settled['outcome']): Promise<void>;
}

export function createPreparation(deps: PreparationDeps): Preparation {
  const { spool, renderer, destinations, signingKeys, clock, log } = deps;
  const unparsed = deps.metrics.counter('postern_message_parse_failures_total');
  const countVerdicts = createVerdictMeters(deps.metrics);

  async function unlessAway<W extends Due>(mail: readonly [Mail<W>, ...Mail<W>[]], records: boolean) {
    const [{ delivery, waiting }] = mail;
    const keys = await signingKeys.keysFor(delivery.account, delivery.url);
    if (!keys) return 'store away';
    try {
      const [first, ...others] = mail;
      const [known, ...rest] = await Promise.all([
        withAnswers(first, records),
        ...others.map((one) => withAnswers(one, records)),
      ]);
      return await renderWith([known, ...rest], inTurn(keys, waiting.attempts));
    } catch (error) {
      // What it answers is not known, or the secret that signs links was never read.
      if (error instanceof StoreAway) return 'store away';
      throw error;
    }
  }

  /**
   * With what it answers. While the store is away it waits a while, and then it goes without: an application that
   * cannot tell a new message from an answer opens a second ticket. Throws `StoreAway`.
   */
  async function withAnswers<W extends Due>(mail: Mail<W>, records: boolean): Promise<Mail<W>> {
    const { delivery, waiting } = mail;
    if (delivery.kind !== 'inbound') return mail;
    try {
      return { ...mail, answers: await deps.answers.of(delivery.account, mail, records) };
    } catch (error) {
      if (error instanceof StoreAway && clock.now() - waiting.budgetFrom >= ANSWERS_WAIT) return mail;
      throw error;
    }
  }

  async function renderWith<W extends Due>(
    mail: readonly [Mail<W>, ...Mail<W>[]],
    keys: readonly string[],
  ): Promise<RenderedMail<W> | undefined> {
    const [first] = mail;
    const at = clock.now();
    const target = destinations.target(first.delivery);
    const { account } = first.delivery;
    const style = { ...target, attachments: await attachmentsOf(first, target) };
    if (mail.length === 1) {
      const { body, headers, ...part } = await renderer.render({ ...first, account, keys, at, style });
      return { body, headers, target, batch: undefined, parts: [{ ...first, ...part }] };
    }
    const shared = await renderer.renderShared({ url: first.delivery.url, account, parts: mail, keys, at, style });
    if (!shared) return undefined;
    const parts = mail.flatMap((one, i) => (shared.parts[i] ? [{ ...one, ...shared.parts[i] }] : []));
    return { ...shared, target, batch: parts.length > 1 ? shared.id : undefined, parts };
  }

  /** How its attachments go this time: once the receiver has found a post too large, `auto` means links. */
  async function attachmentsOf({ waiting, delivery, body }: Mail, target: PostTarget): Promise<AttachmentMode> {
    const { attachments, format } = target;
    if (attachments !== 'auto' || waiting.attempts === 0 || delivery.kind !== 'inbound') return attachments;
    if (factsOf(format).whole) return attachments;
    const statuses = (await spool.attempts(delivery.id)).map(({ status }) => status);
    const bytes = sizeOf(body);
    if (!wasTooLarge(statuses, bytes)) return attachments;
    log.info('delivery.too_large', { delivery: delivery.id, message: delivery.messageId, bytes });
    return 'link';
  }

  function note({ delivery: { id, kind }, message, summary, verdicts, parseError }: Mail & Findings): void {
    if (parseError !== null) unparsed.add();
    if (kind === 'inbound')
      deps.notes.note({ what: 'parsed', id, sender: message.envelope.mailFrom, summary, verdicts });
  }

  return frozen({
    async find(waiting) {
      const { delivery, budgetFrom } = waiting;
      const scanning = delivery.kind === 'inbound' ? deps.scanning : undefined;
      const turn = scanning && waiting.attempts === 0 ? await scanning.turn(delivery, budgetFrom) : undefined;
      if (turn !== undefined) return { none: 'later', at: turn };
      const found = await spool.message(delivery.messageId, delivery.id);
      if (!found) return { none: 'missing' };
      const { message, body } = found;
      if (!scanning || message.scan) return { waiting, delivery, message, body };
      const { id, envelope, trace } = message;
      const specimen = { id, envelope, trace, recipients: [delivery.recipient], body };
      const { scan, at } = await scanning.of(specimen, budgetFrom);
      if (scan) return { waiting, delivery, message: { ...message, scan }, body };
      return { none: 'later', at };
    },
    async render(mail) {
      const rendered = await unlessAway(mail, true);
      if (rendered !== 'store away') for (const part of rendered?.parts ?? []) note(part);
      return rendered;
    },
    async show(mail) {
      // Only a shared POST may be undefined.
      return (await unlessAway([mail], false)) ?? 'store away';
    },
    async discard({ id }, { body }) {
      // Failing to remove the file does not change the outcome of the attempt.
      await renderer.discard(body)?.catch((error: unknown) => log.error('delivery.fault', { delivery: id, error }));
    },
    fresh({ message, delivery, verdicts }) {
      if (message.verdicts || delivery.kind === 'events') return undefined;
      countVerdicts(verdicts);
      return verdicts;
    },
    /**
     * Reports to the reverse-path only if SPF passed: a forged one would make us send mail to third parties
     * (RFC 3834 section 2).
     */
    async tell(message, { spf }, delivery, outcome) {
      if (!message.envelope.dsn || outcome === 'deferred' || spf.result !== 'pass') return;
      const diag = outcome === 'failed' ? '5.4.7 delivery time expired' : '';
      await deps.senderReports.tell(message, delivery, outcome, diag);
    },
  });
}

/** How long mail waits for a store that is away to say what it answers. Milliseconds. */
const ANSWERS_WAIT = 10 * 60_000;

/** Below this no framework is known to refuse a form for its size, but for those that answer 413. */
const LARGE_FORM = 1024 * 1024;

/**
 * Whether a receiver refused a message of `size` bytes for its size: by 413, or by the answers of frameworks that have
 * no status for it (Django 400, Rack 500), given twice.
 */
export function wasTooLarge(statuses: readonly (number | null)[], size: number): boolean {
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
