import { expect } from 'chai';
import { totp } from '../../../src/console/second-factor.ts';
import { forgetWrongCodes } from '../../../src/store/rows/people.ts';
import { addTestPerson, type Browser, PASSWORD, startConsole } from '../../support/console.ts';

type World = Awaited<ReturnType<typeof startConsole>>;

const MINUTE_MS = 60_000;
const STEP_MS = 30_000;

/** The secret of RFC 6238, appendix B, `12345678901234567890`, in base32. */
const RFC_SECRET = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ';

describe('codes of an authenticator app', () => {
  // The RFC lists eight digits; six are the last ones of them.
  for (const [seconds, code] of [
    [59, '94287082'],
    [1_111_111_109, '07081804'],
    [1_111_111_111, '14050471'],
    [1_234_567_890, '89005924'],
    [2_000_000_000, '69279037'],
    [20_000_000_000, '65353130'],
  ] as const)
    it(`match RFC 6238 at ${seconds} s`, () => {
      expect(totp(RFC_SECRET, Math.floor(seconds / 30))).to.equal(code.slice(2));
    });
});

describe('the second factor', () => {
  let world: World;
  let ann: Browser;
  const notes: any[] = [];
  beforeEach(async () => {
    notes.length = 0;
    world = await startConsole({}, { deps: { notes: { note: (entry: any) => void notes.push(entry) } } });
    await addTestPerson(world.store, 'ann', 'owner');
    ann = world.browser();
    await ann.enter('ann');
  });
  afterEach(() => world.stop());

  /** The code that an app shows, this number of steps from now. */
  const codeOf = (secret: string, steps = 0) => totp(secret, Math.floor(world.clock.now() / STEP_MS) + steps);
  const enter = (browser: Browser, code?: string, password?: string) => browser.enter('ann', password, {}, code);
  const nextStep = () => world.clock.advance(STEP_MS);

  /** Turns it on for Ann, and waits until the code that did it is over. */
  async function turnOn(): Promise<{ readonly secret: string; readonly recovery: readonly string[] }> {
    const { body } = await ann.write('/console/factor');
    const on = await ann.write('/console/factor/on', { code: codeOf(body.secret) });
    expect(on.status).to.equal(200);
    await nextStep();
    return { secret: body.secret, recovery: on.body.recovery_codes };
  }

  it('is offered as a key and as an address for apps, and active once a code was entered', async () => {
    const { body } = await ann.write('/console/factor');
    const url = new URL(body.url);
    expect([url.protocol, url.host, decodeURIComponent(url.pathname)]).to.deep.equal([
      'otpauth:',
      'totp',
      '/Postern mx.postern.test:ann',
    ]);
    expect(url.searchParams.get('secret'))
      .to.equal(body.secret)
      .and.match(/^[A-Z2-7]{32}$/);
    expect((await enter(world.browser())).status).to.equal(200);
    const wrong = await ann.write('/console/factor/on', { code: codeOf(body.secret, 5) });
    expect([wrong.status, wrong.body.name]).to.deep.equal([401, 'Wrong_Code']);
    expect((await enter(world.browser())).status).to.equal(200);
    expect((await ann.write('/console/factor/on', { code: codeOf(body.secret) })).status).to.equal(200);
    expect((await enter(world.browser())).body.name).to.equal('Code_Needed');
    const me = (await ann.read('/console/me')).body;
    expect([me.has_factor, me.recovery_codes]).to.deep.equal([true, 10]);
    expect(notes.map(({ action }) => action?.what)).to.include('two-factor authentication turned on');
  });

  it('asks for a code after the right password, and signs in with it', async () => {
    const { secret } = await turnOn();
    const browser = world.browser();
    const asked = await enter(browser);
    expect([asked.status, asked.body.name, browser.cookie()]).to.deep.equal([401, 'Code_Needed', undefined]);
    const wrong = await enter(browser, codeOf(secret, 5));
    expect([wrong.status, wrong.body.name, browser.cookie()]).to.deep.equal([401, 'Wrong_Code', undefined]);
    expect((await enter(browser, ` ${codeOf(secret).slice(0, 3)} ${codeOf(secret).slice(3)}`)).status).to.equal(200);
  });

  it('is not revealed without the password', async () => {
    const { secret } = await turnOn();
    const replies = [
      await enter(world.browser(), codeOf(secret), 'wrong password'),
      await world.browser().enter('nobody', 'wrong password', {}, '123456'),
    ];
    expect(new Set(replies.map(({ text }) => text)).size).to.equal(1);
    expect(replies.map(({ body }) => body.name)[0]).to.equal('Wrong_Login');
    expect((await enter(world.browser(), codeOf(secret))).status, 'the code is not used up').to.equal(200);
  });

  it('accepts each code once, even concurrently and for a link', async () => {
    const { secret } = await turnOn();
    const code = codeOf(secret);
    const both = await Promise.all([enter(world.browser(), code), enter(world.browser(), code)]);
    expect(both.map(({ status }) => status).toSorted()).to.deep.equal([200, 401]);
    const [person] = await world.store.people.many({ name: 'ann' });
    const link = await world.link(person?.id);
    expect((await world.browser().press(link, {}, { code })).status).to.equal(401);
    await nextStep();
    expect((await world.browser().press(link, {}, { code: codeOf(secret) })).status).to.equal(303);
  });

  it('accepts codes of clocks that are half a minute off, and no others', async () => {
    const { secret } = await turnOn();
    await world.clock.advance(5 * STEP_MS);
    for (const [steps, status] of [
      [-2, 401],
      [2, 401],
      [-1, 200],
      [0, 200],
      [1, 200],
    ] as const)
      expect((await enter(world.browser(), codeOf(secret, steps))).status, `${steps} steps`).to.equal(status);
  });

  it('cannot be guessed: after 20 wrong codes all are rejected', async () => {
    const { secret } = await turnOn();
    const all = Promise.all(
      Array.from({ length: 40 }, (_, n) => enter(world.browser(), String(n).padStart(6, '0')).then((r) => r.status)),
    );
    for (let moved = 0; moved < 40; moved++) await world.clock.advance(250);
    expect((await all).filter((status) => status === 429)).to.have.length(20);
    expect((await enter(world.browser(), codeOf(secret))).status).to.equal(429);
    await world.clock.advance(16 * MINUTE_MS);
    expect((await enter(world.browser(), codeOf(secret))).status).to.equal(200);
  });

  it('counts wrong codes permanently: only a right one resets it, no restart, new session or concurrent try', async () => {
    const { secret } = await turnOn();
    // At most 18 at the same time: two passwords are checked and sixteen wait, and a further one is refused as too many.
    const wrong = async (n: number, at = world) => {
      const all = Promise.all(Array.from({ length: n }, () => at.browser().enter('ann', PASSWORD, {}, '000000')));
      let waiting = true;
      void all.finally(() => {
        waiting = false;
      });
      for (; waiting; await new Promise((resolve) => setImmediate(resolve))) await at.clock.advance(250);
      return (await all).map(({ body }) => body.name);
    };
    await wrong(18);
    await world.clock.advance(16 * MINUTE_MS);
    expect((await enter(world.browser(), codeOf(secret))).status).to.equal(200);
    expect((await world.store.people.one({ name: 'ann' }))?.wrongCodes).to.equal(0);
    await wrong(15);
    // Another host of the same store, or this one after a restart.
    const restarted = await startConsole({}, { store: () => world.store });
    const names = await wrong(18, restarted);
    expect(names.filter((name) => name === 'Wrong_Code')).to.have.length(14);
    expect(names.filter((name) => name === 'Locked')).to.have.length(4);
    for (const { clock } of [world, restarted]) await clock.advance(16 * MINUTE_MS);
    for (const at of [world, restarted]) {
      const { status, body } = await at.browser().enter('ann', PASSWORD, {}, codeOf(secret));
      expect([status, body.name]).to.deep.equal([403, 'Locked']);
      expect(body.message).to.contain('postern person unlock ann');
    }
    expect((await enter(world.browser(), '000000', 'wrong password')).body.name).to.equal('Wrong_Login');
    const person = await world.store.people.one({ name: 'ann' });
    const linked = await world.browser().press(await world.link(person?.id), {}, { code: codeOf(secret) });
    expect([linked.status, linked.text.includes('postern person unlock ann')]).to.deep.equal([403, true]);
    expect(restarted.log.of('console.locked').map(({ fields }) => fields)).to.deep.equal([
      { name: 'ann', address: '127.0.0.1' },
    ]);
    expect((await world.browser().press(await world.link())).status, 'an operator with a shell').to.equal(303);
    await forgetWrongCodes(world.store, person?.id ?? '');
    await world.clock.advance(16 * MINUTE_MS);
    expect((await enter(world.browser(), codeOf(secret))).status).to.equal(200);
    await restarted.stop();
  });

  it('does not count the prompt for a code as a wrong try', async () => {
    const { secret } = await turnOn();
    for (let n = 0; n < 30; n++) expect((await enter(world.browser())).body.name).to.equal('Code_Needed');
    expect((await enter(world.browser(), codeOf(secret))).status).to.equal(200);
  });

  it('accepts a recovery code instead, each once', async () => {
    const { recovery } = await turnOn();
    expect(new Set(recovery).size).to.equal(10);
    const [first = '', second = ''] = recovery;
    expect(first).to.match(/^[a-z2-7]{5}-[a-z2-7]{5}$/);
    expect((await enter(world.browser(), first)).status).to.equal(200);
    expect((await enter(world.browser(), first)).status).to.equal(401);
    const browser = world.browser();
    expect((await enter(browser, second.replace('-', '').toUpperCase())).status).to.equal(200);
    expect((await browser.read('/console/me')).body.recovery_codes).to.equal(8);
    expect(JSON.stringify(await world.store.people.many({}))).to.not.contain(second.replace('-', ''));
  });

  it('ends the other sessions when it is enabled', async () => {
    const other = world.browser();
    await enter(other);
    await turnOn();
    expect([(await other.read('/console/me')).status, (await ann.read('/console/me')).status]).to.deep.equal([
      401, 200,
    ]);
  });

  it('is required for a link of a person too, which stays valid until a code is right', async () => {
    const { secret } = await turnOn();
    const [person] = await world.store.people.many({ name: 'ann' });
    const link = await world.link(person?.id);
    const browser = world.browser();
    const page = await browser.press(link);
    expect([page.status, browser.cookie()]).to.deep.equal([200, undefined]);
    expect(page.text).to.contain('name="code"');
    const wrong = await browser.press(link, {}, { code: '000000' });
    expect([wrong.status, browser.cookie()]).to.deep.equal([401, undefined]);
    expect((await browser.press(link, {}, { code: codeOf(secret) })).status).to.equal(303);
    expect((await browser.read('/console/me')).body.name).to.equal('ann');
    expect((await world.browser().press(link, {}, { code: codeOf(secret, 1) })).status).to.equal(410);
  });

  it('is disabled by its owner after a fresh sign-in', async () => {
    await turnOn();
    expect((await ann.write('/console/factor/off')).status).to.equal(204);
    expect((await enter(world.browser())).status).to.equal(200);
    const [person] = await world.store.people.many({ name: 'ann' });
    expect([person?.factor, person?.recoveryCodes]).to.deep.equal([null, null]);
  });

  it('is reset by an operator for somebody who lost the device', async () => {
    await turnOn();
    const operator = world.browser();
    await operator.press(await world.link());
    const people = (await operator.write('/console/call/host/people')).body.people;
    expect(people.map((one: any) => [one.name, one.has_factor])).to.deep.equal([['ann', true]]);
    expect((await operator.write('/console/call/host/reset-factor', { name: 'ann' })).status).to.equal(200);
    expect((await enter(world.browser())).status).to.equal(200);
    expect(notes.map(({ action }) => action?.what)).to.include('two-factor authentication reset');
  });

  it('requires a password', async () => {
    const operator = world.browser();
    await operator.press(await world.link());
    for (const path of ['/console/factor', '/console/factor/on', '/console/factor/off'])
      expect((await operator.write(path, { code: '123456' })).body.name).to.equal('Not_Allowed');
  });
});

