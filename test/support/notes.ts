import type { Note, Notes } from '../../src/journal/types.ts';

/** For parts whose history nobody reads. */
export const NO_NOTES: Notes = { note() {} };

/** Keeps what is noted, for a test to look at. */
export function createTestNotes(): Notes & { readonly all: Note[] } {
  const all: Note[] = [];
  return { all, note: (entry) => void all.push(entry) };
}
