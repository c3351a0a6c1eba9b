import { expect } from 'chai';
import http from 'node:http';
import https from 'node:https';
import { createRequire } from 'node:module';
import { KEY, startApi, type ApiWorld } from '../support/api.ts';

// The official Node clients of the public ancestor, unchanged but for where they send to. Both are CommonJS without types.
const require = createRequire(import.meta.url);

const RAW = 'From: a@b.example\r\nTo: box@new.example.com\r\nSubject: Hi\r\n\r\nText';
const HOOK = 'https://app.example.com/hooks/new';

describe('mandrill-api', () => {
  let world: ApiWorld;
  const original = https.request;
  beforeEach(async () => {
    world = await startApi();
    // Its host is a constant in a closure; this is the way in.
    Object.assign(https, { request: (options: object, done: () => void) => http.request({ ...options, host: '127.0.0.1', port: world.port, agent: undefined, protocol: 'http:' }, done) });
  });
  afterEach(async () => {
    Object.assign(https, { request: original });
    await world.stop();
  });

  type Method = (params: object, done: (answer: any) => void, failed: (error: any) => void) => void;
  const client = (key = KEY) => new (require('mandrill-api/mandrill').Mandrill)(key);
  const call = (inbound: any, method: string, params: object = {}) => new Promise<any>((resolve, reject) => {
    const run: Method = inbound[method].bind(inbound);
    run(params, resolve, reject);
  });

  it('adds a domain and a route, injects a message, reads and deletes', async () => {
    const { inbound, users } = client();
    expect(await call(users, 'ping2')).to.deep.equal({ PING: 'PONG!' });
    expect(await call(inbound, 'addDomain', { domain: 'new.example.com' })).to.deep.equal({ domain: 'new.example.com', created_at: '2026-01-05 12:00:00', valid_mx: false });
    const route = await call(inbound, 'addRoute', { domain: 'new.example.com', pattern: 'box', url: HOOK });
    expect(route).to.deep.equal({ id: '1.2', pattern: 'box', url: HOOK });
    expect(await call(inbound, 'sendRaw', { raw_message: RAW })).to.deep.equal([{ email: 'box@new.example.com', pattern: 'box', url: HOOK }]);
    expect(await call(inbound, 'sendRaw', { raw_message: RAW, to: ['nobody@new.example.com'] })).to.deep.equal([]);
    expect(await call(inbound, 'updateRoute', { id: route.id, pattern: 'box-*' })).to.deep.equal({ ...route, pattern: 'box-*' });
    expect(await call(inbound, 'routes', { domain: 'new.example.com' })).to.deep.equal([{ ...route, pattern: 'box-*' }]);
    expect(await call(inbound, 'deleteRoute', { id: route.id })).to.deep.equal({ ...route, pattern: 'box-*' });
    expect(await call(inbound, 'deleteDomain', { domain: 'new.example.com' })).to.include({ domain: 'new.example.com' });
    expect((await call(inbound, 'domains')).map((one: { domain: string }) => one.domain)).to.deep.equal(['inbound.example.com']);
  });

  it('hands errors to its error callback', async () => {
    const failure = (inbound: any, method: string, params: object) => call(inbound, method, params).then(() => { throw new Error('no error came'); }, (error: unknown) => error);
    expect(await failure(client().inbound, 'routes', { domain: 'none.example.com' })).to.deep.equal({ status: 'error', code: 8, name: 'Unknown_InboundDomain', message: 'Unknown Inbound Domain: none.example.com' });
    expect(await failure(client('wrong').inbound, 'domains', {})).to.include({ code: -1, name: 'Invalid_Key', message: 'Invalid API key' });
    expect(await failure(client().inbound, 'addDomain', {})).to.include({ code: -1, name: 'ValidationError', message: 'You must specify a domain value' });
  });
});

describe('@mailchimp/mailchimp_transactional', () => {
  let world: ApiWorld;
  beforeEach(async () => { world = await startApi(); });
  afterEach(() => world.stop());

  function client(key = KEY) {
    const made = require('@mailchimp/mailchimp_transactional')(key);
    made.basePath = `${world.base}/api/1.3`;
    return made;
  }

  it('adds a domain and a route, injects a message, reads and deletes, with and without .json', async () => {
    const { users, inbound } = client();
    expect(await users.ping()).to.equal('PONG!');
    expect(await inbound.addDomain({ domain: 'new.example.com' })).to.include({ domain: 'new.example.com' });
    const route = await inbound.addRoute({ domain: 'new.example.com', pattern: 'box', url: HOOK, outputFormat: 'json' });
    expect(route).to.deep.equal({ id: '1.2', pattern: 'box', url: HOOK });
    expect(await inbound.sendRaw({ raw_message: RAW })).to.deep.equal([{ email: 'box@new.example.com', pattern: 'box', url: HOOK }]);
    expect(await inbound.routes({ domain: 'new.example.com' })).to.deep.equal([route]);
    expect(await inbound.deleteRoute({ id: route.id })).to.deep.equal(route);
    expect(await inbound.deleteDomain({ domain: 'new.example.com' })).to.include({ domain: 'new.example.com' });
  });

  it('resolves with an error of axios that carries status and envelope', async () => {
    const failed = await client().inbound.deleteRoute({ id: '7.23' });
    expect(failed.isAxiosError).to.equal(true);
    expect(failed.response.status).to.equal(404);
    expect(failed.response.data).to.deep.equal({ status: 'error', code: 22, name: 'Unknown_InboundRoute', message: 'No route exists with the id 7.23' });
    expect((await client('wrong').users.ping()).response.status).to.equal(401);
  });
});
