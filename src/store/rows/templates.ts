import { collection, type OwnedRow } from './collection.ts';

/** What a template holds, once as a draft and once as published. */
export interface TemplateContent {
  readonly code: string | null;
  readonly subject: string | null;
  readonly fromEmail: string | null;
  readonly fromName: string | null;
  readonly text: string | null;
}

/** A template. Neither name nor slug ever changes. */
export interface TemplateRow extends OwnedRow {
  readonly name: string;
  /** What `slugOf` makes of the name. */
  readonly slug: string;
  readonly labels: readonly string[];
  readonly draft: TemplateContent;
  /** Null: never published. */
  readonly published: TemplateContent | null;
  readonly publishedAt: Date | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change, so that two changes at once cannot undo one another. */
  readonly version: number;
}

export const templates = collection<TemplateRow>()({
  name: 'templates',
  access: 'own',
  limited: true,
  indexes: [],
  unique: [
    ['account', 'name'],
    ['account', 'slug'],
  ],
  dates: ['publishedAt', 'createdAt', 'updatedAt'],
});

/**
 * Which templates carry a label: one row for each pair, because an index holds single values. `id` is `<template>
 * <label>`. A label that a template carries has its row; a row may be left over from a change that was cut off, so the
 * template decides.
 */
interface TemplateLabelRow extends OwnedRow {
  readonly label: string;
  /** `id` of the template. */
  readonly template: string;
  /** Of the template, so that a list is in its order. */
  readonly name: string;
}

export const templateLabels = collection<TemplateLabelRow>()({
  name: 'template_labels',
  access: 'own',
  indexes: [
    ['account', 'label', 'name'],
    ['account', 'template'],
  ],
  dates: [],
});

/** The id of the row for a template and a label. */
export function templateLabelId(template: string, label: string): string {
  return `${template} ${label}`;
}
