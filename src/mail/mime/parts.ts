import { toFileName } from './filename.ts';
import { type Leaf, readLeaves } from './leaves.ts';
import type { Part } from './structure.ts';
import { decodeTransfer } from './transfer.ts';

/** A part of a message that has no parts of its own: a text or a file. */
export interface PartFacts {
  /** As IMAP numbers parts (RFC 9051 section 6.4.5): `1`, or `2.1` for the first part of the second. */
  readonly path: string;
  /** Media type in lower case. */
  readonly type: string;
  /** File name, decoded and safe to show; '' if there is none. */
  readonly name: string;
  /** Bytes, decoded. */
  readonly size: number;
  /** In lower case; null if there is none. */
  readonly disposition: string | null;
}

/** Lists the parts of a scanned message in order. `bytes` are those that were scanned. */
export function listParts(bytes: Buffer, root: Part): PartFacts[] {
  return readLeaves(root).map((leaf) => ({
    path: pathOf(leaf.part) || '1',
    type: leaf.type,
    name: toFileName(leaf.name),
    size: contentOf(bytes, leaf).length,
    disposition: leaf.disposition,
  }));
}

/** The decoded bytes of the part that is number `n` in the list of `listParts`, from 1. */
export function partBytes(bytes: Buffer, root: Part, n: number): Buffer | undefined {
  const leaf = readLeaves(root)[n - 1];
  return leaf && contentOf(bytes, leaf);
}

const contentOf = (bytes: Buffer, { part, encoding }: Leaf): Buffer =>
  decodeTransfer(bytes.subarray(part.bodyStart, part.bodyEnd), encoding);

function pathOf(part: Part): string {
  if (!part.parent) return '';
  const [above, own] = [pathOf(part.parent), part.parent.children.indexOf(part) + 1];
  return above === '' ? String(own) : `${above}.${own}`;
}
