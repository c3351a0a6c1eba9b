import { expect } from 'chai';
import { FEATURES } from '../../../src/composition/features.ts';
import { createCaller, KEY, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
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
  const session = await openSession(smtp.port);
  await session.command('EHLO client.test');
  await session.command('MAIL FROM:<a@sender.test>');
  const replies: string[] = [];
  for (const mailbox of mailboxes) replies.push(await session.command(`RCPT TO:<${mailbox}@in.test>`));
  await session.quit();
  return replies;
}

const OLD = ['action=', 'format=postmark', 'scheduled=cancelled', 'reply-addresses'];

describe('an older version on the store of a newer one', function () {
  this.timeout(120_000 * PATIENCE);
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
    it('in a rolling upgrade, sends nothing that the newer one has cancelled, and posts nothing in a form that it does not know', async () => {
      const url = (await mongoServer()).url(newDatabaseName());
      const start = async (name: string, more: object) =>
        startDaemon(
          { POSTERN_STORE__URL: url, POSTERN_HOSTNAME: `${name}.postern.test`, POSTERN_INBOUND__OWNERSHIP: 'first' },
          { dir: await tempDir(), ...more },
        );
      const a = await start('a', {});
      const b = await start('b', without(...OLD));
      await addRoutes(a, hook.url);
      await until('B to know the routes', async () => (await repliesOf(b, 'no-one'))[0]?.startsWith('451'));
      expect((await repliesOf(b, 'held', 'other')).map((reply) => reply.slice(0, 3))).to.deep.equal(['451', '451']);
      expect((await repliesOf(a, 'no-one'))[0]).to.match(/^550 5\.7\.1/);

      // Mail that waits at B for a route that A changes: B has taken it in the old form.
      hook.answer({ status: 500 });
      const raw = { raw_message: 'From: a@sender.test\r\nSubject: waits\r\n\r\nHi.', to: ['plain@in.test'] };
      await b.api('/inbound/send-raw', { ...raw, mail_from: 'a@sender.test', client_address: '192.0.2.1' });
      await until('a first attempt', () => hook.requests.some(({ method }) => method === 'POST'));
      const [route] = await a.api('/inbound/routes', { domain: 'in.test' });
      await a.api('/inbound/update-route', { id: route.id, format: 'postmark' });
      await until('B to know the change', async () => (await repliesOf(b, 'plain'))[0]?.startsWith('451'));
      const before = hook.requests.length;
      hook.answer({ status: 200 });
      await b
        .api('/inbound/retry', { ids: (await b.api('/inbound/deliveries')).map(({ id }: any) => id) })
        .catch(() => {});

      // A message that B has, and A cancels.
      const message = { from_email: 'news@sender.test', subject: 'x', text: 'x', to: [{ email: 'jo@to.test' }] };
      const sendAt = new Date(Date.now() + 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
      const [sent] = await b.api('/messages/send', { message, send_at: sendAt });
      await a.api('/messages/cancel-scheduled', { id: sent._id });
      expect(
        (await b.ask('/messages/reschedule', { id: sent._id, send_at: '2020-01-01 00:00:00' })).status,
      ).to.not.equal(200);
      expect(hook.requests.length, 'nothing was posted in a form that B does not know').to.equal(before);
      await Promise.all([a.stop(), b.stop()]);
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
      await a.stop();
    });
});
