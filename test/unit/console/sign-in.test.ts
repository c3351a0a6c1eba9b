import { expect } from 'chai';
import { namesOf } from '../../../src/base/tables.ts';
import { consoleSettings } from '../../../src/composition/slices.ts';
import { createPasswords, PASSWORD_COST } from '../../../src/console/passwords.ts';
import { ACCOUNT } from '../../support/api.ts';
import { addTestPerson, PASSWORD, startConsole } from '../../support/console.ts';
import { testSettings } from '../../support/daemon.ts';

type World = Awaited<ReturnType<typeof startConsole>>;

const MINUTE_MS = 60_000;

describe('sign-in to the console', () => {
  let world: World;
  beforeEach(async () => {
    world = await startConsole();
  });
  afterEach(() => world.stop());

  describe('a link', () => {
    it('signs in once, as an operator', async () => {
      const link = await world.link();
      const browser = world.browser();
      const pressed = await browser.press(link);
      expect([pressed.status, pressed.headers.location]).to.deep.equal([303, '/console/']);
      const { status, body } = await browser.read('/console/me');
      expect([status, body.name, body.role, body.account]).to.deep.equal([200, 'operator', 'operator', null]);
      expect(body.accounts.map(({ name }: { name: string }) => name)).to.deep.equal(['main', 'other']);
      const again = await world.browser().press(link);
      expect([again.status, again.headers['set-cookie']]).to.deep.equal([410, undefined]);
      expect(again.text).to.contain('postern console link');
    });

    it('is not used up by a visit without confirmation, as by mail scanners', async () => {
      const link = await world.link();
      const scanner = world.browser();
      const looked = await scanner.ask('GET', link, { Cookie: undefined });
      expect([looked.status, scanner.cookie()]).to.deep.equal([200, undefined]);
      await scanner.ask('HEAD', link);
      expect((await world.browser().press(link)).status).to.equal(303);
    });

    it('is the same for valid, used and made-up links', async () => {
      const link = await world.link();
      const pages = [link, `/console/enter/${'x'.repeat(44)}`, '/console/enter/x', '/console/enter/'].map((path) =>
        world.browser().ask('GET', path),
      );
      expect(new Set((await Promise.all(pages)).map(({ status, text }) => `${status} ${text}`)).size).to.equal(1);
    });

    it('expires after an hour', async () => {
      const link = await world.link();
      await world.clock.advance(61 * MINUTE_MS);
      expect((await world.browser().press(link)).status).to.equal(410);
    });

    it('works once even for two concurrent visitors', async () => {
      const link = await world.link();
      const both = await Promise.all([world.browser().press(link), world.browser().press(link)]);
      expect(both.map(({ status }) => status).toSorted()).to.deep.equal([303, 410]);
    });

    it('signs in the person it is for, who then chooses a password', async () => {
      const person = await addTestPerson(world.store, 'ann', 'helper');
      await world.store.people.change({ id: person.id }, { password: null });
      const browser = world.browser();
      await browser.press(await world.link(person.id));
      const { body } = await browser.read('/console/me');
      expect([body.name, body.role, body.account.name, body.can_set_password]).to.deep.equal([
        'ann',
        'helper',
        'main',
        true,
      ]);
      expect((await browser.write('/console/password', { password: 'four unlikely words' })).status).to.equal(204);
      expect((await world.browser().enter('Ann', 'four unlikely words')).status).to.equal(200);
    });

    it('of a removed person is invalid', async () => {
      const person = await addTestPerson(world.store, 'ann', 'owner');
      const link = await world.link(person.id);
      await world.store.people.remove({ id: person.id });
      expect((await world.browser().press(link)).status).to.equal(410);
    });
  });

  describe('name and password', () => {
    it('sign in, with the name in any case', async () => {
      await addTestPerson(world.store, 'ann', 'owner');
      const entered = await world.browser().enter(' ANN ');
      expect([entered.status, entered.body.name, entered.body.has_password]).to.deep.equal([200, 'ann', true]);
    });

    it('are rejected with the same error, whichever is wrong', async () => {
      await addTestPerson(world.store, 'ann', 'owner');
      const replies = [await world.browser().enter('ann', 'wrong password'), await world.browser().enter('bob')];
      expect(replies.map(({ status, text }) => `${status} ${text}`)).to.deep.equal(
        replies.map(
          () =>
            `401 ${JSON.stringify({ status: 'error', code: 401, name: 'Wrong_Login', message: 'Wrong name or password.' })}`,
        ),
      );
      expect(world.log.of('console.refused')).to.have.length(2);
    });

    it('take the same time for an unknown name', async () => {
      const hash = await createPasswords(PASSWORD_COST).hash(PASSWORD);
      expect(hash).to.match(/^scrypt 131072 8 1 /);
      // As the daemon has it: half a second, beside which the rest is little.
      const real = await startConsole({ passwordCost: PASSWORD_COST });
      await addTestPerson(real.store, 'ann', 'owner', undefined, hash);
      const took = { ann: Infinity, bob: Infinity };
      // The least of some, in turns: whatever else the machine does is done to both.
      for (let round = 0; round < 4; round++) {
        for (const name of namesOf(took)) {
          const began = performance.now();
          await real.browser().enter(name, 'wrong password');
          took[name] = Math.min(took[name], performance.now() - began);
        }
        await real.clock.advance(16 * MINUTE_MS); // until which tries are slowed down
      }
      await real.stop();
      expect(Math.min(took.ann, took.bob) / Math.max(took.ann, took.bob)).to.be.above(0.4);
    });

    it('use the cost that OWASP recommends, in the daemon', () => {
      const settings = consoleSettings(testSettings('/nowhere', {}), {});
      expect(settings?.passwordCost).to.deep.equal({ N: 2 ** 17, r: 8, p: 1 });
    });

    it('cannot be guessed: each try waits longer, and after 20 all are rejected', async () => {
      await addTestPerson(world.store, 'ann', 'owner');
      const all = Promise.all(Array.from({ length: 100 }, () => world.browser().enter('ann', 'wrong password')));
      for (let moved = 0; moved < 40; moved++) await world.clock.advance(250);
      const statuses = (await all).map(({ status }) => status);
      expect([statuses.filter((s) => s === 401).length, statuses.filter((s) => s === 429).length]).to.deep.equal([
        20, 80,
      ]);
      expect((await world.browser().enter('ann')).body.name).to.equal('Too_Many_Tries');
      await world.clock.advance(16 * MINUTE_MS);
      expect((await world.browser().enter('ann')).status).to.equal(200);
    });

    it('cannot be guessed from many networks either', async () => {
      const url = 'https://console.example.com';
      const behindProxy = await startConsole({ url }, { settings: { trustedProxies: ['127.0.0.1'] } });
      await addTestPerson(behindProxy.store, 'ann', 'owner');
      await addTestPerson(behindProxy.store, 'bob', 'owner');
      const enter = (name: string, n: number, password?: string) =>
        behindProxy.browser({ origin: url }).enter(name, password, { 'X-Forwarded-For': `192.0.2.${n}` });
      const all = Promise.all(Array.from({ length: 50 }, (_, n) => enter('ann', n, 'wrong password')));
      for (let moved = 0; moved < 40; moved++) await behindProxy.clock.advance(250);
      expect((await all).filter(({ status }) => status === 401)).to.have.length(20);
      expect([(await enter('ann', 99)).status, (await enter('bob', 99)).status]).to.deep.equal([429, 200]);
      await behindProxy.stop();
    });

    it('are reported if missing or not text', async () => {
      for (const params of [{}, { name: 'ann' }, { name: ['ann'], password: {} }, { name: 'ann', password: '' }]) {
        const { status, body } = await world.browser().write('/console/session', params);
        expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
      }
    });
  });

  describe('a password', () => {
    it('change needs the old one, except for ten minutes after sign-in by link', async () => {
      const person = await addTestPerson(world.store, 'ann', 'owner');
      const browser = world.browser();
      await browser.press(await world.link(person.id));
      await world.clock.advance(11 * MINUTE_MS);
      const password = 'four unlikely words';
      const late = await browser.write('/console/password', { password, current: PASSWORD });
      expect([late.status, late.body.name]).to.deep.equal([403, 'Confirm_Password']);
      await browser.enter('ann');
      expect((await browser.write('/console/password', { password })).status).to.equal(422);
      const wrong = await browser.write('/console/password', { password, current: 'a wrong one' });
      expect([wrong.status, wrong.body.name]).to.deep.equal([401, 'Wrong_Login']);
      expect((await browser.write('/console/password', { password, current: PASSWORD })).status).to.equal(204);
    });

    it('change ends the other sessions of the person', async () => {
      await addTestPerson(world.store, 'ann', 'owner');
      const [here, there] = [world.browser(), world.browser()];
      await here.enter('ann');
      await there.enter('ann');
      await here.write('/console/password', { password: 'four unlikely words', current: PASSWORD });
      expect([(await here.read('/console/me')).status, (await there.read('/console/me')).status]).to.deep.equal([
        200, 401,
      ]);
    });

    it('is rejected if short or common, or if the name is taken', async () => {
      const person = await addTestPerson(world.store, 'anneliese', 'owner');
      const browser = world.browser();
      await browser.press(await world.link(person.id));
      const faults: Record<string, RegExp> = {
        'eleven char': /12 characters/,
        password1234: /too common/,
        '12121212121212': /too common/,
        'Anneliese was here': /name/,
        ['x'.repeat(300)]: /256/,
      };
      for (const [password, fault] of Object.entries(faults)) {
        const { status, body } = await browser.write('/console/password', { password });
        expect([status, fault.test(body.message)], password).to.deep.equal([422, true]);
      }
    });

    it('gives an operator without a name a person to sign in as; within ten minutes, once', async () => {
      const browser = world.browser();
      await browser.press(await world.link());
      const before = (await browser.read('/console/me')).body;
      expect([before.is_person, before.has_password, before.can_set_password]).to.deep.equal([false, false, true]);
      const password = 'four unlikely words';
      await addTestPerson(world.store, 'bob', 'reader');
      for (const params of [
        { password },
        { password, name: 'two words' },
        { password, name: 'Bob' },
        { password: 'short', name: 'ann' },
        { password: 'anneliese here', name: 'anneliese' },
        { name: 'ann' },
      ]) {
        const { status, body } = await browser.write('/console/password', params);
        expect([status, body.name], JSON.stringify(params)).to.deep.equal([422, 'ValidationError']);
      }
      expect((await browser.write('/console/password', { password, name: 'Ann' })).status).to.equal(204);
      const after = (await browser.read('/console/me')).body;
      expect([after.name, after.role, after.is_person, after.has_password]).to.deep.equal([
        'ann',
        'operator',
        true,
        true,
      ]);
      expect((await world.browser().enter('ann', password)).body.role).to.equal('operator');
      await world.clock.advance(11 * MINUTE_MS);
      const late = await browser.write('/console/call/keys/add', {}, { 'Postern-Account': ACCOUNT });
      expect([late.status, late.body.name]).to.deep.equal([403, 'Confirm_Password']);
      expect((await browser.write('/console/confirm', { password })).status).to.equal(204);
      expect((await browser.write('/console/call/keys/add', {}, { 'Postern-Account': ACCOUNT })).status).to.equal(200);
      const other = world.browser();
      await other.press(await world.link());
      await world.clock.advance(11 * MINUTE_MS);
      const tooLate = await other.write('/console/password', { password, name: 'cho' });
      expect([tooLate.status, tooLate.body.name]).to.deep.equal([403, 'Confirm_Password']);
      expect(await world.store.people.many({ name: 'cho' })).to.deep.equal([]);
    });
  });

  describe('a session', () => {
    it('is a cookie that scripts cannot read and other sites cannot send', async () => {
      const { headers } = await world.browser().press(await world.link());
      expect(headers['set-cookie']?.[0]).to.match(
        /^postern=[\w-]{44}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
      );
    });

    it('is stored only as a hash', async () => {
      const browser = world.browser();
      await browser.press(await world.link());
      const rows = JSON.stringify(await world.store.consoleSessions.many({}));
      expect(rows).to.not.contain(browser.cookie()?.split('=')[1]);
    });

    it('ends after an hour without a call, and after twelve hours', async () => {
      const [idle, busy] = [world.browser(), world.browser()];
      await idle.press(await world.link());
      await busy.press(await world.link());
      for (let n = 0; n < 15; n++) {
        await world.clock.advance(50 * MINUTE_MS);
        const { status } = await busy.read('/console/me');
        expect(status, `after ${50 * (n + 1)} minutes`).to.equal(50 * (n + 1) < 720 ? 200 : 401);
        if (n === 1) expect((await idle.read('/console/me')).body.name).to.equal('Signed_Out');
      }
    });

    it('ends on sign-out', async () => {
      const browser = world.browser();
      await browser.press(await world.link());
      const cookie = browser.cookie();
      expect((await browser.write('/console/session', {}, {}, 'DELETE')).status).to.equal(204);
      expect(browser.cookie()).to.equal(undefined);
      browser.setCookie(cookie);
      expect((await browser.read('/console/me')).status).to.equal(401);
    });

    it('ends with its person, and changes with their role', async () => {
      const person = await addTestPerson(world.store, 'ann', 'owner');
      const browser = world.browser();
      await browser.enter('ann');
      await world.store.people.change({ id: person.id }, { role: 'reader' });
      expect((await browser.read('/console/me')).body.role).to.equal('reader');
      await world.store.people.remove({ id: person.id });
      expect((await browser.read('/console/me')).status).to.equal(401);
    });
  });
});
