import { mongoServer, newDatabaseName } from '../database.ts';

/** With FAULTS_COPIES=store, the daemons of the suites keep copies of their mail, each in a store of its own. */
const COPIES = process.env['FAULTS_COPIES'] ?? 'none';

/** Whether they do: then damaged mail is restored. */
export const hasCopies = COPIES !== 'none';

/** Settings for one data folder, in all its lives. */
export async function copiesEnv(): Promise<Readonly<Record<string, string>>> {
  if (!hasCopies) return {};
  return {
    POSTERN_QUEUE__COPIES: COPIES,
    POSTERN_STORE__URL: (await mongoServer()).url(newDatabaseName()),
  };
}
