/** Loaded before the daemon: makes failed commits unnoticed. */
import { DatabaseSync } from 'node:sqlite';

const exec = DatabaseSync.prototype.exec;
DatabaseSync.prototype.exec = function (sql) {
  try {
    exec.call(this, sql);
  } catch (error) {
    if (sql !== 'COMMIT') throw error;
    if (this.isTransaction) exec.call(this, 'ROLLBACK');
  }
};