describe('a fresh sign-in', () => {
  let world: World;
  beforeEach(async () => {
    world = await startConsole();
    await addTestPerson(world.store, 'ann', 'owner');
    await addTestPerson(world.store, 'otto', 'operator');
  });
  afterEach(() => world.stop());

  const newKey = (browser: Browser) => browser.write('/console/call/keys/add', { label: 'shop' });
  const enter = async (name: string) => {
    const browser = world.browser();
    await browser.enter(name);
    return browser;
  };

  it('is needed for keys ten minutes after the password, and lasts for ten more', async () => {
    const ann = await enter('ann');
    expect((await newKey(ann)).status).to.equal(200);
    await world.clock.advance(11 * MINUTE_MS);
    const refused = await newKey(ann);
    expect([refused.status, refused.body.name]).to.deep.equal([403, 'Confirm_Password']);
    expect((await ann.write('/console/confirm', { password: 'wrong password' })).body.name).to.equal('Wrong_Login');
    expect((await newKey(ann)).status).to.equal(403);
    expect((await ann.write('/console/confirm', { password: 'correct horse battery' })).status).to.equal(204);
    expect((await newKey(ann)).status).to.equal(200);
    await world.clock.advance(11 * MINUTE_MS);
    expect((await newKey(ann)).status).to.equal(403);
  });

  it('also needs a code for a person with a second factor', async () => {
    const ann = await enter('ann');
    const { secret } = (await ann.write('/console/factor')).body;
    const code = () => totp(secret, Math.floor(world.clock.now() / STEP_MS));
    await ann.write('/console/factor/on', { code: code() });
    await world.clock.advance(11 * MINUTE_MS);
    const password = 'correct horse battery';
    expect((await ann.write('/console/factor/off')).body.name).to.equal('Confirm_Password');
    expect((await ann.write('/console/confirm', { password })).body.name).to.equal('Code_Needed');
    expect((await newKey(ann)).status).to.equal(403);
    expect((await ann.write('/console/confirm', { password, code: code() })).status).to.equal(204);
    expect((await ann.write('/console/factor/off')).status).to.equal(204);
  });

  it('uses a new link for people who signed in by one', async () => {
    const operator = world.browser();
    await operator.press(await world.link());
    await world.clock.advance(11 * MINUTE_MS);
    const { status, body } = await operator.write('/console/call/host/invite-person', { name: 'ann' });
    expect([status, body.name]).to.deep.equal([403, 'Confirm_Password']);
    expect(body.message).to.contain('postern console link');
    expect((await operator.write('/console/confirm', { password: 'anything at all' })).body.name).to.equal(
      'Not_Allowed',
    );
  });

  it('cannot be bypassed by setting a password in an open page', async () => {
    const bob = await addTestPerson(world.store, 'bob', 'owner');
    await world.store.people.change({ id: bob.id }, { password: null });
    const invited = world.browser();
    await invited.press(await world.link(bob.id));
    const ann = await enter('ann');
    await world.clock.advance(11 * MINUTE_MS);
    const chosen = await invited.write('/console/password', { password: 'four unlikely words' });
    expect([chosen.status, chosen.body.name]).to.deep.equal([403, 'Confirm_Password']);
    expect(chosen.body.message).to.contain('postern person invite bob');
    expect((await invited.read('/console/me')).body.can_set_password).to.equal(false);
    const change = { current: 'correct horse battery', password: 'four unlikely words' };
    expect((await ann.write('/console/password', change)).body.name).to.equal('Confirm_Password');
  });

  it('is needed for exactly these operations', async () => {
    const otto = await enter('otto');
    const { calls } = (await otto.read('/console/me')).body;
    await world.clock.advance(11 * MINUTE_MS);
    const needs: string[] = [];
    for (const path of calls) {
      const { body } = await otto.write(
        `/console/call/${path}`,
        { id: { never: true } },
        { 'Postern-Account': 'none' },
      );
      if (body.name === 'Confirm_Password') needs.push(path);
    }
    expect(needs.toSorted()).to.deep.equal([
      'host/add-person',
      'host/end-session',
      'host/invite-person',
      'host/remove-person',
      'host/reset-factor',
      'inbound/rotate-reply-key',
      'inbound/route-key',
      'keys/add',
      'keys/revoke',
      'senders/domain-key',
      'webhooks/add',
      'webhooks/info',
      'webhooks/key',
      'webhooks/list',
      'webhooks/update',
    ]);
  });
});

describe('a password change', () => {
  it('invalidates the unused links of the person', async () => {
    const world = await startConsole();
    const person = await addTestPerson(world.store, 'ann', 'owner');
    const link = await world.link(person.id);
    const ann = world.browser();
    await ann.enter('ann');
    const change = { current: 'correct horse battery', password: 'four unlikely words' };
    expect((await ann.write('/console/password', change)).status).to.equal(204);
    expect((await world.browser().press(link)).status).to.equal(410);
    await world.stop();
  });
});
