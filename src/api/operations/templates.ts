import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { parseAddress } from '../../mail/addresses/address.ts';
import { MAX_CODE_BYTES, MAX_TEMPLATE_NAME, MAX_TEXT_BYTES, nameFault, slugOf } from '../../mail/merge/language.ts';
import { render as renderCode, toVars } from '../../mail/merge/merge.ts';
import { MAX_RENDERED } from '../../mail/template-errors.ts';
import type { TemplateContent, TemplateRow } from '../../store/rows/templates.ts';
import type { Call } from '../operation.ts';
import { listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { listOf, readAs, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';
import { hourlyEntry, hoursOf, SERIES_DAYS, toHourlyEntry } from './stats.ts';
import { addLabels, changeTemplate, findTemplate, pagesOfTemplates, settleLabels } from './template-rows.ts';

// Parameters and the record of the Templates group.

const MAX_LABELS = 10;
const MAX_LABEL = 100;
const MAX_SUBJECT = 10_000;
const MAX_FROM_NAME = 1000;
/** The contract has no limit on either; real templates have far fewer. */
const MAX_REGIONS = 10_000;
const MAX_VARIABLES = 10_000;

const bytes = (max: number) =>
  z.string().refine((value) => Buffer.byteLength(value) <= max, `Please enter at most ${max} bytes`);

const newName = text(MAX_TEMPLATE_NAME).describe('unique within the account, ignoring case; it never changes');
export const templateName = text(MAX_TEMPLATE_NAME).describe('name or slug of a template');

/** An address, unchanged; an empty text means none. */
const senderAddress = z
  .string()
  .max(1000)
  .transform(
    readAs((value) => {
      const address = value.trim();
      if (address === '') return null;
      return parseAddress(address) && address;
    }, 'Not a valid email address'),
  );

const contentParams = {
  from_email: optional(senderAddress).describe('default sender address; an empty text removes it'),
  from_name: optional(z.string().max(MAX_FROM_NAME)).describe('default sender name'),
  subject: optional(z.string().max(MAX_SUBJECT)).describe('default subject'),
  code: optional(bytes(MAX_CODE_BYTES)).describe(
    'HTML; an element with mc:edit="name" is a region that content can be put into, unless it is one without ' +
      `content, such as <img>; at most ${MAX_CODE_BYTES} bytes`,
  ),
  text: optional(bytes(MAX_TEXT_BYTES)).describe(`default text part; at most ${MAX_TEXT_BYTES} bytes`),
};

/** A label to filter by; clients send an empty text for none. */
const labelFilter = optional(z.string().max(MAX_LABEL)).describe('only templates with exactly this label');

/** The content of a template, with the given fields replaced. */
function toContent(before: TemplateContent, given: z.output<z.ZodObject<typeof contentParams>>): TemplateContent {
  return {
    code: given.code ?? before.code,
    subject: given.subject ?? before.subject,
    fromEmail: given.from_email === undefined ? before.fromEmail : given.from_email,
    fromName: given.from_name ?? before.fromName,
    text: given.text ?? before.text,
  };
}

const NO_CONTENT: TemplateContent = { code: null, subject: null, fromEmail: null, fromName: null, text: null };

const templateRecord = record('template record', {
  slug: str('immutable unique code name'),
  name: str('immutable unique name'),
  labels: listOf(z.string(), 'labels applied to the template'),
  code: strOrNull('HTML, the draft'),
  subject: strOrNull('default subject, the draft'),
  from_email: strOrNull('default sender address, the draft'),
  from_name: strOrNull('default sender name, the draft'),
  text: strOrNull('default text part, the draft'),
  publish_name: str('the same as name'),
  publish_code: strOrNull('HTML as published'),
  publish_subject: strOrNull('default subject as published'),
  publish_from_email: strOrNull('default sender address as published'),
  publish_from_name: strOrNull('default sender name as published'),
  publish_text: strOrNull('default text part as published'),
  published_at: timeOrNull('when it was last published', 'null: never'),
  created_at: time('when it was added'),
  updated_at: time('when it was last changed'),
});

function toTemplateRecord(row: Omit<TemplateRow, 'id' | 'account' | 'version'>) {
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
    published_at: toTime(row.publishedAt),
    created_at: toTime(row.createdAt),
    updated_at: toTime(row.updatedAt),
  };
}

// For the examples.
const CODE = '<p mc:edit="editable">editable content</p>';
const DRAFT = {
  code: CODE,
  subject: 'example subject',
  from_email: 'news@example.com',
  from_name: 'Example Name',
  text: 'Example text',
};

const publish = optional(z.boolean()).describe('false: only the draft; true if omitted');
const labels = optional(
  z
    .array(text(MAX_LABEL))
    .max(MAX_LABELS)
    .transform((all) => [...new Set(all)]),
).describe(`up to ${MAX_LABELS} labels of up to ${MAX_LABEL} characters`);

const add = operation({
  path: '/templates/add',
  access: 'settings',
  large: true,
  summary: 'Adds a template and, unless `publish` is false, publishes it.',
  notes:
    'The slug is derived from the name: lower case, with a hyphen for every run of characters other than ' +
    'letters and digits. Two names with the same slug cannot coexist.',
  params: { name: newName, ...contentParams, publish, labels },
  anyText: ['name'],
  returns: templateRecord,
  errors: ['Invalid_Template'],
  example: { name: 'Another Template', ...DRAFT, labels: ['example-label'] },
  async handle({ name, publish = true, labels = [], ...given }, call) {
    const fault = nameFault(name);
    if (fault !== undefined) throw call.refuse('Invalid_Template', fault);
    const now = call.now();
    const draft = toContent(NO_CONTENT, given);
    const row = {
      id: call.newToken(),
      name,
      slug: slugOf(name),
      labels,
      draft,
      published: publish ? draft : null,
      publishedAt: publish ? now : null,
      createdAt: now,
      updatedAt: now,
      version: 1,
    };
    // Opens and clicks of mail from an earlier template with this name may have arrived after its deletion.
    if ((await takenName(row.slug, call)) === undefined) await call.counters.forget('template', row.slug);
    await addLabels(row, labels, call.store);
    if ((await call.store.templates.insert(row)) === 'duplicate') {
      await settleLabels(row.id, call.store);
      throw call.refuse(
        'Invalid_Template',
        `A template with name "${(await takenName(row.slug, call)) ?? name}" already exists`,
      );
    }
    return toTemplateRecord(row);
  },
});

/** The name of the template with this slug; it may differ from the requested one. */
async function takenName(slug: string, { store }: Call<never>): Promise<string | undefined> {
  return (await store.templates.one({ slug }))?.name;
}

/** Operations on one template have these in common. */
const ofTemplate = {
  params: { name: templateName },
  anyText: ['name'],
  returns: templateRecord,
  errors: ['Unknown_Template'],
} as const;

const info = operation({
  path: '/templates/info',
  access: 'settings',
  summary: 'Shows a template.',
  ...ofTemplate,
  example: { name: 'Example Template' },
  handle: async ({ name }, call) => toTemplateRecord(await findTemplate(name, call)),
});

const update = operation({
  path: '/templates/update',
  access: 'settings',
  large: true,
  summary:
    'Changes the draft of a template and, unless `publish` is false, publishes it; null fields remain unchanged.',
  notes: 'Publishing applies the whole draft, including earlier changes that were not published.',
  params: { name: templateName, ...contentParams, publish, labels },
  anyText: ['name'],
  returns: templateRecord,
  errors: ['Unknown_Template'],
  example: { name: 'Example Template', subject: 'another subject', publish: false },
  async handle({ name, publish = true, labels, ...given }, call) {
    return toTemplateRecord(
      await changeTemplate(name, call, (row) => {
        const now = call.now();
        const draft = toContent(row.draft, given);
        return { draft, labels, updatedAt: now, ...(publish ? { published: draft, publishedAt: now } : {}) };
      }),
    );
  },
});

const publishDraft = operation({
  path: '/templates/publish',
  access: 'settings',
  summary: 'Publishes the draft of a template; messages sent from now on use it.',
  ...ofTemplate,
  example: { name: 'example-template' },
  async handle({ name }, call) {
    return toTemplateRecord(
      await changeTemplate(name, call, (row) => {
        const now = call.now();
        return { published: row.draft, publishedAt: now, updatedAt: now };
      }),
    );
  },
});

const remove = operation({
  path: '/templates/delete',
  access: 'settings',
  summary: 'Deletes a template and returns it.',
  ...ofTemplate,
  example: { name: 'Example Template' },
  async handle({ name }, call) {
    const { id } = await findTemplate(name, call);
    const found = await call.store.templates.remove({ id });
    await settleLabels(id, call.store);
    const removed = call.orRefuse(found, 'Unknown_Template', name);
    // Another template may get this name, and must not inherit these statistics.
    await call.counters.forget('template', removed.slug);
    return toTemplateRecord(removed);
  },
});

const list = listOperation({
  path: '/templates/list',
  access: 'settings',
  summary: 'Lists the templates of the account, by name.',
  notes: 'Returns all of them; `after` continues after a name.',
  params: {
    label: labelFilter,
    after: optional(text(MAX_TEMPLATE_NAME)).describe('continue after this name (not part of the Mandrill API)'),
  },
  returns: z.array(templateRecord),
  example: { label: 'example-label' },
  pages: ({ label, after }, { store }) =>
    mapPages(pagesOfTemplates(label === '' ? undefined : label, after, store), (page) => page.map(toTemplateRecord)),
});

const timeSeries = operation({
  path: '/templates/time-series',
  access: 'settings',
  summary: 'Shows the statistics of a template by hour, for the last 30 days.',
  notes: 'Only hours with activity, oldest first. Deleting the template deletes its statistics.',
  params: { name: templateName },
  anyText: ['name'],
  returns: z.array(hourlyEntry),
  errors: ['Unknown_Template'],
  example: { name: 'Example Template' },
  async handle({ name }, call) {
    const { slug } = await findTemplate(name, call);
    return (await hoursOf(call.store, 'template', slug, SERIES_DAYS, call.now())).map(toHourlyEntry);
  },
});

export const regionContents = z.array(z.object({ name: z.string(), content: z.string() })).max(MAX_REGIONS);

const variable = z.object({
  name: text(1000).refine((name) => !name.startsWith('_'), 'Merge variable names may not start with _'),
  content: optional(z.union([z.string(), z.number(), z.boolean()])),
});

const render = operation({
  path: '/templates/render',
  access: 'settings',
  large: true,
  summary: 'Fills the regions of a template, replaces its merge tags and returns the HTML.',
  notes:
    'Uses the published code, or the draft if the template was never published. The content of an element with ' +
    'mc:edit="name" is replaced and the attribute removed; regions without content stay as they are, and names ' +
    'without a region are ignored. Elements that cannot have content, such as <img>, stay as they are, with the ' +
    'attribute. Merge tags, also in content: *|NAME|*, *|UPPER:NAME|*, LOWER, TITLE, URL, HTML, *|DATE:d/m/Y|*, ' +
    '*|CURRENT_YEAR|*, *|IF:NAME|*, *|IF:NAME=value|* (also != > < >= <=), *|ELSEIF:NAME=value|*, *|ELSE:|*, ' +
    '*|END:IF|*, *|IFNOT:NAME|*; values are not escaped. Without merge_vars, tags are left unchanged; with them, ' +
    'unknown tags become empty. *|UNSUB:url|* is left unchanged, because the link exists only in sent ' +
    `mail. The result has at most ${MAX_RENDERED} characters.`,
  anyText: ['template_name'],
  params: {
    template_name: templateName,
    template_content: regionContents.describe(
      'name of each region and the content to inject; if a name occurs twice, the last one counts',
    ),
    merge_vars: optional(z.array(variable).max(MAX_VARIABLES)).describe(
      'name (case-insensitive, not beginning with _) and content of each merge variable; if a name occurs ' +
        'twice, the last one counts',
    ),
  },
  returns: z.object({ html: str('the rendered HTML') }),
  errors: ['Unknown_Template'],
  example: {
    template_name: 'Example Template',
    template_content: [{ name: 'editable', content: '<div>content to inject *|MERGE1|*</div>' }],
    merge_vars: [{ name: 'merge1', content: 'merge1 content' }],
  },
  async handle({ template_name: name, template_content: regions, merge_vars: variables }, call) {
    const { published, draft } = await findTemplate(name, call);
    const rendered = await renderCode({
      code: (published ?? draft).code ?? '',
      contents: new Map(regions.map(({ name, content }) => [name, content])),
      vars: variables && toVars(variables.map(({ name, content = '' }) => ({ name, content: String(content) }))),
      now: call.now(),
    });
    if ('html' in rendered) return rendered;
    throw call.invalid(
      rendered.tooLong === 'vars' ? 'merge_vars' : 'template_content',
      `The rendered template would be longer than ${MAX_RENDERED} characters`,
    );
  },
});

export const templateOperations = [add, info, update, publishDraft, remove, list, timeSeries, render];
