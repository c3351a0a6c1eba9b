import type { CollectionSpec, Row } from './collection.ts';

/** A tag that is being taken off the messages that carry it. `id` is `<account> <tag>`; the row goes when none is left. */
export interface TagRemovalRow extends Row {
  readonly account: string;
  readonly tag: string;
  /** When it was deleted: mail that was sent with the tag later keeps it. */
  readonly before: Date;
}

export const tagRemovals: CollectionSpec<TagRemovalRow> = {
  name: 'tag_removals',
  indexes: [['before']],
  dates: ['before'],
  upkeep: true,
};
