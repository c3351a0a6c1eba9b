import { DatabaseSync } from 'node:sqlite';
import { kindOf, SpoolInUse } from './faults.ts';

/** Keeps other daemons out until it is released. */
export interface Lock {
  release(): void;
}

/**
 * Takes the folder for one daemon. It is SQLite's exclusive lock on an empty file of its own: the kernel gives it up when
 * the process ends, however it ends, which a file with a process id in it does not.
 */
export function takeLock(path: string): Lock {
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    db.close();
    if (kindOf(error) === 'busy')
      throw new SpoolInUse(
        `another Postern has the queue open (${path}); stop it first, or give this one its own data_dir`,
      );
    throw error;
  }
  return Object.freeze({ release: () => db.close() });
}
