import { expect } from 'chai';
import { startDaemon } from '../support/daemon.ts';

describe('the last use of an API key', () => {
  it('survives a restart before it was written', async () => {
    const first = await startDaemon();
    const { key, id } = await first.api('/keys/add', { label: 'robot' });
    await first.api('/users/ping', { key });
    const used = (await first.api('/keys/list')).find((one: { id: string }) => one.id === id);
    expect(used.last_used_at).to.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    await first.stop();
    const second = await startDaemon({}, { dir: first.dir });
    try {
      expect((await second.api('/keys/list')).find((one: { id: string }) => one.id === id)).to.deep.equal(used);
    } finally {
      await second.stop();
    }
  });
});
