import type { RoomSettings } from '../../src/base/room.ts';

/** A disk that may be used up to its last byte. */
export const NO_FLOOR: RoomSettings = { minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 0 };
