import { isDeepStrictEqual } from 'node:util';
import { slugOf } from '../../mail/merge/language.ts';
import type { Patch } from '../../store/driver/port.ts';
import { pagesByBytes } from '../../store/pages.ts';
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

/** The templates by name, after the name `after`, with the label if one is given. */
export function pagesOfTemplates(
  label: string | undefined,
  after: string | undefined,
  { templates, templateLabels }: AccountStore,
): AsyncGenerator<readonly TemplateRow[]> {
  // Every name is behind the empty one.
  return pagesByBytes(after ?? '', async (behind, page) => {
    const name = { range: { gt: behind } };
    if (label === undefined) {
      const rows = await templates.many({ name }, { sort: 'name', ...page });
      return { rows, next: rows.at(-1)?.name };
    }
    const labelled = await templateLabels.many({ label, name }, { sort: 'name', limit: page.limit });
    // By name, not by id: account and name have their own index, so the database has no choice.
    const found = await templates.many({ name: { in: labelled.map((row) => row.name) } }, { sort: 'name', ...page });
    const ids = new Set(labelled.map(({ template }) => template));
    const rows = found.filter(({ id, labels }) => ids.has(id) && labels.includes(label));
    // Rows beyond the page are read again; labels of deleted templates are skipped.
    return { rows, next: found.at(-1)?.name ?? labelled.at(-1)?.name };
  });
}
