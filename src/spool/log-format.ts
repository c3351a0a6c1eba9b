/** The two words of a checksum of SQLite's log, each from 0 to 2^32. */
export type Sum = readonly [number, number];

// https://www.sqlite.org/fileformat.html#the_write_ahead_log
export const HEADER = 32;
export const FRAME_HEADER = 24;
/** The last bit says in which order the bytes of a checksum's words stand. */
const MAGIC = 0x377f0682;

/** How a log is laid out; undefined when this is the header of none. */
export function layoutOf(header: Buffer): { readonly pageSize: number; readonly bigEndian: boolean } | undefined {
  const [magic, pageSize] = [header.readUInt32BE(0), header.readUInt32BE(8)];
  if ((magic & ~1) !== MAGIC || pageSize < 512 || pageSize > 65_536 || (pageSize & (pageSize - 1)) !== 0)
    return undefined;
  return { pageSize, bigEndian: (magic & 1) === 1 };
}

/** The checksum of SQLite's log over `bytes`, going on from the one before. */
export function createSum(bigEndian: boolean): (bytes: Buffer, from: number, to: number, before: Sum) => Sum {
  return (bytes, from, to, before) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let [a, b] = before;
    for (let at = from; at < to; at += 8) {
      a = (a + view.getUint32(at, !bigEndian) + b) >>> 0;
      b = (b + view.getUint32(at + 4, !bigEndian) + a) >>> 0;
    }
    return [a, b];
  };
}

/** The checksum that stands at a place. */
export const sumAt = (bytes: Buffer, at: number): Sum => [bytes.readUInt32BE(at), bytes.readUInt32BE(at + 4)];
/** Whether two are the same. */
export const same = (one: Sum, other: Sum) => one[0] === other[0] && one[1] === other[1];
