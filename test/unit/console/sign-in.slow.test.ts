import { expect } from 'chai';
import { addTestPerson, startConsole } from '../../support/console.ts';
import { size } from '../../support/sizes.ts';

const MINUTE_MS = 60_000;

describe('guessing at the sign-in of the console, thousands of times', () => {
  let world: Awaited<ReturnType<typeof startConsole>>;
  beforeEach(async () => {
    world = await startConsole();
  });
  afterEach(() => world.stop());

  /** The answers to all: those that are slowed down wait for the clock, whenever they arrive. */
  async function slowedDown<T>(tries: readonly Promise<T>[]): Promise<readonly T[]> {
    let answered = false;
    const all = Promise.all(tries).finally(() => {
      answered = true;
    });
    while (!answered) {
      await world.clock.advance(250);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return all;
  }

  const rounds = size(50, 10);

  it('a link cannot be guessed: after 20 tries from a network each is rejected at once, even a valid one', async () => {
    const statuses: number[] = [];
    for (let n = 0; n < rounds; n++) {
      const tries = Array.from({ length: 100 }, (_, i) =>
        world.browser().press(`/console/enter/${String(n * 100 + i).padStart(44, 'x')}`),
      );
      statuses.push(...(await slowedDown(tries)).map(({ status }) => status));
    }
    expect(statuses.filter((status) => status === 410)).to.have.length(20);
    expect(statuses.filter((status) => status === 429)).to.have.length(rounds * 100 - 20);
    const late = await world.browser().press(await world.link());
    expect([late.status, Number(late.headers['retry-after']) > 0]).to.deep.equal([429, true]);
    await world.clock.advance(16 * MINUTE_MS);
    expect((await world.browser().press(await world.link())).status).to.equal(303);
  });

  it('a session cannot be guessed: thousands of cookies match none, and most are not looked up', async () => {
    const statuses = new Map<number, number>();
    for (let n = 0; n < rounds; n++) {
      const tries = Array.from({ length: 100 }, (_, i) => {
        const browser = world.browser();
        browser.setCookie(`postern=${String(n * 100 + i).padStart(44, 'x')}`);
        return browser.read('/console/me');
      });
      for (const { status } of await slowedDown(tries)) statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
    expect([...statuses]).to.have.deep.members([
      [401, 20],
      [429, rounds * 100 - 20],
    ]);
    // Somebody with a good cookie in the same network is not kept out.
    const person = await addTestPerson(world.store, 'ann', 'owner');
    const good = world.browser();
    await good.press(await world.link(person.id));
    expect((await good.read('/console/me')).status).to.equal(200);
  });
});
