import { toFileName } from './filename.ts';
import { decodedParameter, firstValue, parseStructured } from './headers.ts';
import { typeOf } from './message.ts';
import type { Part } from './structure.ts';
import { decodeTransfer, toTransferEncoding } from './transfer.ts';

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
  return root.children.length === 0 ? [factsOf(bytes, root, '1')] : childrenOf(bytes, root, '');
}

function childrenOf(bytes: Buffer, part: Part, prefix: string): PartFacts[] {
  return part.children.flatMap((child, i) => {
    const path = `${prefix}${i + 1}`;
    return child.children.length === 0 ? factsOf(bytes, child, path) : childrenOf(bytes, child, `${path}.`);
  });
}

function factsOf(bytes: Buffer, part: Part, path: string): PartFacts {
  const disposition = parseStructured(firstValue(part.fields, 'content-disposition') ?? '');
  const encoding = toTransferEncoding(firstValue(part.fields, 'content-transfer-encoding'));
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  return {
    path,
    type: typeOf(part, disposition),
    name: toFileName(decodedParameter(disposition, 'filename') || decodedParameter(part.type, 'name')),
    size: encoding === 'identity' ? body.length : decodeTransfer(body, encoding).length,
    disposition: disposition.value === '' ? null : disposition.value,
  };
}
