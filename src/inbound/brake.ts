import { readStart } from '../base/bytes.ts';
import { createBoundedCache } from '../base/cache.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { authorOf } from '../mail/addresses/author.ts';
import { isReply, REPLY_FIELDS } from '../mail/automated.ts';
import { createFieldSearch, parseFound, START_BYTES } from '../mail/mime/field-search.ts';
import { firstValue, type HeaderField } from '../mail/mime/headers.ts';
import type { CandidateMessage, RoutedRecipient } from './types.ts';

interface BrakeSettings {
  /** More replies than this from one address to another within `windowMs` are a loop; 0 turns the brake off. */
  readonly messages: number;
  readonly windowMs: number;
}

/**
 * Detects loops between an application and a program that reply to all mail. It counts messages that identify
 * themselves as replies, by author and recipient, and marks those that come too fast for people; notifications, as of a
 * monitoring system, do not count. A pair stays marked until the rate is half the limit. Each host counts in memory;
 * the mark is stored with the message.
 */
export type Brake = ReturnType<typeof createBrake>;

/** The messages of an author to a recipient: since `from`, and in the window before that. */
interface Pair {
  readonly from: number;
  readonly count: number;
  readonly before: number;
  readonly isLoop: boolean;
}

// A flood of addresses evicts only pairs of its own account, the least recently used first.
const MAX_ACCOUNTS = 200;
const MAX_PAIRS = 500;
/** Characters of an address that are compared (RFC 5321 section 4.5.3.1). */
const MAX_ADDRESS = 320;

const find = createFieldSearch(REPLY_FIELDS.map((name) => ({ name, most: 1 })));
const NONE: readonly string[] = [];

export function createBrake(
  { messages, windowMs }: BrakeSettings,
  { clock, log, metrics }: { readonly clock: Clock; readonly log: Log; readonly metrics: Metrics },
) {
  const accounts = createBoundedCache<ReturnType<typeof createPairs>>({ most: MAX_ACCOUNTS, keepUsed: true });
  const loops = metrics.counter('postern_loops_total');

  function createPairs() {
    return createBoundedCache<Pair>({ most: MAX_PAIRS, keepUsed: true });
  }

  /** Counts a reply; returns whether it is part of a loop. */
  function count(account: string, sender: string, recipient: string): boolean {
    const known = accounts.get(account);
    const pairs = known ?? createPairs();
    if (!known) accounts.set(account, pairs);
    const key = `${sender} ${recipient}`;
    const before = pairs.get(key);
    const next = withAnother(before, clock.monotonic());
    pairs.set(key, next);
    if (next.isLoop && !before?.isLoop) {
      loops.add();
      log.warn('message.loop', { account, from: sender, to: recipient, answers: messages, minutes: windowMs / 60_000 });
    }
    return next.isLoop;
  }

  function withAnother(pair: Pair | undefined, now: number): Pair {
    const { from, count: counted, before } = atTime(pair ?? { from: now, count: 0, before: 0 }, now);
    // Capped, so that a long loop ends as soon as a short one.
    const count = Math.min(counted + 1, messages + 1);
    const recent = count + before * (1 - (now - from) / windowMs);
    return { from, count, before, isLoop: recent > messages || (pair?.isLoop === true && recent > messages / 2) };
  }

  function atTime(pair: Omit<Pair, 'isLoop'>, now: number): Omit<Pair, 'isLoop'> {
    const windows = Math.floor((now - pair.from) / windowMs);
    if (windows === 0) return pair;
    return { from: pair.from + windows * windowMs, count: 0, before: windows === 1 ? pair.count : 0 };
  }

  return frozen({
    /** The recipients for whom the message is part of a loop. To be called once for each message. */
    async loopsOf(
      { envelope, body }: Pick<CandidateMessage, 'envelope' | 'body'>,
      routed: readonly RoutedRecipient[],
    ): Promise<readonly string[]> {
      const inbound = messages === 0 ? [] : routed.filter(({ match }) => match.kind === 'inbound');
      if (inbound.length === 0) return NONE;
      const start = await readStart(body, START_BYTES);
      const fields = parseFound(find(start));
      const sender = isReply(fields) ? senderOf(fields, envelope.mailFrom) : '';
      if (sender === '') return NONE;
      return inbound
        .filter(({ recipient, match }) =>
          count(match.account, sender, varies(match) ? match.routeId : toKey(recipient)),
        )
        .map(({ recipient }) => recipient);
    },
  });
}

/** The author, else the envelope sender. Nearly all authors are in one of two plain forms, which are cheap to read. */
function senderOf(fields: readonly HeaderField[], mailFrom: string): string {
  const plain = PLAIN_FROM.exec(firstValue(fields, 'from') ?? '');
  return toKey(plain?.[1] ?? plain?.[2] ?? authorOf(fields, mailFrom).mailbox?.address ?? '');
}

const PLAIN_FROM = /^(?:[\w .'-]{0,100}<([\w.+=-]+@[\w.-]+)>|([\w.+=-]+@[\w.-]+))$/;

const toKey = (address: string): string => address.slice(0, MAX_ADDRESS).toLowerCase();

/** Whether the address differs in each conversation; then the route counts as the recipient. */
const varies = ({ replyData, captures }: RoutedRecipient['match']): boolean =>
  replyData !== undefined || captures !== undefined;
