import { collection, type OwnedRow } from './collection.ts';

/** The content of a template, as a draft or as published. */
export interface TemplateContent {
  readonly code: string | null;
  readonly subject: string | null;
  readonly fromEmail: string | null;
  readonly fromName: string | null;
  readonly text: string | null;
}

/** A template. Its name and slug never change. */
export interface TemplateRow extends OwnedRow {
  readonly name: string;
  /** `slugOf` the name. */
  readonly slug: string;
  readonly labels: readonly string[];
  readonly draft: TemplateContent;
  /** Null: never published. */
  readonly published: TemplateContent | null;
  readonly publishedAt: Date | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Incremented by every change, so that concurrent changes do not overwrite each other. */
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
 * The templates with a label: one row per pair, because indexed fields are scalars. `id` is `<template> <label>`. Every
 * label of a template has its row; an interrupted change may leave an extra row, so the template decides.
 */
interface TemplateLabelRow extends OwnedRow {
  readonly label: string;
  /** The `id` of the template. */
  readonly template: string;
  /** The template's name, for sorting lists. */
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

/** The id of a template's label. */
export function templateLabelId(template: string, label: string): string {
  return `${template} ${label}`;
}
