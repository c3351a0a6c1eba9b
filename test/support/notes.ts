import type { Note, Notes } from '../../src/journal/types.ts';

/** For parts whose history is not read. */
export const NO_NOTES: Notes = { note() {} };

/** Keeps notes for a test. */
export function createTestNotes(): Notes & { readonly all: Note[] } {
  const all: Note[] = [];
  return { all, note: (entry) => void all.push(entry) };
}
