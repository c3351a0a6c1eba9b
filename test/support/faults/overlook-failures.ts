/** Loaded before the daemon: takes away that anybody looks whether a commit went well. */
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
