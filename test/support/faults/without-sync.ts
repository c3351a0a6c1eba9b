/** Loaded before the daemon: takes away that SQLite waits for the disk. */
import { DatabaseSync } from 'node:sqlite';

const exec = DatabaseSync.prototype.exec;
DatabaseSync.prototype.exec = function (sql) {
  exec.call(this, sql.replaceAll('synchronous = FULL', 'synchronous = OFF'));
};
