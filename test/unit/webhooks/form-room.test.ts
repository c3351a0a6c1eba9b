import { expect } from 'chai';
import { createFormRoom } from '../../../src/webhooks/render/form-room.ts';

/** Whether a promise is settled by now. */
async function isDone(work: Promise<unknown>): Promise<boolean> {
  const no = Symbol('no');
  return (await Promise.race([work, new Promise((resolve) => setImmediate(resolve, no))])) !== no;
}

describe('the memory for forms of large messages', () => {
  it('is shared: no account has more than half of it, and others proceed', async () => {
    const room = createFormRoom(100);
    const give = await room.take('a', 40);
    const second = room.take('a', 40);
    expect(await isDone(second)).to.equal(false);
    expect(await isDone(room.take('b', 50))).to.equal(true);
    give();
    give(); // once only
    expect(await isDone(second)).to.equal(true);
    expect(await isDone(room.take('c', 20))).to.equal(false);
  });

  it('admits one form above the limit when it is otherwise empty', async () => {
    const room = createFormRoom(100);
    const give = await room.take('a', 500);
    const second = room.take('b', 500);
    expect(await isDone(second)).to.equal(false);
    give();
    expect(await isDone(second)).to.equal(true);
  });

  it('never exceeds its limit, and blocks no one for ever', async () => {
    const room = createFormRoom(1000);
    let inside = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 500 }, async (_, n) => {
        const bytes = 50 + ((n * 37) % 300);
        const give = await room.take(`account ${n % 7}`, bytes);
        inside += bytes;
        most = Math.max(most, inside);
        await new Promise((resolve) => setImmediate(resolve));
        inside -= bytes;
        give();
      }),
    );
    expect(most).to.be.within(500, 1000);
    expect(inside).to.equal(0);
  });
});
