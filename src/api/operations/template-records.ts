import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { optional, text } from '../../base/schema.ts';
import { parseAddress } from '../../mail/address.ts';
import { MAX_CODE_BYTES, MAX_TEMPLATE_NAME, MAX_TEXT_BYTES } from '../../mail/template.ts';
import type { TemplateContent, TemplateRow } from '../../store/templates.ts';

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
