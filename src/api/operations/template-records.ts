import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { optional, text } from '../../base/schema.ts';
import { parseAddress } from '../../mail/address.ts';
import { MAX_CODE_BYTES, MAX_TEMPLATE_NAME, MAX_TEXT_BYTES, slugOf } from '../../mail/merge/language.ts';
import type { Patch } from '../../store/driver/port.ts';
import { type TemplateContent, type TemplateRow, templateLabelId } from '../../store/rows/templates.ts';
import type { AccountStore } from '../../store/store.ts';
import type { Call } from '../operation.ts';

// How the rows of templates and of their labels are found and kept in step.

/** The template of that name or slug; throws when there is none. A name determines its slug, so one look-up is enough. */
export async function findTemplate(name: string, { store, refuse }: Call<'Unknown_Template'>): Promise<TemplateRow> {
  const row = await store.templates.one({ slug: slugOf(name) });
  if (!row || (row.name !== name && row.slug !== name)) throw refuse('Unknown_Template', name);
  return row;
}

/**
 * Changes a template by what `toPatch` makes of it as it is. When somebody else was faster it is asked again, so that no change
 * undoes another; each time that happens another change has succeeded, so it comes to an end.
 */
export async function changeTemplate(
  name: string,
  call: Call<'Unknown_Template'>,
  toPatch: (row: TemplateRow) => Patch<TemplateRow>,
): Promise<TemplateRow> {
  for (;;) {
    const row = await findTemplate(name, call);
    const patch = toPatch(row);
    if (patch.labels) await addLabels(row, patch.labels, call.store);
    const changed = await call.store.templates.change(
      { id: row.id, version: row.version },
      { ...patch, version: row.version + 1 },
    );
    if (patch.labels) await settleLabels(row.id, call.store);
    if (changed) return changed;
  }
}

/** Makes the rows of labels, before the template carries them: should we be cut off, a list may find too many rows, never too few. */
export async function addLabels(
  { id, name }: Pick<TemplateRow, 'id' | 'name'>,
  labels: readonly string[],
  store: AccountStore,
): Promise<void> {
  for (const label of labels)
    await store.templateLabels.insert({ id: templateLabelId(id, label), label, template: id, name });
}

/** Makes the rows of labels those that the template carries. Again when it changed meanwhile: whoever ends last has seen the last state. */
export async function settleLabels(template: string, store: AccountStore): Promise<void> {
  for (let row = await store.templates.one({ id: template }); ; ) {
    const labels = row?.labels ?? [];
    if (row) await addLabels(row, labels, store);
    for (const { id, label } of await store.templateLabels.many({ template })) {
      if (!labels.includes(label)) await store.templateLabels.remove({ id });
    }
    const again = await store.templates.one({ id: template });
    if (isDeepStrictEqual(again?.labels, row?.labels)) return;
    row = again;
  }
}

/** Characters of content that a page should have: it is held in memory, and written as JSON in one go. */
const PAGE_LENGTH = 4_000_000;
/** Most rows of a page: nobody knows how large the next ones are, and each may hold megabytes. */
const MOST_ROWS = 64;

/** The templates by name, those after the name `after`, with the label if one is given. Pages are as long as the ones before were light. */
export async function* pagesOfTemplates(
  label: string | undefined,
  after: string | undefined,
  store: AccountStore,
): AsyncGenerator<readonly TemplateRow[]> {
  let limit = 1;
  for (let from = after; ; ) {
    const { rows, last } = await nextRows(label, from, limit, store);
    yield rows;
    if (last === undefined) return;
    from = last;
    const length = rows.reduce((sum, row) => sum + lengthOf(row), 0);
    limit = length > PAGE_LENGTH ? Math.max(1, limit >> 1) : Math.min(MOST_ROWS, limit * 2);
  }
}

/** `last` is the name to go on after; undefined: there are no more. */
async function nextRows(
  label: string | undefined,
  after: string | undefined,
  limit: number,
  store: AccountStore,
): Promise<{ rows: TemplateRow[]; last: string | undefined }> {
  const page = after === undefined ? {} : { name: { range: { gt: after } } };
  if (label === undefined) {
    const rows = await store.templates.many(page, { sort: 'name', limit });
    return { rows, last: rows.length < limit ? undefined : rows.at(-1)?.name };
  }
  const labelled = await store.templateLabels.many({ label, ...page }, { sort: 'name', limit });
  // By name, not by id: with the account it is an index of its own, which leaves a database no choice.
  const rows = await store.templates.many({ name: { in: labelled.map(({ name }) => name) } });
  const labelling = new Map(rows.filter(({ labels }) => labels.includes(label)).map((row) => [row.id, row]));
  return {
    rows: labelled.flatMap(({ template }) => labelling.get(template) ?? []),
    last: labelled.length < limit ? undefined : labelled.at(-1)?.name,
  };
}

function lengthOf({ draft, published }: TemplateRow): number {
  return [draft.code, draft.text, published?.code, published?.text].reduce((sum, part) => sum + (part?.length ?? 0), 0);
}

