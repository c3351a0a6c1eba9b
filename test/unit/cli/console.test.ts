import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { createBrowser } from '../../support/console.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { until } from '../../support/until.ts';

/** An address that does not answer. */
const NOT_RUNNING = { POSTERN_HTTP__LISTEN: '127.0.0.1:1' };

describe('postern console, postern person', () => {
  let daemon: TestDaemon;
  let env: Record<string, string>;
  before(async () => {
    daemon = await startDaemon();
    const port = new URL(daemon.base).port;
    env = { POSTERN_DATA_DIR: daemon.dir, POSTERN_HTTP__LISTEN: `127.0.0.1:${port}` };
  });
  after(() => daemon.stop());

  const browser = () => createBrowser(Number(new URL(daemon.base).port));
  const pathOf = (url: string) => new URL(url).pathname;

  it('prints a link that opens the console while a daemon runs', async () => {
    const { code, out } = await postern(['console', 'link'], env);
    expect(code).to.equal(0);
    expect(out).to.match(new RegExp(`^${daemon.base}/console/enter/[\\w-]{44}\\n$`));
    const one = browser();
    expect((await one.press(pathOf(out.trim()))).status).to.equal(303);
    expect((await one.read('/console/me')).body).to.include({ name: 'operator', role: 'operator' });
  });

  it('adds people with a link each, lists, invites and removes them', async () => {
    const added = await postern(['person', 'add', 'Ann', '--role', 'helper', '--json'], env);
    expect(added.code).to.equal(0);
    const ann = browser();
    await ann.press(pathOf(added.records()[0].url));
    expect((await ann.read('/console/me')).body).to.include({ name: 'ann', role: 'helper', can_set_password: true });
    const list = await postern(['person', 'list', '--json'], env);
    expect(list.records()[0]).to.include({ name: 'ann', role: 'helper', account: 'main', has_password: false });
    const invited = browser();
    await invited.press(pathOf((await postern(['person', 'invite', 'ann'], env)).out.trim()));
    expect((await invited.read('/console/me')).status).to.equal(200);
    expect((await postern(['person', 'remove', 'ann'], env)).out).to.equal('Removed ann\n');
    expect([(await ann.read('/console/me')).status, (await invited.read('/console/me')).status]).to.deep.equal([
      401, 401,
    ]);
  });

  it('records its changes of people in the activity: of the account, or of the host for an operator', async () => {
    for (const line of ['add kim --role reader', 'invite kim', 'reset-factor kim', 'unlock kim', 'remove kim'])
      expect((await postern(['person', ...line.split(' ')], env)).code, line).to.equal(0);
    const whats = async () =>
      (await daemon.api('/actions/list')).actions.filter(({ detail }: any) => /^kim/.test(detail));
    const noted = await until('the actions', async () => {
      const found = await whats();
      return found.length === 5 && found;
    });
    expect(noted.map(({ what, by, detail }: any) => [what, by, detail])).to.have.deep.members([
      ['person added', 'command line', 'kim (reader)'],
      ['person invited', 'command line', 'kim'],
      ['two-factor authentication reset', 'command line', 'kim'],
      ['person unlocked', 'command line', 'kim'],
      ['person removed', 'command line', 'kim (reader)'],
    ]);
    await postern(['person', 'add', 'root', '--role', 'operator'], env);
    expect((await daemon.api('/actions/list')).actions.some(({ detail }: any) => /root/.test(detail))).to.equal(false);
    const one = browser();
    await one.press(pathOf((await postern(['console', 'link'], env)).out.trim()));
    await until('the action of the host', async () => {
      const { body } = await one.write('/console/call/host/actions');
      return JSON.stringify(body).includes('root (operator)');
    });
  });

  it('explains invalid input for a person', async () => {
    await postern(['person', 'add', 'eve'], env);
    const wrong: Record<string, RegExp> = {
      'person add': /missing argument: NAME/,
      'person add a/b': /"a\/b" is not a valid name/,
      'person add bob --role king': /operator, owner, helper, reader/,
      'person add bob --role operator --account main': /sees all accounts/,
      'person add bob --account nobody': /no such account/,
      'person add eve': /exists already/,
      'person invite': /missing argument/,
      'person invite nobody': /no such person: nobody/,
      'person remove nobody': /no such person: nobody/,
      'console end': /--all/,
      'console end x --all': /--all/,
    };
    for (const [line, text] of Object.entries(wrong)) {
      const { code, err } = await postern(line.split(' '), env);
      expect([code, text.test(err)], `${line}: ${err}`).to.deep.equal([64, true]);
    }
  });

  it('lists sessions, and ends one or all', async () => {
    const [one, two] = [browser(), browser()];
    for (const each of [one, two]) await each.press(pathOf((await postern(['console', 'link'], env)).out.trim()));
    const sessions = (await postern(['console', 'sessions', '--json'], env)).records();
    expect(sessions.length).to.be.at.least(2);
    expect(sessions[0]).to.include({ name: 'operator', by: 'link', address: '127.0.0.1' });
    expect((await postern(['console', 'sessions'], env)).out).to.contain('last seen');
    await postern(['console', 'end', sessions[0].id], env);
    expect((await postern(['console', 'sessions', '--json'], env)).records()).to.have.length(sessions.length - 1);
    expect((await postern(['console', 'end', 'no-such-id'], env)).code).to.equal(1);
    await postern(['console', 'end', '--all'], env);
    expect([(await one.read('/console/me')).status, (await two.read('/console/me')).status]).to.deep.equal([401, 401]);
  });

  it('links to the URL of the console if it is enabled', async () => {
    const link = (more: Record<string, string>) => postern(['console', 'link'], { ...env, ...NOT_RUNNING, ...more });
    const on = { POSTERN_CONSOLE__ENABLED: 'true' };
    const far = await link({ ...on, POSTERN_CONSOLE__URL: 'https://console.example.com' });
    expect(far.out).to.match(/^https:\/\/console\.example\.com\/console\/enter\/[\w-]{44}\n$/);
    expect((await link({ ...on, POSTERN_PUBLIC_URL: 'https://mx.example.com/' })).out).to.match(
      /^https:\/\/mx\.example\.com\/console\/enter\//,
    );
    const here = await link({ ...on, POSTERN_PUBLIC_URL: 'http://mx.example.com', POSTERN_SMTP__LISTEN: '0.0.0.0:25' });
    expect(here.out).to.match(/^http:\/\/127\.0\.0\.1:1\/console\/enter\//);
    expect(here.err).to.contain('ssh -L 1:127.0.0.1:1 ').and.to.contain('set console.url');
    expect(here.err).to.contain('The daemon does not answer');
  });

  it('prints no dead link, but the missing setting', async () => {
    const off: Record<string, Record<string, string>> = {
      'turned off': { POSTERN_CONSOLE__ENABLED: 'false' },
      'in production, where the console is not on by itself': { ...NOT_RUNNING, POSTERN_SMTP__LISTEN: '0.0.0.0:25' },
      'the same, with a URL': {
        ...NOT_RUNNING,
        POSTERN_SMTP__LISTEN: '[::]:25',
        POSTERN_PUBLIC_URL: 'https://x.example',
      },
    };
    for (const [when, more] of Object.entries(off)) {
      const { code, out, err } = await postern(['console', 'link'], { ...env, ...more });
      expect([code, out], when).to.deep.equal([1, '']);
      expect(err, when).to.contain('console.enabled: true');
    }
    const unreachable = { ...NOT_RUNNING, POSTERN_HTTP__LISTEN: '192.0.2.1:8080', POSTERN_CONSOLE__ENABLED: 'true' };
    const { code, err } = await postern(['console', 'link'], { ...env, ...unreachable });
    expect([code, /Set console\.url/.test(err)]).to.deep.equal([1, true]);
    const added = await postern(['person', 'add', 'off'], { ...env, POSTERN_CONSOLE__ENABLED: 'false' });
    expect([added.code, added.out]).to.deep.equal([1, '']);
    expect(added.err).to.contain('console.enabled: true').and.to.contain('postern person invite off');
  });

  it('uses the settings of the running daemon: ones it has not read yet do not count', async () => {
    const running = await startDaemon({ POSTERN_CONSOLE__ENABLED: 'false' });
    const { host } = new URL(running.base);
    const more = { POSTERN_DATA_DIR: running.dir, POSTERN_HTTP__LISTEN: host, POSTERN_CONSOLE__ENABLED: 'true' };
    const link = await postern(['console', 'link'], more);
    expect([link.code, link.out]).to.deep.equal([1, '']);
    expect(link.err).to.contain('restart');
    await running.stop();
    const changed = await postern(['console', 'link'], { ...env, POSTERN_CONSOLE__URL: 'https://new.example' });
    expect(changed.err).to.contain('does not use https://new.example').and.to.contain('Restart');
  });

  it('rejects an insecure URL for the console', async () => {
    for (const url of [
      'http://console.example.com',
      'https://x.example/path',
      'ftp://x.example',
      'console.example.com',
      'https://u@x.example',
    ]) {
      const { code, err } = await postern(['config', 'check'], { POSTERN_CONSOLE__URL: url });
      expect([code, /console\.url/.test(err)], url).to.deep.equal([78, true]);
    }
    for (const url of [
      'https://console.example.com',
      'https://x.example:8443/',
      'http://localhost:8080',
      'http://[::1]:80',
    ])
      expect((await postern(['config', 'check'], { POSTERN_CONSOLE__URL: url })).code, url).to.equal(0);
  });
});
