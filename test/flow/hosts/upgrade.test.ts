import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { VERSION } from '../../../src/base/version.ts';
import { FEATURES } from '../../../src/composition/known-features.ts';
import { postern } from '../../support/command.ts';
import { createCaller, KEY, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
import { postsOf } from '../../support/events.ts';
import { inSeconds, send, startHosts } from '../../support/hosts.ts';
import { openSession } from '../../support/mail.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

/** An older version, as far as its tables go. */
const without = (...missing: string[]) => ({
  features: FEATURES.filter((feature) => !missing.some((one) => feature.startsWith(one))),
});

/** Adds a domain with one route that an older version does not understand, and one that it does. */
async function addRoutes({ api }: Pick<TestDaemon, 'api'>, url: string): Promise<void> {
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'plain', url });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'no-*', url, action: 'reject' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'held', url, action: 'hold' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'other', url, format: 'postmark' });
}

/** The replies to RCPT. */
async function repliesOf({ smtp }: Pick<TestDaemon, 'smtp'>, ...mailboxes: string[]): Promise<string[]> {
  const session = await openSession(smtp);
  await session.say('EHLO client.test');
  await session.say('MAIL FROM:<a@sender.test>');
  const replies: string[] = [];
  for (const mailbox of mailboxes) replies.push(await session.say(`RCPT TO:<${mailbox}@in.test>`));
  session.close();
  return replies;
}

const OLD = ['action=', 'format=postmark', 'scheduled=cancelled', 'reply-addresses'];

