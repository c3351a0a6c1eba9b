/** How much memory the messages in DATA take, in all sessions together. */
export interface Room {
  isFull(): boolean;
  /** Takes so many bytes; false when there are not so many left. */
  take(bytes: number): boolean;
  give(bytes: number): void;
}

export function createRoom(maxBytes: number): Room {
  let taken = 0;
  return Object.freeze({
    isFull: () => taken >= maxBytes,
    take(bytes: number) {
      if (taken + bytes > maxBytes) return false;
      taken += bytes;
      return true;
    },
    give(bytes: number) {
      taken -= bytes;
    },
  });
}

/** Bytes in memory that grow as they come: a message that arrives in a million pieces takes no more than one in a single piece. */
export interface Held {
  /** False when there is no room for them. */
  add(bytes: Buffer): boolean;
  bytes(): Buffer;
  /** Gives the room back; may be called again. */
  release(): void;
}

const FIRST_BYTES = 16_384;

export function createHeld(room: Room): Held {
  let block: Buffer = Buffer.alloc(0);
  let length = 0;

  function grow(atLeast: number): boolean {
    const size = Math.max(atLeast, block.length * 2, FIRST_BYTES);
    if (!room.take(size - block.length)) return false;
    const larger = Buffer.allocUnsafeSlow(size);
    block.copy(larger, 0, 0, length);
    block = larger;
    return true;
  }

  return Object.freeze({
    add(bytes: Buffer) {
      if (length + bytes.length > block.length && !grow(length + bytes.length)) return false;
      bytes.copy(block, length);
      length += bytes.length;
      return true;
    },
    bytes: () => block.subarray(0, length),
    release() {
      room.give(block.length);
      block = Buffer.alloc(0);
      length = 0;
    },
  });
}
