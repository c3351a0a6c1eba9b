import { join } from 'node:path';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { createTokenSecret, openSecret } from '../../../src/store/rows/hosts.ts';
import { openStore } from '../../../src/store/store.ts';
import { createTestLog } from '../../support/log.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { tempDir } from '../../support/temp.ts';

describe('the secret for tokens', () => {
  const open = async (file: string) =>
    openStore(
      await openEmbedded({ file, timeoutMs: 5000, room: NO_FLOOR }, { log: createTestLog(), clock: systemClock }),
    );
  const counting = () => {
    let n = 0;
    return { signingKey: () => `secret ${++n}` };
  };

  it('is created once by concurrent starts, and stays over restarts', async () => {
    const file = join(await tempDir(), 'store.db');
    const store = await open(file);
    const ids = counting();
    const all = await Promise.all(Array.from({ length: 10 }, () => openSecret(store, ids)));
    expect(new Set(all).size).to.equal(1);
    await store.close();
    const again = await open(file);
    expect(await openSecret(again, { signingKey: () => 'another' })).to.equal(all[0]);
    await again.close();
  });

  it('is read once, and again after the store was unavailable', async () => {
    const store = await open(join(await tempDir(), 'store.db'));
    let away = true;
    let reads = 0;
    const secrets = {
      ...store.secrets,
      one: (...args: Parameters<typeof store.secrets.one>) => {
        reads++;
        return away ? Promise.reject(new StoreAway('away')) : store.secrets.one(...args);
      },
    };
    const secret = createTokenSecret({ secrets }, counting());
    expect(await secret.read().catch((error: unknown) => error)).to.be.instanceOf(StoreAway);
    away = false;
    const first = await secret.read();
    reads = 0;
    expect([await secret.read(), await secret.read(), reads]).to.deep.equal([first, first, 0]);
    await store.close();
  });
});