describe('an older version on the store of a newer one', function () {
  this.timeout(240_000 * PATIENCE);
  let hook: Receiver;
  before(async () => {
    hook = await startReceiver();
  });
  after(() => hook.stop());

  it('after a downgrade, defers mail for routes that it does not understand, and takes the rest', async () => {
    const env = { POSTERN_INBOUND__OWNERSHIP: 'first' };
    const newer = await startDaemon(env);
    await addRoutes(newer, hook.url);
    await newer.stop();
    const older = await startDaemon(env, { dir: newer.dir, ...without(...OLD) });
    const replies = await repliesOf(older, 'plain', 'no-one', 'held', 'other', 'nobody');
    expect(replies.map((reply) => reply.slice(0, 9))).to.deep.equal([
      '250 2.1.5',
      '451 4.3.0',
      '451 4.3.0',
      '451 4.3.0',
      '550 5.1.1',
    ]);
    const raw = { raw_message: 'From: a@sender.test\r\n\r\nHi.', to: ['held@in.test'], mail_from: 'a@sender.test' };
    expect((await older.ask('/inbound/send-raw', raw)).status).to.equal(503);
    expect((await older.ask('/inbound/update-route', { id: '1.3', action: 'post' })).status, 'nor changes it').to.equal(
      503,
    );
    await older.stop();
    const again = await startDaemon(env, { dir: newer.dir });
    expect((await repliesOf(again, 'no-one'))[0]).to.match(/^550 5\.7\.1/);
    await again.stop();
  });

  if (mongoDriver)
    it('in a rolling upgrade, posts and sends nothing of rows that it does not understand, and the rest', async () => {
      const { features } = without(...OLD);
      const hosts = await startHosts({ POSTERN_INBOUND__OWNERSHIP: 'first' }, features);
      const { a, b } = hosts;
      await addRoutes(a, hosts.hook.url);
      await until('B to know the routes', async () => (await repliesOf(b, 'no-one'))[0]?.startsWith('451'));
      const replies = await repliesOf(b, 'held', 'other', 'plain');
      expect(replies.map((reply) => reply.slice(0, 3))).to.deep.equal(['451', '451', '250']);
      expect((await repliesOf(a, 'no-one'))[0]).to.match(/^550 5\.7\.1/);

      // Mail waits at B, and A gives its route a form that B does not have.
      hosts.hook.answer({ status: 500 });
      const raw = { raw_message: 'From: a@sender.test\r\nSubject: waits\r\n\r\nHi.', to: ['plain@in.test'] };
      await b.api('/inbound/send-raw', { ...raw, mail_from: 'a@sender.test', client_address: '192.0.2.1' });
      await until('a first attempt', () => postsOf(hosts.hook.requests).length > 0);
      const routes = await a.api('/inbound/routes', { domain: 'in.test' });
      const { id } = routes.find(({ pattern }: any) => pattern === 'plain');
      hosts.hook.answer({ status: 200 });
      await a.api('/inbound/update-route', { id, format: 'postmark' });
      await until('B to know the change', async () => (await repliesOf(b, 'plain'))[0]?.startsWith('451'));
      const posted = postsOf(hosts.hook.requests).length;

      // A cancels one of two messages that B has.
      const cancelled = await send(b, 'cancelled', { send_at: inSeconds(3) });
      await send(b, 'kept', { send_at: inSeconds(3) });
      await a.api('/messages/cancel-scheduled', { id: cancelled });
      await until('the other to leave', () => hosts.arrived().includes('kept'));
      await send(b, 'after');
      await until('a later one to leave', () => hosts.arrived().includes('after'));
      expect(hosts.arrived()).to.not.include('cancelled');
      const waiting = (await b.queue()).filter(({ state }) => state === 'waiting').map(({ subject }) => subject);
      expect(waiting.toSorted()).to.deep.equal(['cancelled', 'waits']);
      expect(postsOf(hosts.hook.requests).length).to.equal(posted);

      const listed = (await hosts.cli('host', 'list', '--json')).json();
      expect(listed.map(({ name, lacks }: any) => [name, lacks])).to.deep.equal([
        ['a.postern.test', []],
        ['b.postern.test', FEATURES.filter((feature) => !features.includes(feature)).toSorted()],
      ]);
      await hosts.stop();
    });

  if (mongoDriver)
    it('adopts the mail of a lost host that is newer, and leaves its events to a host that knows their copies', async () => {
      const hosts = await startHosts({ POSTERN_QUEUE__COPIES: 'store' }, without('copies=events').features);
      const adopt = (by: string) =>
        hosts.cli('host', 'adopt', 'c.postern.test', '--by', `${by}.postern.test`, '--json');
      await hosts.a.api('/webhooks/add', { url: hosts.hook.url, events: ['blacklist'] });
      hosts.hook.answer({ status: 500 });
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      await lost.api('/rejects/add', { email: 'no@in.test' });
      await send(lost, 'scheduled', { send_at: inSeconds(20) });
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
      const byOlder = await adopt('b');
      expect([byOlder.code, byOlder.json()[0]?.left]).to.deep.equal([1, '1']);
      await until('the mail to leave', () => hosts.arrived().includes('scheduled'), 60_000 * PATIENCE);
      hosts.hook.answer({ status: 200 });
      const before = postsOf(hosts.hook.requests).length;
      expect((await adopt('a')).code).to.equal(0);
      await until('the event', () => postsOf(hosts.hook.requests).length > before, 60_000 * PATIENCE);
      await hosts.stop();
    });

  if (mongoDriver)
    it('lists the hosts with their versions, and does not let two of one hostname run', async () => {
      const url = (await mongoServer()).url(newDatabaseName());
      const env = { POSTERN_STORE__URL: url, POSTERN_HOSTNAME: 'mx.postern.test' };
      const a = await startDaemon(env);
      const error = await startDaemon(env).then(
        () => 'runs',
        (fault: Error) => fault.message,
      );
      expect(error).to.match(/^another host with the hostname mx\.postern\.test runs on this store \(id \S+, Postern /);
      expect((await createCaller(a.base, KEY).ask('/users/ping2')).status).to.equal(200);
      const list = async () => (await postern(['host', 'list', '--json'], { ...env, POSTERN_DATA_DIR: a.dir })).json();
      const [row] = await list();
      expect(row).to.deep.include({ name: 'mx.postern.test', state: 'running', version: VERSION });
      const forget = () => postern(['host', 'forget', row.id], { ...env, POSTERN_DATA_DIR: a.dir });
      expect((await forget()).err).to.match(/mx\.postern\.test is running; stop it first/);
      await a.stop();
      expect((await list())[0]).to.deep.include({ state: 'stopped' });
      expect((await forget()).code).to.equal(0);
      expect(await list()).to.deep.equal([]);
    });
});
