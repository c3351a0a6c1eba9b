import { expect } from 'chai';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { HOST_OPERATIONS } from '../../../src/console/host/index.ts';
import { OPEN_PATHS, SESSION_PATHS } from '../../../src/console/roles.ts';
import { ROLES, type Role } from '../../../src/store/rows/people.ts';
import { ACCOUNT, OTHER_ACCOUNT } from '../../support/api.ts';
import { addTestPerson, type Browser, startConsole } from '../../support/console.ts';

/** A path, with something for each of its names. */
const made = (path: string) => path.replaceAll(/:\w+/g, 'x.y');

type World = Awaited<ReturnType<typeof startConsole>>;

/** Everything that the console answers in a session, by what it opens: operations, and paths with their method. */
const OPENS: Readonly<Record<string, readonly string[]>> = {
  own: [
    'GET /me',
    'DELETE /session',
    'POST /password',
    'POST /confirm',
    'POST /factor',
    'POST /factor/on',
    'POST /factor/off',
  ],
  numbers: [
    'endpoints/info',
    'endpoints/list',
    'inbound/domains',
    'senders/domains',
    'senders/info',
    'senders/list',
    'senders/time-series',
    'tags/all-time-series',
    'tags/info',
    'tags/list',
    'tags/time-series',
    'urls/list',
    'urls/time-series',
    'users/info',
    'users/ping',
    'users/ping2',
    'users/senders',
  ],
  mail: [
    'GET /live',
    'actions/list',
    'allowlists/list',
    'inbound/causes',
    'inbound/conversation',
    'inbound/deliveries',
    'inbound/info',
    'inbound/refusals',
    'inbound/replay',
    'inbound/retry',
    'inbound/search',
    'jobs/info',
    'messages/info',
    'messages/list-scheduled',
    'messages/search',
    'messages/search-time-series',
    'rejects/list',
    'whitelists/list',
  ],
  content: [
    'POST /mail',
    'GET /mail/:grant/html',
    'GET /mail/:grant/links',
    'GET /mail/:grant/raw',
    'GET /mail/:grant/part/:number',
    'inbound/ack',
    'inbound/content',
    'inbound/nack',
    'inbound/payload',
    'inbound/pull',
    'inbound/tap',
    'inbound/try',
    'messages/content',
  ],
  settings: [
    'POST /test-message',
    'allowlists/add',
    'allowlists/delete',
    'endpoints/pause',
    'endpoints/resume',
    'endpoints/retry',
    'exports/activity',
    'exports/allowlist',
    'exports/info',
    'exports/list',
    'exports/rejects',
    'exports/whitelist',
    'inbound/add-domain',
    'inbound/add-route',
    'inbound/check-domain',
    'inbound/delete-domain',
    'inbound/delete-route',
    'inbound/domain-servers',
    'inbound/drop',
    'inbound/reply-address',
    'inbound/routes',
    'inbound/send-raw',
    'inbound/test-route',
    'inbound/try-route',
    'inbound/update-route',
    'ips/cancel-provision',
    'ips/cancel-warmup',
    'ips/check-custom-dns',
    'ips/create-pool',
    'ips/delete',
    'ips/delete-pool',
    'ips/info',
    'ips/list',
    'ips/list-pools',
    'ips/pool-info',
    'ips/provision',
    'ips/set-custom-dns',
    'ips/set-pool',
    'ips/start-warmup',
    'keys/list',
    'messages/cancel-scheduled',
    'messages/parse',
    'messages/reschedule',
    'messages/resend',
    'messages/retry',
    'messages/send',
    'messages/send-raw',
    'messages/send-template',
    'messages/stop',
    'metadata/add',
    'metadata/delete',
    'metadata/list',
    'metadata/update',
    'rejects/add',
    'rejects/delete',
    'senders/add-domain',
    'senders/check-domain',
    'senders/delete-domain',
    'senders/verify-domain',
    'subaccounts/add',
    'subaccounts/delete',
    'subaccounts/info',
    'subaccounts/list',
    'subaccounts/pause',
    'subaccounts/resume',
    'subaccounts/update',
    'tags/delete',
    'templates/add',
    'templates/delete',
    'templates/info',
    'templates/list',
    'templates/publish',
    'templates/render',
    'templates/time-series',
    'templates/update',
    'urls/add-tracking-domain',
    'urls/check-tracking-domain',
    'urls/delete-tracking-domain',
    'urls/search',
    'urls/tracking-domains',
    'webhooks/delete',
    'webhooks/deliveries',
    'webhooks/test',
    'whitelists/add',
    'whitelists/delete',
  ],
  secrets: [
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
  ],
  host: [
    'host/accounts',
    'host/actions',
    'host/drop',
    'host/examine',
    'host/hosts',
    'host/job',
    'host/endpoints',
    'host/listeners',
    'host/log',
    'host/preparing',
    'host/overview',
    'host/pause',
    'host/people',
    'host/run-task',
    'host/queue',
    'host/resume',
    'host/retry',
    'host/series',
    'host/sessions',
    'host/settings',
    'host/tasks',
  ],
  people: ['host/add-person', 'host/end-session', 'host/invite-person', 'host/remove-person', 'host/reset-factor'],
};

const MAY: Readonly<Record<Role, readonly string[]>> = {
  reader: ['own', 'numbers'],
  helper: ['own', 'numbers', 'mail'],
  owner: ['own', 'numbers', 'mail', 'content', 'settings', 'secrets'],
  operator: ['own', 'numbers', 'mail', 'settings', 'secrets', 'host', 'people'],
};

