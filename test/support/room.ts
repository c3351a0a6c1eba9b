import type { DiskSpaceSettings } from '../../src/base/disk-space.ts';

/** A disk that may be used up to its last byte. */
export const NO_FLOOR: DiskSpaceSettings = { minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 0 };
