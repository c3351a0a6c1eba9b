import { correspondentsOf } from './author.ts';
import { readWithLibrary } from './library.ts';
import type { Parsed } from './parsed.ts';
import { type Part, type Scan, scanStructure } from './structure.ts';
import { walkBody, walkSubject } from './walk.ts';

export type { Scan as Scanned } from './structure.ts';

/**
 * The first look at the raw bytes of a message: where its parts are, or which cap it breaks (then nothing may parse
 * it).
 */
export function scanMessage(bytes: Buffer): Scan {
  return scanStructure(bytes);
}

/**
 * Parses the raw bytes of a message that was scanned. The walk reads the common forms of bodies; a message that it
 * declines mailparser reads as a whole (docs/decisions/0018). Addresses are read by the one reader of addresses in any
 * case. Throws when the parser fails.
 */
export async function parseMessage(bytes: Buffer, root: Part): Promise<Parsed> {
  const body = walkBody(bytes, root) ?? (await readWithLibrary(bytes));
  return { ...correspondentsOf(root.fields), subject: walkSubject(root.fields), ...body, fields: root.fields };
}
