import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const AUTOMATIC = ['Auto-Submitted: auto-replied (vacation)'];
const ANSWER = ['In-Reply-To: <ours@in.test>'];

describe('automated mail', function () {
  this.timeout(60_000);
  let zone: Zone;
  let hook: Receiver;
  let env: Readonly<Record<string, string>>;
  let running: TestDaemon;
  before(async () => {
    zone = await startZone({});
    hook = await startReceiver();
    env = { POSTERN_DNS__SERVERS: zone.server, POSTERN_INBOUND__LOOP_MESSAGES: '3' };
    running = await startDaemon(env);
    await running.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(async () => {
    await running?.stop();
    await hook?.stop();
    await zone?.stop();
  });

  const add = (pattern: string, rest: object = {}) =>
    running.api('/inbound/add-route', { domain: 'in.test', pattern, url: hook.url, ...rest });

  /** Sends a message with these fields; answers the reply. */
  const send = (to: string, subject: string, fields: readonly string[] = [], from = 'ann@example.net') => {
    const header = ['From: Ann <ann@example.net>', `To: <${to}>`, `Subject: ${subject}`, ...fields];
    return sendMail(running.smtp, { from, to }, `${header.join('\r\n')}\r\n\r\nHello\r\n`);
  };

  const event = async (subject: string): Promise<any> => {
    const found = () =>
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .find(({ msg }) => msg.subject === subject);
    await until(`the post of ${subject}`, () => found() !== undefined, 30_000);
    return found();
  };
  const whyOf = async (subject: string): Promise<string | null> => (await event(subject)).msg.automated.why;

  const restart = async (more: Readonly<Record<string, string>> = {}) => {
    const { dir } = running;
    await running.stop();
    running = await startDaemon({ ...env, ...more }, { dir });
  };

  it('is distinguished from personal mail in posts, in the console and in pulled mail', async () => {
    const { id } = await add('plain');
    await send('plain@in.test', 'by hand');
    expect((await event('by hand')).msg.automated).to.deep.equal({ is: false, why: null });
    await send('plain@in.test', 'gone fishing', AUTOMATIC, '');
    expect((await event('gone fishing')).msg.automated).to.deep.equal({ is: true, why: 'vacation' });
    await send('plain@in.test', 'an empty reverse-path', [], '');
    expect(await whyOf('an empty reverse-path')).to.equal('null-sender');
    const [last] = await running.api('/inbound/deliveries', { route: id });
    expect(await running.api('/inbound/payload', { id: last.id })).to.have.nested.property('msg.automated.is', true);
    expect(await running.api('/inbound/content', { id: last.id })).to.have.nested.property(
      'automated.why',
      'null-sender',
    );
    await add('pulled', { url: 'pull:' });
    await send('pulled@in.test', 'pulled', ['List-Id: <x.example.net>']);
    const [pulled] = await until('the mail', async () => {
      const found = await running.api('/inbound/pull');
      return found.length > 0 && found;
    });
    const form = new URLSearchParams(Buffer.from(pulled.body, 'base64').toString());
    expect(JSON.parse(form.get('mandrill_events') ?? '')[0].msg.automated).to.deep.equal({ is: true, why: 'list' });
  });

  it('can be a condition of a route, shown by the tester', async () => {
    const machines = await add('desk', { when: { automated: true }, tags: ['machine'], action: 'post' });
    expect(machines.when).to.deep.equal({ automated: true });
    const people = await add('desk', { when: { automated: false, subject: 'to*' }, tags: ['person'] });
    await add('desk', { tags: ['rest'] });
    const tagsOf = async (subject: string) => (await event(subject)).msg.tags;
    await send('desk@in.test', 'to a desk');
    expect(await tagsOf('to a desk')).to.deep.equal(['person']);
    await send('desk@in.test', 'to a desk, automatically', AUTOMATIC);
    expect(await tagsOf('to a desk, automatically')).to.deep.equal(['machine']);
    await send('desk@in.test', 'something else');
    expect(await tagsOf('something else')).to.deep.equal(['rest']);
    const routeOf = async (message: object) =>
      (await running.api('/inbound/test-route', { address: 'desk@in.test', message })).route?.id;
    expect(await routeOf({ automated: true })).to.equal(machines.id);
    expect(await routeOf({ automated: false, subject: 'to you' })).to.equal(people.id);
    expect(await routeOf({ header: { Precedence: 'bulk' } })).to.equal(machines.id);
    expect(await routeOf({ subject: 'to you' })).to.equal(people.id);
    expect(await routeOf({ spam: 'ham' })).to.equal(undefined);
    expect((await running.ask('/inbound/update-route', { id: people.id, when: { automated: 'yes' } })).status).to.equal(
      422,
    );
  });

  it('is marked as a loop from the fourth fast answer on, whatever its header says', async () => {
    await add('loop');
    await add('looped', { when: { automated: true }, tags: ['stop'] });
    await add('looped', { tags: ['go'] });
    const loops = async () => (await scrape(running.base)).of('postern_loops_total');
    const before = await loops();
    for (let n = 1; n <= 5; n++) {
      await send('loop@in.test', `Re: round ${n}`, ANSWER);
      expect(await whyOf(`Re: round ${n}`)).to.equal(n > 3 ? 'loop' : null);
    }
    expect(await loops()).to.equal(before + 1);
    for (let n = 1; n <= 4; n++) await send('looped@in.test', `Re: turn ${n}`, ANSWER);
    expect((await event('Re: turn 3')).msg).to.deep.include({ tags: ['go'], automated: { is: false, why: null } });
    expect((await event('Re: turn 4')).msg).to.deep.include({ tags: ['stop'], automated: { is: true, why: 'loop' } });
  });

  it('stays a loop at every attempt, also after a restart without counters', async () => {
    await add('kept');
    hook.answer({ status: 503 });
    for (let n = 1; n <= 4; n++) await send('kept@in.test', `Re: kept ${n}`, ANSWER);
    await event('Re: kept 4');
    await restart();
    const earlier = hook.requests.length;
    hook.answer({ status: 200 });
    const [down] = await running.api('/inbound/deliveries', { state: 'waiting' });
    await running.api('/endpoints/probe', { url: down.url }).catch(() => undefined);
    for (const { id } of await running.api('/inbound/deliveries', { state: 'waiting' }))
      await running.api('/inbound/retry', { id });
    const again = () =>
      postsOf(hook.requests.slice(earlier))
        .flatMap(eventsOf)
        .find(({ msg }) => msg.subject === 'Re: kept 4');
    await until('the post after the restart', () => again() !== undefined, 30_000);
    expect(again()?.msg.automated).to.deep.equal({ is: true, why: 'loop' });
    await send('kept@in.test', 'Re: kept 5', ANSWER);
    expect(await whyOf('Re: kept 5')).to.equal(null);
  });

  it('is held as a loop if the setting says so, at each URL, and released by a replay', async () => {
    await restart({ POSTERN_INBOUND__LOOP_HOLD: 'true' });
    const second = await startReceiver();
    const { id } = await add('held', { also: [{ url: second.url }] });
    for (let n = 1; n <= 4; n++) expect(await send('held@in.test', `Re: held ${n}`, ANSWER)).to.match(/^250/);
    await event('Re: held 3');
    const held = await running.api('/inbound/deliveries', { state: 'held' });
    expect(held).to.have.length(2);
    for (const one of held) expect(one.last_error).to.equal('held as part of a loop (inbound.loop_messages)');
    expect(held.map(({ route }: any) => route)).to.include(id);
    expect(await running.api('/inbound/replay', { ids: held.map((one: any) => one.id) })).to.include({ replayed: 2 });
    expect(await whyOf('Re: held 4')).to.equal('loop');
    await until('the post to the second', () =>
      postsOf(second.requests)
        .flatMap(eventsOf)
        .some(({ msg }) => msg.subject === 'Re: held 4'),
    );
    await second.stop();
  });
});
