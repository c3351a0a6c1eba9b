import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { openConsoleSession } from '../../../src/store/rows/people.ts';
import { addTestPerson, createBrowser } from '../../support/console.ts';
import { type HostWorld, startHost } from '../../support/host-world.ts';
import { until } from '../../support/until.ts';

const DAY_MS = 86_400_000;

describe('changes of people by operators', () => {
  let world: HostWorld;
  beforeEach(async () => {
    world = await startHost();
  });
  afterEach(() => world.stop());

  const newBrowser = () => createBrowser(Number(new URL(world.base).port));
  /** Presses the button of a link; the browser is signed in then. */
  const come = async (url: string) => {
    const browser = newBrowser();
    const { status } = await browser.press(new URL(url).pathname);
    return { browser, status };
  };
  const enterAs = async (name: string) => {
    const browser = newBrowser();
    await browser.enter(name);
    return browser;
  };
  /** The visitor of the browser, or why there is none. */
  const whoIs = async (browser: ReturnType<typeof createBrowser>) => {
    const { body } = await browser.read('/console/me');
    return body.status === 'error' ? body.name : [body.name, body.role, body.account?.name ?? null];
  };
  const refused = async (name: string, params: object, as = world.browser) => {
    const { status, body } = await as.write(`/console/call/host/${name}`, params);
    expect([status, body.name], JSON.stringify(params)).to.deep.equal([422, 'ValidationError']);
    return JSON.parse(body.message.replace('Validation error: ', ''));
  };
  const actions = (count: number) =>
    until(`${count} actions`, async () => {
      const { actions } = await world.host('actions');
      return (
        actions.length === count &&
        actions.map((one: any) => [one.by, one.account?.name ?? null, one.what, one.detail]).reverse()
      );
    });
  const names = async () => (await world.host('people')).people.map(({ name }: any) => name);

  it('invites a person with a link for one sign-in, in the role of the invitation', async () => {
    const link = await world.host('add-person', { name: ' Ann ', role: 'helper', account: world.second });
    expect(link.name).to.equal('ann');
    expect(Date.parse(`${link.until}Z`) - Date.now()).to.be.within(3_500_000, 3_600_000);
    const first = await come(link.url);
    expect([first.status, await whoIs(first.browser)]).to.deep.equal([303, ['ann', 'helper', 'second']]);
    expect((await come(link.url)).status).to.equal(410);
    expect(await world.host('people')).to.have.nested.include({
      'people[0].name': 'ann',
      'people[0].has_password': false,
      'people[0].sessions': 1,
    });
    expect(await actions(1)).to.deep.equal([['operator', 'second', 'person added', 'ann (helper)']]);
    // The account sees who may read its mail; the link is stored nowhere.
    const { actions: own } = await world.secondApi('/actions/list');
    expect(own.map(({ what }: any) => what)).to.deep.equal(['person added']);
    const token = new URL(link.url).pathname.split('/').at(-1) ?? '-';
    expect(JSON.stringify([own, await world.store.enterLinks.many({}), world.log.lines])).to.not.contain(token);
  });

  it('invites operators for all accounts', async () => {
    const link = await world.host('add-person', { name: 'ops', role: 'operator' });
    const { browser } = await come(link.url);
    expect(await whoIs(browser)).to.deep.equal(['ops', 'operator', null]);
    expect((await world.host('people', {}, browser)).people.map(({ name }: any) => name)).to.deep.equal(['ops']);
    expect(await actions(1)).to.deep.equal([['operator', null, 'person added', 'ops (operator)']]);
  });

  it('shows the error beside each field, and invites nobody', async () => {
    await world.host('add-person', { name: 'ann', role: 'owner', account: world.main });
    for (const [params, field, words] of [
      [{ name: 'ANN', role: 'owner', account: world.main }, 'name', 'ann already exists'],
      [{ name: 'two words', role: 'owner', account: world.main }, 'name', 'letters, digits'],
      [{ name: '', role: 'owner', account: world.main }, 'name', 'Please enter a value'],
      [{ name: 'bob', role: 'king', account: world.main }, 'role', 'operator, owner, helper, reader'],
      [{ name: 'bob', role: 'owner' }, 'account', 'Please choose the account'],
      [{ name: 'bob', role: 'owner', account: 'nobody' }, 'account', 'There is no account nobody'],
      [{ name: 'bob', role: 'operator', account: world.main }, 'account', 'sees all accounts'],
    ] as const)
      expect((await refused('add-person', params))[field], JSON.stringify(params)).to.contain(words);
    expect(await names()).to.deep.equal(['ann']);
    expect(await actions(1)).to.have.length(1);
  });

  it('creates a new link for a person, and rejects an unknown one', async () => {
    await addTestPerson(world.store, 'ann', 'owner', world.main);
    const link = await world.host('invite-person', { name: 'Ann' });
    const { browser } = await come(link.url);
    expect(await whoIs(browser)).to.deep.equal(['ann', 'owner', 'main']);
    // A visitor by link may set another password without the old one.
    expect((await browser.read('/console/me')).body.can_set_password).to.equal(true);
    expect((await refused('invite-person', { name: 'bob' })).name).to.equal('There is no person named bob');
    expect(await actions(1)).to.deep.equal([['operator', 'main', 'person invited', 'ann']]);
  });

  it('removes a person with their sessions and links', async () => {
    await addTestPerson(world.store, 'ann', 'reader', world.second);
    const browser = await enterAs('ann');
    const link = await world.host('invite-person', { name: 'ann' });
    expect(await world.host('remove-person', { name: 'ann' })).to.deep.equal({ name: 'ann' });
    expect(await whoIs(browser)).to.equal('Signed_Out');
    expect((await come(link.url)).status).to.equal(410);
    expect(await names()).to.deep.equal([]);
    expect((await refused('remove-person', { name: 'ann' })).name).to.equal('There is no person named ann');
    expect((await actions(2)).at(-1)).to.deep.equal(['operator', 'second', 'person removed', 'ann (reader)']);
  });

  it('ends a session, and no other of its person', async () => {
    await addTestPerson(world.store, 'ann', 'owner', world.main);
    const [one, other] = [await enterAs('ann'), await enterAs('ann')];
    const { sessions } = await world.host('sessions');
    const { id } = sessions.find(({ name }: any) => name === 'ann');
    expect(await world.host('end-session', { id })).to.deep.equal({ id, name: 'ann' });
    const left = [await whoIs(one), await whoIs(other)];
    expect(left).to.have.deep.members(['Signed_Out', ['ann', 'owner', 'main']]);
    expect((await refused('end-session', { id })).id).to.equal('This session has ended already');
    // Not the beginning of any session: the whole id that is shown.
    for (const wrong of [id.slice(0, 4), 'zzzzzzzzzzzz', `${id}0`])
      expect((await refused('end-session', { id: wrong })).id, wrong).to.contain('list of sessions');
    expect(await actions(1)).to.deep.equal([['operator', 'main', 'session ended', 'ann, from 127.0.0.1']]);
  });

  it('protects the own session and person of an operator, and names the actor', async () => {
    for (const name of ['ops', 'second-ops']) await addTestPerson(world.store, name, 'operator');
    const browser = await enterAs('ops');
    const { sessions } = await world.host('sessions', {}, browser);
    const own = sessions.find(({ own }: any) => own);
    expect(own.name).to.equal('ops');
    expect((await refused('end-session', { id: own.id }, browser)).id).to.contain('sign out instead');
    expect((await refused('remove-person', { name: 'OPS' }, browser)).name).to.contain('cannot remove yourself');
    expect(await whoIs(browser)).to.deep.equal(['ops', 'operator', null]);
    const ofLink = sessions.find(({ by }: any) => by === 'link');
    await world.host('end-session', { id: ofLink.id }, browser);
    expect(await whoIs(world.browser)).to.equal('Signed_Out');
    await world.host('remove-person', { name: 'second-ops' }, browser);
    const noted = await until('it is noted', async () => {
      const { actions } = await world.host('actions', {}, browser);
      return actions.length === 2 && actions.map((one: any) => [one.by, one.account, one.what, one.detail]).reverse();
    });
    expect(noted).to.deep.equal([
      ['ops', null, 'session ended', 'operator, from 127.0.0.1'],
      ['ops', null, 'person removed', 'second-ops (operator)'],
    ]);
  });

  it('lets a command-line session remove the last operator too', async () => {
    await addTestPerson(world.store, 'operator', 'operator');
    expect(await world.host('remove-person', { name: 'operator' })).to.deep.equal({ name: 'operator' });
    expect(await whoIs(world.browser)).to.deep.equal(['operator', 'operator', null]);
  });

  it('omits expired sessions whose row still exists', async () => {
    const { id: person } = await addTestPerson(world.store, 'ann', 'owner', world.main);
    const begin = () =>
      openConsoleSession(world.store, { person, by: 'password', address: '192.0.2.1' }, DAY_MS, {
        clock: systemClock,
        ids: createIds(systemClock),
      });
    const [idle] = [await begin(), await begin()];
    await world.store.consoleSessions.change({ id: idle.row.id }, { seenAt: new Date(Date.now() - 3_700_000) });
    const { sessions } = await world.host('sessions');
    expect(sessions.filter(({ name }: any) => name === 'ann')).to.have.length(1);
    expect((await world.host('people')).people[0].sessions).to.equal(1);
  });
});
