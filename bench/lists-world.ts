import { systemClock } from '../src/base/clock.ts';
import { openEmbedded } from '../src/store/driver/embedded.ts';
import type { Store } from '../src/store/store.ts';
import { cleanUpFile } from '../test/support/cleanup.ts';
import { createStage, startStages } from '../test/support/contract/stage.ts';
import { NO_FLOOR } from '../test/support/room.ts';
import { type Usage, watchUsages } from '../test/support/usages.ts';

/** The API over HTTP on a store in that file, with an account of its own. */
export interface ListsWorld {
  readonly store: Store;
  readonly account: string;
  /** How the store was asked for rows since the last `clear`. */
  readonly usages: Map<string, Usage>;
  /** Calls an operation and answers the record; throws when it does not succeed. */
  call(path: string, params: object): Promise<unknown>;
  stop(): Promise<void>;
}

export async function openLists(file: string): Promise<ListsWorld> {
  let usages = new Map<string, Usage>();
  const world = await startStages(undefined, {
    async database(log) {
      const watched = watchUsages(
        await openEmbedded({ file, timeoutMs: 60_000, room: NO_FLOOR }, { log, clock: systemClock }),
      );
      usages = watched.usages;
      return watched.database;
    },
  });
  const stage = await createStage(world);
  return {
    store: stage.store,
    account: stage.account,
    usages,
    call: (path, params) => stage.ok(`/${path}`, params),
    async stop() {
      await world.stop();
      await cleanUpFile();
    },
  };
}
