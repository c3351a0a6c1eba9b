import type { CollectionSpec, Row } from '../../src/store/driver/port.ts';

/** A collection for the tests of one driver. */
export interface Note extends Row {
  readonly account: string;
  readonly rank: number;
  readonly body: string;
}

export const notes: CollectionSpec<Note> = { name: 'notes', indexes: [['account', 'rank']], dates: [] };

export const note = (id: string, fields: Partial<Note> = {}): Note => ({
  id,
  account: 'a',
  rank: 0,
  body: '',
  ...fields,
});

/** What the work was rejected with, undefined when it was not. */
export async function failure(work: Promise<unknown>): Promise<unknown> {
  try {
    await work;
  } catch (error) {
    return error;
  }
  return undefined;
}
