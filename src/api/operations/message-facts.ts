import { z } from 'zod';
import { namesOf } from '../../base/tables.ts';
import { WHY } from '../../mail/facts/box.ts';
import type { MessageFacts } from '../../mail/facts/facts.ts';
import { INVISIBLE } from '../../mail/facts/invisible.ts';
import { LINK_WHY } from '../../mail/facts/link-hosts.ts';
import { str } from './fields.ts';

const listed = <Name extends string>(names: readonly Name[], about: (name: Name) => string): string =>
  names.map((name) => `${name}: ${about(name)}`).join('; ');

/** What a person sees of a message (mail/facts/facts.ts): `msg.facts` of a post whose route asks for it. */
export const factsRecord = z
  .object({
    visible_text: str(
      'the text that a person sees: of the HTML, with blocks on lines of their own; of the text if there is no HTML; at most 262,144 characters',
    ),
    hidden: z
      .array(
        z.object({
          why: z.enum(namesOf(WHY)).meta({ description: listed(namesOf(WHY), (name) => WHY[name]) }),
          text: str('the text; its first 10,000 characters'),
        }),
      )
      .meta({
        description: 'text of the HTML that a person does not see; preview texts of newsletters are among them',
      }),
    invisible: z
      .array(
        z.object({
          kind: z
            .enum(namesOf(INVISIBLE))
            .meta({ description: listed(namesOf(INVISIBLE), (name) => INVISIBLE[name].about) }),
          where: z.enum(['subject', 'from_name', 'visible_text']).meta({ description: 'the text that has them' }),
          at: z.int().meta({ description: 'characters (code points) before them' }),
          length: z.int().meta({ description: 'how many' }),
          text: z.string().optional().meta({ description: 'what they say, if tags or selectors spell something' }),
        }),
      )
      .meta({ description: 'runs of characters that nobody sees, except where scripts and emoji need them' }),
    links: z
      .array(
        z.object({
          why: z.enum(namesOf(LINK_WHY)).meta({ description: listed(namesOf(LINK_WHY), (name) => LINK_WHY[name]) }),
          text: str('the visible text of the link'),
          text_host: z.string().nullable().meta({ description: 'the host that the text names' }),
          href: str('the address of the link'),
          host: str('the host that it leads to'),
        }),
      )
      .meta({
        description:
          'links that lead to another host than a person reads; hosts of one registered domain count as one, and redirectors are not followed',
      }),
    counts: z
      .object({ hidden: z.int(), invisible: z.int(), links: z.int() })
      .meta({ description: 'how many there are of each; at most 100 are listed' }),
    cut: z.boolean().meta({ description: 'whether something was not looked at or is not listed' }),
  })
  .meta({ title: 'facts about a message' });

export function toFactsRecord(facts: MessageFacts): z.input<typeof factsRecord> {
  const { hidden, invisible, links } = facts;
  return { ...facts, hidden: [...hidden], invisible: [...invisible], links: [...links] };
}

export const NO_FACTS: z.input<typeof factsRecord> = {
  visible_text: '',
  hidden: [],
  invisible: [],
  links: [],
  counts: { hidden: 0, invisible: 0, links: 0 },
  cut: false,
};
