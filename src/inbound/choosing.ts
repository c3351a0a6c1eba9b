import { frozen } from '../base/frozen.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { Scan } from '../mail/scan.ts';
import type { Fact, MailFacts } from './conditions.ts';
import { decide, type RouteDecision } from './decision.ts';
import type { Judging } from './judging.ts';
import type { RoutedRecipient, ScannedMessage } from './types.ts';

/** The recipients whose routes were chosen, and the results that were needed for it. */
interface Chosen {
  /** The recipients that get the message; if there are none, it is refused. */
  readonly routed: readonly RoutedRecipient[];
  readonly verdicts: Verdicts | undefined;
  readonly scan: Scan | undefined;
}

/** The facts already known about a message. */
interface Known {
  /** The result of the scanners. */
  readonly scan: Scan | undefined;
  /** The recipients for whom the brake on loops marked it. */
  readonly loops: readonly string[];
}

/** Decides between routes with conditions, before a message is accepted. */
export type Choosing = ReturnType<typeof createChoosing>;

interface ChoosingDeps {
  readonly judging: Judging;
  /** Scans a message now; undefined without a scanner, or without a result in time. */
  readonly scanNow: (message: ScannedMessage) => Promise<Scan | undefined>;
}

export function createChoosing({ judging, scanNow }: ChoosingDeps) {
  return frozen({
    async choose(
      message: ScannedMessage,
      routed: readonly RoutedRecipient[],
      { scan: given, loops }: Known,
    ): Promise<Chosen> {
      let facts: MailFacts = { sender: message.envelope.mailFrom, ...(given && { scan: given }) };
      let verdicts: Verdicts | undefined;
      let scan = given;

      const LOOKS: Readonly<Record<Fact, () => Promise<void>>> = {
        sender: async () => {},
        async content() {
          facts = { ...facts, content: (await judging.judge(message, false)).content };
        },
        async auth() {
          const judged = await judging.judge(message, true);
          verdicts = judged.verdicts ?? undefined;
          facts = { ...facts, content: judged.content, auth: judged.auth };
        },
        async scan() {
          scan = await scanNow(message);
          facts = { ...facts, scan: scan ?? null };
        },
      };

      /** Obtains only the facts that decide: most messages need no DNS and no scanner. */
      async function decided(choices: Parameters<typeof decide>[0], recipient: string): Promise<RouteDecision> {
        const own = loops.includes(recipient) ? { loop: true as const } : {};
        for (;;) {
          const decision = decide(choices, { ...facts, ...own });
          if (decision.kind !== 'open') return decision;
          await LOOKS[decision.fact]();
        }
      }

      const found: RoutedRecipient[] = [];
      for (const one of routed) {
        const { choices, refusable: _, ...plain } = one.match;
        if (!choices) {
          found.push(one);
          continue;
        }
        const decision = await decided(choices, one.recipient);
        const sealed = plain.replyData === undefined ? {} : { replyData: plain.replyData };
        if (decision.kind === 'matched') found.push({ ...one, match: { ...decision.match, ...sealed } });
      }
      return { routed: found, verdicts, scan };
    },
  });
}
