import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { KEY, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { message, sendMail } from '../../support/mail.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

describe('domains and routes on the command line, while a daemon runs', () => {
  let running: TestDaemon;
  let hook: Receiver;
  let env: Record<string, string>;

  before(async () => {
    hook = await startReceiver();
    running = await startDaemon({ POSTERN_INBOUND__REFRESH_MS: '100' });
    env = {
      POSTERN_DATA_DIR: running.dir,
      POSTERN_HOSTNAME: 'in.postern.test',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_DNS__TIMEOUT_MS: '100',
    };
  });
  after(async () => {
    await running.stop();
    await hook.stop();
  });
  const mail = (to: string) =>
    sendMail(running.smtp, { from: 'ada@client.test', to }, message('By the operator')).catch(String);

  it('are added, receive mail, and are removed again, all without a key', async () => {
    expect(await postern(['domain', 'add', 'Shop.test'], env)).to.include({
      code: 0,
      out:
        'Added Shop.test to account main.\n' +
        "next: postern route add Shop.test '*' URL; its DNS records: postern dns Shop.test\n",
    });
    const [route] = (await postern(['route', 'add', 'shop.test', 'box-*', hook.url, '--json'], env)).json();
    expect(route).to.include({ pattern: 'box-*', url: hook.url, batch_events: 1 });
    const batched = ['route', 'add', 'shop.test', 'bulk-*', hook.url, '--batch-events'];
    expect((await postern([...batched, '20', '--json'], env)).json()[0]).to.include({ batch_events: 20 });
    expect(await postern([...batched, 'many'], env)).to.include({ code: 64 });
    const formed = ['route', 'add', 'shop.test', 'form', hook.url, '--format'];
    const [form] = (await postern([...formed, 'postmark', '--json'], env)).json();
    expect(form.format).to.equal('postmark');
    expect((await postern([...formed, 'fax'], env)).err).to.contain('--format must be one of mandrill, raw, json,');
    expect(await postern(['route', 'remove', form.id], env)).to.include({ code: 0 });
    const ruled = ['route', 'add', 'shop.test', 'ruled', '--action', 'reject', '--priority', '3', '--json', '--when'];
    const [rule] = (await postern([...ruled, '{"dmarc":"fail"}'], env)).json();
    expect(rule).to.deep.include({ action: 'reject', priority: 3, when: { dmarc: 'fail' }, url: '' });
    expect((await postern([...ruled, 'dmarc=fail'], env)).err).to.contain('--when must be a JSON object');
    expect((await postern(['route', 'list'], env)).out).to.match(/ruled +dmarc +reject +mandrill +1 +-\n/);
    expect(await postern(['route', 'remove', rule.id], env)).to.include({ code: 0 });
    const routes = (await postern(['route', 'list', '--json'], env)).json();
    expect(routes.map((row: { batch_events: number }) => row.batch_events)).to.deep.equal([1, 20]);
    expect((await postern(['domain', 'list', '--json'], env)).json()).to.have.nested.property(
      '[0].account_name',
      'main',
    );
    expect((await running.api('/inbound/routes', { domain: 'shop.test' }))[0]).to.include({ id: route.id });
    await until('the daemon to take mail for it', async () => (await mail('box-1@shop.test')).startsWith('250'));
    await until('the post', () => hook.requests.some(({ body }) => body.toString().includes('By+the+operator')));

    expect(await postern(['route', 'remove', route.id], env)).to.include({ code: 0 });
    await until('the daemon to refuse the mailbox', async () => (await mail('box-1@shop.test')).includes('550 5.1.1'));
    expect(await postern(['domain', 'remove', 'SHOP.test'], env)).to.include({ code: 0 });
    await until('the daemon to refuse the domain', async () => (await mail('box-1@shop.test')).includes('550 5.7.1'));
    expect((await postern(['domain', 'list', '--json'], env)).json()).to.deep.equal([]);
  });

  it('follow the rules of the API: the same errors, and exit code 1', async () => {
    await postern(['domain', 'add', 'rules.test'], env);
    for (const [argv, operation, params] of [
      [['domain', 'add', 'no domain'], '/inbound/add-domain', { domain: 'no domain' }],
      [
        ['route', 'add', 'rules.test', 'a@b', hook.url],
        '/inbound/add-route',
        { domain: 'rules.test', pattern: 'a@b', url: hook.url },
      ],
      [
        ['route', 'add', 'rules.test', 'a', 'ftp://x'],
        '/inbound/add-route',
        { domain: 'rules.test', pattern: 'a', url: 'ftp://x' },
      ],
      [
        ['route', 'add', 'rules.test', 'a', 'http://127.0.0.1:9/'],
        '/inbound/add-route',
        { domain: 'rules.test', pattern: 'a', url: 'http://127.0.0.1:9/' },
      ],
    ] as const) {
      const ran = await postern(argv, env);
      expect(ran, argv.join(' ')).to.include({ code: 1, out: '' });
      const { message } = (await running.ask(operation, { key: KEY, ...params })).body;
      const faults: Record<string, string> = message.startsWith('Validation error: ')
        ? JSON.parse(message.slice('Validation error: '.length))
        : { '': message };
      for (const text of Object.values(faults)) expect(ran.err).to.contain(text).and.to.not.contain('{');
    }
    expect(await postern(['domain', 'check', 'rules.test'], env)).to.include({ code: 1 });
  });

  it('of another account are added for it, and removed for any account; unknown ones are a usage error', async () => {
    const [{ id }] = (await postern(['account', 'create', 'second', '--json'], env)).json();
    expect((await postern(['domain', 'add', 'second.test'], env)).err).to.contain('--account');
    const added = await postern(['domain', 'add', 'second.test', '--account', 'second'], env);
    expect(added).to.include({ code: 0 });
    // Two accounts share the host now, so that a domain has to be proven.
    expect(added.out).to.match(
      /Mail for it is accepted once .*\n\n {2}_postern-challenge\.second\.test {2}TXT {2}"postern-domain=[0-9a-f]{32}"\n\nnext: .*\n$/s,
    );
    expect((await postern(['domain', 'list'], env)).out).to.match(/second\.test +second +not yet proven/);
    expect(
      (await postern(['domain', 'list', '--account', 'second', '--json'], env))
        .records()
        .map(({ domain, account }) => [domain, account]),
    ).to.deep.equal([['second.test', id]]);
    expect(await postern(['route', 'add', 'second.test', '*', hook.url], env)).to.include({ code: 0 });
    expect(await postern(['domain', 'remove', 'second.test'], env)).to.include({ code: 0 });
    for (const argv of [
      ['domain', 'remove', 'second.test'],
      ['domain', 'check', 'second.test'],
      ['route', 'add', 'second.test', '*', hook.url],
      ['route', 'remove', '9.9'],
      ['domain', 'add'],
      ['route', 'add', 'x.test', '*'],
    ]) {
      expect(await postern(argv, env), argv.join(' ')).to.include({ code: 64, out: '' });
    }
  });

  it('create no files where no daemon has run', async () => {
    const dir = await tempDir();
    await postern(['account', 'create', 'main'], { POSTERN_DATA_DIR: dir });
    expect((await postern(['domain', 'add', 'early.test'], { POSTERN_DATA_DIR: dir })).err).to.contain(
      'Start the daemon first',
    );
  });
});
