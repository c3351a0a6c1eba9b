import { expect } from 'chai';
import { isDecided } from '../../../src/api/console/roles.ts';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { ROLES } from '../../../src/store/rows/people.ts';
import { ACCOUNT, OTHER_ACCOUNT } from '../../support/api.ts';
import { addTestPerson, type Browser, startConsole } from '../../support/console.ts';

type World = Awaited<ReturnType<typeof startConsole>>;

/** Operations that tell a role from the next lower one. */
const FOR_HELPERS = ['/inbound/deliveries', '/inbound/replay', '/messages/search', '/messages/info', '/rejects/list'];
const FOR_READERS = ['/users/info', '/inbound/domains', '/tags/list', '/senders/time-series'];
const CONTENT = ['/messages/content'];

describe('the roles of the console', () => {
  let world: World;
  let browsers: Record<string, Browser>;
  const notes: any[] = [];
  before(async () => {
    world = await startConsole({}, { deps: { notes: { note: (entry) => void notes.push(entry) } } });
    browsers = {};
    for (const role of ROLES) {
      await addTestPerson(world.store, role, role);
      browsers[role] = world.browser();
      await browsers[role].enter(role);
    }
  });
  after(() => world.stop());

  const call = (role: string, path: string, params: object = {}, account: string = ACCOUNT) =>
    browsers[role]?.write(`/console/call${path}`, params, { 'Postern-Account': account }) ?? Promise.reject();

  it('decide about every operation', () => {
    expect(OPERATIONS.map(({ path }) => path).filter((path) => !isDecided(path))).to.deep.equal([]);
  });

  it('let each call what it may and nothing else, over all operations', async () => {
    const may: Record<string, string[]> = {};
    for (const role of ROLES) {
      const open: string[] = [];
      for (const { path } of OPERATIONS) {
        // Parameters that no operation takes: what is allowed answers for itself, and changes nothing.
        const { status, body } = await call(role, path, { id: { never: true } });
        if (status === 403 && body.name === 'Not_Allowed') continue;
        open.push(path);
        expect(body.name ?? 'ok', `${role} ${path}`).to.not.be.oneOf(['Cross_Site', 'Signed_Out', 'GeneralError']);
      }
      may[role] = open;
      const me = await browsers[role]?.read('/console/me');
      const calls: string[] = me?.body.calls.map((name: string) => `/${name}`);
      // What concerns all accounts is in host.test.ts.
      expect(calls.filter((path) => !path.startsWith('/host/'))).to.deep.equal(open);
    }
    const all = OPERATIONS.map(({ path }) => path);
    expect(may['owner']).to.deep.equal(all);
    const kept = all.filter((path) => !may['operator']?.includes(path));
    expect(kept).to.include.members(CONTENT);
    expect(kept.every((path) => /content|payload|\/try|\/pull|\/ack|\/nack|\/tap/.test(path))).to.equal(true);
    expect(may['helper']).to.include.members([...FOR_HELPERS, ...FOR_READERS]);
    expect(may['reader']).to.include.members(FOR_READERS);
    for (const path of FOR_HELPERS) expect(may['reader']).to.not.include(path);
    for (const role of ['helper', 'reader']) {
      expect(
        may[role]?.filter((path) =>
          /content|payload|\/try|\/pull|\/n?ack$|\/tap$|\/drop$|key|\/add|delete|update|\/send\b|webhooks|templates/.test(
            path,
          ),
        ),
        role,
      ).to.deep.equal([]);
    }
    expect(may['reader']?.every((path) => may['helper']?.includes(path))).to.equal(true);
  });

  it('keep people in the room of their account: another one is as unknown as one that does not exist', async () => {
    for (const role of ['owner', 'helper', 'reader']) {
      const [other, none] = [
        await call(role, '/users/info', {}, OTHER_ACCOUNT),
        await call(role, '/users/info', {}, 'none'),
      ];
      expect([other.status, other.body.name], role).to.deep.equal([422, 'ValidationError']);
      expect(other.text.replace(OTHER_ACCOUNT, 'none')).to.equal(none.text);
      const mine = await browsers[role]?.write('/console/call/users/info');
      expect(mine?.status).to.equal(200);
      const live = await browsers[role]?.read(`/console/live?topics=mail&account=${OTHER_ACCOUNT}`);
      expect(live?.status).to.equal(422);
    }
  });

  it('let an operator choose the account, and ask for it if there are several', async () => {
    expect((await call('operator', '/inbound/domains')).body).to.have.length(1);
    expect((await call('operator', '/inbound/domains', {}, OTHER_ACCOUNT)).body).to.have.length(0);
    const without = await browsers['operator']?.write('/console/call/inbound/domains');
    expect([without?.status, without?.body.message]).to.deep.equal([
      422,
      'Choose an account: Postern-Account is missing',
    ]);
  });

  it('answer operations as the API does, with its errors', async () => {
    const bad = await call('owner', '/inbound/add-domain', { domain: 7 });
    const same = await world.call('/inbound/add-domain', { domain: 7 });
    expect([bad.status, bad.body]).to.deep.equal([same.status, same.body]);
    const missing = await call('owner', '/no/such');
    expect([missing.status, missing.body.name]).to.deep.equal([404, 'Unknown_Operation']);
  });

  it('note each look of an operator at mail, where the setting allows it', async () => {
    const open = await startConsole(
      { operatorReadsMail: true },
      { deps: { notes: { note: (entry) => void notes.push(entry) } } },
    );
    const browser = open.browser();
    await browser.press(await open.link());
    notes.splice(0); // what the tests before this one have done
    const look = await browser.write('/console/call/messages/content', { id: 'x' }, { 'Postern-Account': ACCOUNT });
    expect(look.body.name).to.equal('Unknown_Message');
    expect(notes.filter(({ what }) => what === 'action').map(({ action }) => action)).to.deep.equal([
      {
        at: open.clock.now(),
        by: 'operator',
        account: ACCOUNT,
        what: 'looked',
        count: 1,
        detail: '/messages/content x',
      },
    ]);
    await open.stop();
  });

  it('let one session make eight calls at a time, and no more', async () => {
    const browser = world.browser();
    await browser.enter('owner');
    const replies = await Promise.all(Array.from({ length: 30 }, () => browser.write('/console/call/users/info')));
    const refused = replies.filter(({ status }) => status === 429);
    expect(replies.filter(({ status }) => status === 200).length).to.be.at.least(8);
    for (const { headers } of refused) expect(headers['retry-after']).to.equal('1');
  });
});