/** Paths that end the session, or have other tests of their own; asked last. */
const LAST = ['POST /password', 'POST /confirm', 'DELETE /session'];

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

  it('cover every path and every operation of the console', () => {
    const found: Record<string, string[]> = {};
    for (const [name, kind] of SESSION_PATHS) (found[kind] ??= []).push(name);
    for (const { path, access } of [...OPERATIONS, ...HOST_OPERATIONS]) (found[access] ??= []).push(path.slice(1));
    expect(found['operation']).to.deep.equal(['POST /call/:group/:name']);
    delete found['operation'];
    for (const names of Object.values(found)) names.sort();
    expect(found).to.deep.equal(
      Object.fromEntries(Object.entries(OPENS).map(([kind, names]) => [kind, names.toSorted()])),
    );
  });

  it('allow each role exactly its paths and operations', async () => {
    for (const role of ROLES) {
      const browser = world.browser();
      await browser.enter(role);
      const denied: string[] = [];
      const asked = Object.entries(OPENS).flatMap(([kind, names]) => names.map((name) => ({ kind, name })));
      asked.sort((a, b) => LAST.indexOf(a.name) - LAST.indexOf(b.name));
      for (const { name } of asked) {
        const [method = '', path = ''] = name.includes(' ') ? name.split(' ') : ['POST', `/call/${name}`];
        const url = `/console${made(path)}${path === '/live' ? '?topics=none' : ''}`;
        // Parameters that no operation takes: what is allowed answers for itself, and changes nothing.
        const params = { id: { never: true }, name: { never: true } };
        const account = { 'Postern-Account': path === '/test-message' ? 'none' : ACCOUNT };
        const { status, text } =
          method === 'GET' ? await browser.read(url, account) : await browser.write(url, params, account, method);
        const { name: error } = text === '' ? { name: 'ok' } : JSON.parse(text);
        if (status === 403 && error === 'Not_Allowed') denied.push(name);
        else expect(error, `${role} ${name}`).to.not.be.oneOf(['Cross_Site', 'Signed_Out', 'Unknown_Operation']);
      }
      const closed = asked.filter(({ kind }) => !MAY[role].includes(kind)).map(({ name }) => name);
      expect(denied.toSorted(), role).to.deep.equal(closed.toSorted());
    }
  });

  it('are sent to the page, which shows what is permitted', async () => {
    for (const role of ROLES) {
      const { body } = (await browsers[role]?.read('/console/me')) ?? {};
      const open = [...OPERATIONS, ...HOST_OPERATIONS].filter(({ access }) => MAY[role].includes(access));
      expect(body.calls, role).to.deep.equal(open.map(({ path }) => path.slice(1)));
    }
  });

  it('cover other methods too: those get the empty page, or nothing', async () => {
    const known = new Set<string>([...OPEN_PATHS, ...SESSION_PATHS.map(([name]) => name)]);
    const paths = new Set(
      [...known].map((name) => name.split(' ')[1] ?? '').filter((path) => !path.includes('{') && !path.includes('*')),
    );
    for (const path of paths)
      for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
        if (known.has(`${method} ${path}`)) continue;
        const reply = await browsers['owner']?.write(`/console${made(path)}`, {}, {}, method);
        if (method === 'GET') expect(reply?.text, path).to.match(/^<!doctype html>[^]*<body><div id="app"><\/div>/);
        else if (method === 'HEAD') expect(reply?.text, path).to.equal('');
        else expect([reply?.status, reply?.body.name], `${method} ${path}`).to.deep.equal([404, 'Unknown_Path']);
      }
  });

  it('confine people to their account: another one is answered like an unknown one', async () => {
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
      expect(live?.status, role).to.equal(role === 'reader' ? 403 : 422);
    }
  });

  it('let an operator choose the account, and require it if there are several', async () => {
    expect((await call('operator', '/inbound/domains')).body).to.have.length(1);
    expect((await call('operator', '/inbound/domains', {}, OTHER_ACCOUNT)).body).to.have.length(0);
    const without = await browsers['operator']?.write('/console/call/inbound/domains');
    expect([without?.status, without?.body.message]).to.deep.equal([
      422,
      'Choose an account: the Postern-Account header is missing',
    ]);
  });

  it('answer operations like the API, with its errors', async () => {
    const bad = await call('owner', '/inbound/add-domain', { domain: 7 });
    const same = await world.call('/inbound/add-domain', { domain: 7 });
    expect([bad.status, bad.body]).to.deep.equal([same.status, same.body]);
    const missing = await call('owner', '/no/such');
    expect([missing.status, missing.body.name]).to.deep.equal([404, 'Unknown_Operation']);
  });

  it('record each access of an operator to mail, where the setting allows it', async () => {
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
        what: 'content viewed',
        count: 1,
        detail: '/messages/content x',
      },
    ]);
    await open.stop();
  });

  it('limit a session to eight concurrent calls', async () => {
    const browser = world.browser();
    await browser.enter('owner');
    const replies = await Promise.all(Array.from({ length: 30 }, () => browser.write('/console/call/users/info')));
    const refused = replies.filter(({ status }) => status === 429);
    expect(replies.filter(({ status }) => status === 200).length).to.be.at.least(8);
    for (const { headers } of refused) expect(headers['retry-after']).to.equal('1');
  });
});
