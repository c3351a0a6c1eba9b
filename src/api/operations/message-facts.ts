import { z } from 'zod';
import { namesOf } from '../../base/tables.ts';
import { HIDDEN_REASONS } from '../../mail/facts/box.ts';
import type { MessageFacts } from '../../mail/facts/facts.ts';
import { INVISIBLE } from '../../mail/facts/invisible.ts';
import { LINK_REASONS } from '../../mail/facts/link-hosts.ts';
import { bool, int, listOf, record, str, strOrNull } from './fields.ts';

const listed = <Name extends string>(names: readonly Name[], about: (name: Name) => string): string =>
  names.map((name) => `${name}: ${about(name)}`).join('; ');

/** Facts about a message (mail/facts/facts.ts): `msg.facts` of a post whose route asks for it. */
export const factsRecord = record('facts about a message', {
  visible_text: str(
    'the text that a person sees: of the HTML, with each block on its own line, or of the text if there is no ' +
      'HTML; at most 262,144 characters',
  ),
  hidden: listOf(
    z.object({
      why: z.enum(namesOf(HIDDEN_REASONS)).describe(listed(namesOf(HIDDEN_REASONS), (name) => HIDDEN_REASONS[name])),
      text: str('the text; its first 10,000 characters'),
    }),
    'text of the HTML that a person does not see, including preview texts of newsletters',
  ),
  invisible: listOf(
    z.object({
      kind: z.enum(namesOf(INVISIBLE)).describe(listed(namesOf(INVISIBLE), (name) => INVISIBLE[name].about)),
      where: z.enum(['subject', 'from_name', 'visible_text']).describe('the text that has them'),
      at: int('position in code points'),
      length: int('number of code points'),
      text: z.string().optional().describe('the hidden text, if tags or selectors spell one'),
    }),
    'runs of invisible characters, except where scripts and emoji need them',
  ),
  links: listOf(
    z.object({
      why: z.enum(namesOf(LINK_REASONS)).describe(listed(namesOf(LINK_REASONS), (name) => LINK_REASONS[name])),
      text: str('the visible text of the link'),
      text_host: strOrNull('the host named in the text'),
      href: str('the address of the link'),
      host: str('the host of the address'),
    }),
    'links to another host than their text names; hosts of one registered domain count as the same, and ' +
      'redirects are not followed',
  ),
  counts: z
    .object({ hidden: z.int(), invisible: z.int(), links: z.int() })
    .describe('total number of each; at most 100 are listed'),
  cut: bool('true if something was not examined or is not listed'),
});

export function toFactsRecord(facts: MessageFacts): z.input<typeof factsRecord> {
  const { hidden, invisible, links } = facts;
  return { ...facts, hidden: [...hidden], invisible: [...invisible], links: [...links] };
}
