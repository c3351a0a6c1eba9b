import { isDeepStrictEqual } from 'node:util';
import { slugOf } from '../../mail/merge/language.ts';
import type { Patch } from '../../store/driver/port.ts';
import { type TemplateRow, templateLabelId } from '../../store/rows/templates.ts';
import type { AccountStore } from '../../store/store.ts';
import type { Call } from '../operation.ts';

// Finds the rows of templates and keeps those of their labels in sync.

/** Finds a template by name or slug. Throws Unknown_Template. A name determines its slug, so one query is enough. */
export async function findTemplate(name: string, { store, refuse }: Call<'Unknown_Template'>): Promise<TemplateRow> {
  const row = await store.templates.one({ slug: slugOf(name) });
  if (!row || (row.name !== name && row.slug !== name)) throw refuse('Unknown_Template', name);
  return row;
}

/**
 * Changes a template by the patch that `toPatch` returns for its current row. After a concurrent change, `toPatch` is
 * called again, so that no change undoes another. Every retry means that another change succeeded, so the loop ends.
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

/**
 * Inserts the rows of labels before the template has them: if this is interrupted, a list may find too many rows, never
 * too few.
 */
export async function addLabels(
  { id, name }: Pick<TemplateRow, 'id' | 'name'>,
  labels: readonly string[],
  store: AccountStore,
): Promise<void> {
  for (const label of labels)
    await store.templateLabels.insert({ id: templateLabelId(id, label), label, template: id, name });
}

/**
 * Makes the rows of labels match those of the template. Repeats if the template changed meanwhile: of concurrent calls,
 * the last to end has seen the final state.
 */
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

/** Target length of a page in characters of content: a page is held in memory and written as JSON in one piece. */
const PAGE_LENGTH = 4_000_000;
/** Maximum rows of a page: the size of the next ones is unknown, and each may hold megabytes. */
const MOST_ROWS = 64;

/**
 * The templates by name, after the name `after`, with the label if one is given. The size of a page depends on the
 * length of the previous ones.
 */
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

/** `last` is the name to continue after; undefined if there are no more. */
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
  // By name, not by id: account and name have their own index, so the database has no choice.
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
