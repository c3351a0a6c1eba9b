import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { type MetadataFieldRow, metadataFieldId } from '../../store/rows/messages.ts';
import { operation } from '../operation.ts';
import { record, str, strOrNull } from './fields.ts';

/** Maximum fields of an account; each is a column of its exports. */
const MAX_FIELDS = 50;
const LONGEST_TEMPLATE = 10_000;

const name = text(255)
  .refine((value) => !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(value), 'Please enter a name without control characters')
  .describe('the name of the field, as messages have it in their `metadata`');

const fieldRecord = record('metadata field', {
  name: str('the name of the field'),
  state: z
    .enum(['active', 'delete', 'index'])
    .describe('always `active` here: adding and deleting a field take effect immediately'),
  view_template: strOrNull('a Mustache template for programs that show activity; kept as it is'),
});

const viewTemplate = z.string().max(LONGEST_TEMPLATE).describe('a Mustache template for programs that show activity');

const toRecord = ({ name, viewTemplate }: MetadataFieldRow) => ({
  name,
  state: 'active' as const,
  view_template: viewTemplate,
});

const list = operation({
  path: '/metadata/list',
  access: 'settings',
  summary: 'Lists the metadata fields of the account, oldest first.',
  notes:
    'Each is a column of /exports/activity. Messages keep all their metadata, and /messages/search finds it ' +
    '(`u_name:value`), whether a field is listed here or not.',
  params: {},
  returns: z.array(fieldRecord),
  async handle(_, { store }) {
    return (await store.metadataFields.many({}, { sort: 'createdAt' })).map(toRecord);
  },
});

const add = operation({
  path: '/metadata/add',
  access: 'settings',
  summary: 'Adds a metadata field: a column of the activity export.',
  notes: `An account has at most ${MAX_FIELDS}.`,
  params: { name, view_template: optional(viewTemplate) },
  returns: fieldRecord,
  errors: ['Metadata_FieldLimit'],
  example: { name: 'order_id' },
  handle: ({ name, view_template: template = null }, { store, refuse, invalid, inTurn, now }) =>
    inTurn('metadata', async () => {
      const taken = () => invalid('name', 'A metadata field with this name already exists');
      const known = await store.metadataFields.many({}, { sort: 'createdAt' });
      if (known.some((field) => field.name === name)) throw taken();
      if (known.length >= MAX_FIELDS) throw refuse('Metadata_FieldLimit');
      const row = { id: metadataFieldId(store.account, name), name, viewTemplate: template, createdAt: now() };
      if ((await store.metadataFields.insert(row)) === 'duplicate') throw taken();
      return toRecord({ ...row, account: store.account });
    }),
});

const update = operation({
  path: '/metadata/update',
  access: 'settings',
  summary: 'Changes the view template of a metadata field.',
  notes: 'If omitted, the template is kept; an empty one removes it.',
  params: { name, view_template: optional(viewTemplate) },
  returns: fieldRecord,
  errors: ['Unknown_MetadataField'],
  example: { name: 'group_id', view_template: '{{value}}' },
  async handle({ name, view_template: template }, { store, orRefuse }) {
    const patch = template === undefined ? {} : { viewTemplate: template === '' ? null : template };
    const row = await store.metadataFields.change({ id: metadataFieldId(store.account, name) }, patch);
    return toRecord(orRefuse(row, 'Unknown_MetadataField', name));
  },
});

const remove = operation({
  path: '/metadata/delete',
  access: 'settings',
  summary: 'Deletes a metadata field. Messages keep their values.',
  params: { name },
  returns: fieldRecord,
  errors: ['Unknown_MetadataField'],
  example: { name: 'group_id' },
  async handle({ name }, { store, orRefuse }) {
    const row = await store.metadataFields.remove({ id: metadataFieldId(store.account, name) });
    return toRecord(orRefuse(row, 'Unknown_MetadataField', name));
  },
});

export const metadata = [list, add, update, remove];
