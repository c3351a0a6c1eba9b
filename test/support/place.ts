import { tmpdir } from 'node:os';

/**
 * Where tests keep their files: on the disk, as an installation has them, or where TEST_FILES says. On tmpfs the same calls are
 * made and none waits for the disk, which is most of the time that the whole suite takes.
 */
export const place = (): string => process.env['TEST_FILES'] || tmpdir();
