import { frozen } from '../base/frozen.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { Scan } from '../mail/scan.ts';
import type { FactName, MailFacts } from './conditions.ts';
import { decide, type RouteDecision } from './decision.ts';
import type { Inspector } from './inspection.ts';
import type { CandidateMessage, RoutedRecipient } from './types.ts';

/** The recipients whose routes were chosen, and the results that were needed for it. */
interface ContentRouting {
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
export type ContentRouter = ReturnType<typeof createContentRouter>;

interface ContentRouterDeps {
  readonly inspector: Inspector;
  /** Scans a message now; undefined without a scanner, or without a result in time. */
  readonly scanNow: (message: CandidateMessage) => Promise<Scan | undefined>;
}

export function createContentRouter({ inspector, scanNow }: ContentRouterDeps) {
  return frozen({
    async route(
      message: CandidateMessage,
      routed: readonly RoutedRecipient[],
      { scan: given, loops }: Known,
    ): Promise<ContentRouting> {
      let facts: MailFacts = { sender: message.envelope.mailFrom, ...(given && { scan: given }) };
      let verdicts: Verdicts | undefined;
      let scan = given;

      const LOOKUPS: Readonly<Record<FactName, () => Promise<void>>> = {
        sender: async () => {},
        async content() {
          facts = { ...facts, content: (await inspector.inspect(message, false)).content };
        },
        async auth() {
          const inspected = await inspector.inspect(message, true);
          verdicts = inspected.verdicts ?? undefined;
          facts = { ...facts, content: inspected.content, auth: inspected.auth };
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
          await LOOKUPS[decision.fact]();
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