// Parameters and the record of the Templates group.

const MAX_LABELS = 10;
const MAX_LABEL = 100;
const MAX_SUBJECT = 10_000;
const MAX_FROM_NAME = 1000;

const bytes = (max: number) =>
  z.string().refine((value) => Buffer.byteLength(value) <= max, `Please enter at most ${max} bytes`);

export const newName = text(MAX_TEMPLATE_NAME).meta({
  description: 'unique within the account, letters in any case; it never changes',
});
export const givenName = text(MAX_TEMPLATE_NAME).meta({ description: 'name or slug of a template' });

/** An address as it was given; an empty text is no address. */
const senderAddress = z
  .string()
  .max(1000)
  .transform((value, context) => {
    const address = value.trim();
    if (address === '' || parseAddress(address)) return address === '' ? null : address;
    context.addIssue({ code: 'custom', message: 'Not a valid email address' });
    return z.NEVER;
  });

/** The content of a template as add and update take it. */
export const contentParams = {
  from_email: optional(senderAddress).meta({ description: 'default sender address; an empty text removes it' }),
  from_name: optional(z.string().max(MAX_FROM_NAME)).meta({ description: 'default sender name' }),
  subject: optional(z.string().max(MAX_SUBJECT)).meta({ description: 'default subject' }),
  code: optional(bytes(MAX_CODE_BYTES)).meta({
    description: `HTML; an element with mc:edit="name" is a region that content can be put into; at most ${MAX_CODE_BYTES} bytes`,
  }),
  text: optional(bytes(MAX_TEXT_BYTES)).meta({ description: `default text part; at most ${MAX_TEXT_BYTES} bytes` }),
};

/** Labels; one that is given twice counts once. */
export const labelParams = {
  labels: optional(
    z
      .array(text(MAX_LABEL))
      .max(MAX_LABELS)
      .transform((labels) => [...new Set(labels)]),
  ).meta({ description: `up to ${MAX_LABELS} labels of up to ${MAX_LABEL} characters` }),
};

/** A label to list by; clients send an empty text for none. */
export const labelFilter = optional(z.string().max(MAX_LABEL)).meta({
  description: 'only templates with exactly this label',
});

interface GivenContent {
  readonly code?: string | undefined;
  readonly subject?: string | undefined;
  readonly from_email?: string | null | undefined;
  readonly from_name?: string | undefined;
  readonly text?: string | undefined;
}

/** The content of a template with what was given in place of what was there. */
export function toContent(before: TemplateContent, given: GivenContent): TemplateContent {
  return {
    code: given.code ?? before.code,
    subject: given.subject ?? before.subject,
    fromEmail: given.from_email === undefined ? before.fromEmail : given.from_email,
    fromName: given.from_name ?? before.fromName,
    text: given.text ?? before.text,
  };
}

export const NO_CONTENT: TemplateContent = { code: null, subject: null, fromEmail: null, fromName: null, text: null };

const say = (description: string) => z.string().meta({ description });
const maybe = (description: string) => z.string().nullable().meta({ description });
const time = (description: string) => say(`${description}, UTC, YYYY-MM-DD HH:MM:SS`);

export const templateRecord = z
  .object({
    slug: say('immutable unique code name'),
    name: say('immutable unique name'),
    labels: z.array(z.string()).meta({ description: 'labels applied to the template' }),
    code: maybe('HTML, the draft'),
    subject: maybe('default subject, the draft'),
    from_email: maybe('default sender address, the draft'),
    from_name: maybe('default sender name, the draft'),
    text: maybe('default text part, the draft'),
    publish_name: say('the same as name'),
    publish_code: maybe('HTML as published'),
    publish_subject: maybe('default subject as published'),
    publish_from_email: maybe('default sender address as published'),
    publish_from_name: maybe('default sender name as published'),
    publish_text: maybe('default text part as published'),
    published_at: maybe('when it was last published, UTC, YYYY-MM-DD HH:MM:SS; null: never'),
    created_at: time('when it was added'),
    updated_at: time('when it was last changed'),
  })
  .meta({ title: 'template record' });

export function toTemplateRecord(row: Omit<TemplateRow, 'id' | 'account' | 'version'>) {
  const { draft, published } = row;
  return {
    slug: row.slug,
    name: row.name,
    labels: [...row.labels],
    code: draft.code,
    subject: draft.subject,
    from_email: draft.fromEmail,
    from_name: draft.fromName,
    text: draft.text,
    publish_name: row.name,
    publish_code: published?.code ?? null,
    publish_subject: published?.subject ?? null,
    publish_from_email: published?.fromEmail ?? null,
    publish_from_name: published?.fromName ?? null,
    publish_text: published?.text ?? null,
    published_at: row.publishedAt && toTimestamp(row.publishedAt),
    created_at: toTimestamp(row.createdAt),
    updated_at: toTimestamp(row.updatedAt),
  };
}
