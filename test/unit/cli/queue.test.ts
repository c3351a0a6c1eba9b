import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { postsOf } from '../../support/events.ts';
import { message, sendMail } from '../../support/mail.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { until } from '../../support/until.ts';

describe('the queue on the command line, while a daemon runs', () => {
  let running: TestDaemon;
  let hook: Receiver;
  let env: Record<string, string>;
  const list = async (...options: string[]) => (await postern(['queue', 'list', '--json', ...options], env)).records();

  const delivered = () => running.api('/inbound/deliveries', { state: 'delivered' });

  beforeEach(async () => {
    hook = await startReceiver();
    running = await startDaemon();
    env = { POSTERN_DATA_DIR: running.dir };
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    hook.answer({ status: 503, body: 'away' });
    for (const mailbox of ['one', 'two'])
      await sendMail(running.smtp, { from: 'ada@example.org', to: `${mailbox}@in.test` }, message(mailbox));
    await until('both first attempts', async () => {
      const rows = await running.api('/inbound/deliveries');
      return rows.length === 2 && rows.every(({ attempts }: { attempts: unknown[] }) => attempts.length > 0);
    });
  });
  afterEach(async () => {
    await running.stop();
    await hook.stop();
  });

  it('lists waiting mail, as a table and as JSON, with filters', async () => {
    const { code, out } = await postern(['queue', 'list'], env);
    expect(code).to.equal(0);
    expect(out)
      .to.match(/id\s+state\s+age/)
      .and.to.contain('one@in.test')
      .and.to.contain('503')
      .and.to.match(/2 waiting, 0 dead/);
    expect(out).not.to.contain('/hook'); // a URL may hold secrets: the host is enough for a list
    expect(await list('--recipient', 'one@in.test')).to.have.length(1);
    expect(await list('--state', 'dead')).to.have.length(0);
    expect(await list('--to', '2020-01-01')).to.have.length(0);
    expect(await list('--limit', '1')).to.have.length(1);
  });

  it('hides header fields if journal.subjects is false', async () => {
    const without = { ...env, POSTERN_JOURNAL__SUBJECTS: 'false' };
    expect((await list()).map(({ subject, from }) => [subject, typeof from])).to.have.deep.members([
      ['one', 'string'],
      ['two', 'string'],
    ]);
    for (const one of (await postern(['queue', 'list', '--json'], without)).records())
      expect(one).to.include({ subject: null, from: null, message_id: null });
  });

  it('shows one delivery with its attempts, and its raw message', async () => {
    const [{ id }] = await list('--recipient', 'one@in.test');
    expect((await postern(['queue', 'show', id], env)).out)
      .to.contain('one@in.test')
      .and.to.contain('503')
      .and.to.contain('away');
    expect((await postern(['queue', 'show', id, '--json'], env)).json()[0].attempts_made[0]).to.include({
      status: 503,
      answer: 'away',
    });
    const raw = (await postern(['queue', 'show', id, '--raw'], env)).out;
    expect(raw)
      .to.match(/^Received: from client\.example\.org/)
      .and.to.contain('Subject: one\r\n');
    expect(await postern(['queue', 'show', 'nothing'], env)).to.include({ code: 1 });
  });

  it('retries deliveries now, and the daemon notices', async () => {
    hook.answer({ status: 200 });
    expect((await postern(['queue', 'retry', '--recipient', 'one@in.test', '--json'], env)).json()).to.deep.equal([
      { count: 1, dry_run: false },
    ]);
    await until('it is delivered', async () => (await delivered()).length === 1);
    expect(await list('--state', 'delivered', '--recipient', 'one@in.test')).to.have.length(1);
    await postern(['queue', 'flush'], env);
    await until('all are delivered', async () => (await delivered()).length === 2);
  });

  it('drops deliveries, and replays finished ones under the same id', async () => {
    const [{ id }] = await list('--recipient', 'one@in.test');
    expect((await postern(['queue', 'drop', id], env)).out).to.equal('Dropped 1 delivery.\n');
    expect((await postern(['queue', 'drop', id], env)).code).to.equal(1);
    expect(await list('--state', 'dropped')).to.have.length(1);
    hook.answer({ status: 200 });
    expect((await postern(['replay', '--all', '--json'], env)).json()).to.deep.equal([{ count: 1, dry_run: false }]);
    await until('it is delivered', async () => (await delivered()).some((row: { id: string }) => row.id === id));
    const posts = postsOf(hook.requests).filter(({ headers }) => headers['webhook-id'] === id).length;
    expect(
      (
        await postern(['replay', '--delivered', '--recipient', 'one@in.test', '--from', '2020-01-01', '--json'], env)
      ).json(),
    ).to.deep.equal([{ count: 1, dry_run: false }]);
    await until(
      'it is delivered again',
      () => postsOf(hook.requests).filter(({ headers }) => headers['webhook-id'] === id).length > posts,
    );
  });

  it('posts one to another URL with --to, once, and changes nothing', async () => {
    const [{ id, state }] = await list('--recipient', 'one@in.test');
    const laptop = await startReceiver();
    try {
      const tried = await postern(['replay', id, '--to', laptop.url], env);
      expect([tried.code, tried.out]).to.deep.equal([0, `${laptop.url} answered 200\n`]);
      const [post] = postsOf(laptop.requests);
      expect(post?.headers).to.include({ 'x-postern-trial': '1' });
      expect(String(post?.headers['webhook-id'])).to.match(new RegExp(`^${id}-trial-`));
      laptop.answer({ status: 422, body: 'no such ticket' });
      const refused = await postern(['replay', id, '--to', laptop.url], env);
      expect([refused.code, refused.out]).to.deep.equal([1, `${laptop.url} answered 422: no such ticket\n`]);
    } finally {
      await laptop.stop();
    }
    const away = await postern(['replay', id, '--to', laptop.url], env);
    expect(away.code).to.equal(1);
    expect(away.out).to.contain(`No answer from ${laptop.url}`);
    expect((await postern(['replay', '--all', '--to', laptop.url], env)).err).to.contain(
      'needs the id of exactly one delivery',
    );
    expect((await postern(['replay', 'nothing', '--to', laptop.url], env)).err).to.contain('no such delivery: nothing');
    expect((await list('--recipient', 'one@in.test'))[0].state).to.equal(state);
  });

  it('with --dry-run, prints the changes that retry, drop, flush and replay would make, and makes none', async () => {
    const before = await list();
    const [{ id }] = before;
    const dry = async (...argv: string[]) => (await postern([...argv, '--dry-run', '--json'], env)).json();
    expect(await dry('queue', 'drop', '--all')).to.deep.equal([{ count: 2, dry_run: true }]);
    expect(await dry('queue', 'drop', id)).to.deep.equal([{ count: 1, dry_run: true }]);
    expect(await dry('queue', 'retry', '--recipient', 'two@in.test')).to.deep.equal([{ count: 1, dry_run: true }]);
    expect(await dry('queue', 'flush')).to.deep.equal([{ count: 2, dry_run: true }]);
    expect(await dry('replay', '--all')).to.deep.equal([{ count: 0, dry_run: true }]);
    expect((await list()).map((row) => [row.id, row.state])).to.deep.equal(before.map((row) => [row.id, row.state]));
    await postern(['queue', 'drop', id], env);
    expect((await postern(['replay', '--all', '--dry-run'], env)).out).to.equal('Would requeue 1 delivery.\n');
    expect(await list('--state', 'dropped')).to.have.length(1);
  });

  it('shows the action of a route that does not post, and that conditional routes depend on the message', async () => {
    const add = (pattern: string, ...options: string[]) =>
      postern(['route', 'add', 'in.test', pattern, ...options], env);
    await add('kept', hook.url, '--action', 'hold');
    await add('thrown', '--action', 'discard');
    await add('stopped', '--action', 'reject');
    await add('some', hook.url, '--when', '{"subject":["*invoice*"]}');
    const test = async (mailbox: string) => (await postern(['route', 'test', `${mailbox}@in.test`], env)).out;
    expect(await test('kept')).to.match(/^Route \S+ \(kept\) matches\. Accepts the mail and holds it\.\n$/);
    expect(await test('thrown')).to.match(/^Route \S+ \(thrown\) matches\. Accepts the mail and discards it\.\n$/);
    expect(await test('stopped')).to.equal('Refused: a route of the domain rejects mail to the mailbox: 550 5.7.1\n');
    expect(await test('some')).to.match(/^Depends on the message\. .*: \S+ \(some, post\), \S+ \(\*, post\)\n$/);
  });

  it('shows which route matches an address', async () => {
    expect((await postern(['route', 'test', 'anyone@in.test'], env)).out).to.contain(hook.url);
    expect(await postern(['route', 'test', 'anyone@elsewhere.test'], env)).to.include({ code: 1 });
    expect((await postern(['route', 'list'], env)).out)
      .to.contain('in.test')
      .and.to.contain(hook.url);
  });
});
