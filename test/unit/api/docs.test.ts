import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { expect } from 'chai';
import { toOpenApi } from '../../../src/api/docs/openapi.ts';
import { toMarkdown } from '../../../src/api/docs/reference.ts';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { KEY, startApi } from '../../support/api.ts';

const read = (name: string) => readFileSync(new URL(`../../../docs/${name}`, import.meta.url), 'utf8');

describe('the API reference', () => {
  it('docs/api.md matches the declarations (npm run docs writes it)', () => {
    expect(read('api.md') === toMarkdown(OPERATIONS), 'docs/api.md is out of date: npm run docs').to.equal(true);
  });

  it('docs/openapi.json matches the declarations (npm run docs writes it)', () => {
    expect(JSON.parse(read('openapi.json'))).to.deep.equal(
      JSON.parse(JSON.stringify(toOpenApi(OPERATIONS, '/api/1.0'))),
    );
  });

  it('describes every operation with the key, its own parameters and every possible status', () => {
    const { paths } = toOpenApi(OPERATIONS, '/api/1.0');
    expect(Object.keys(paths)).to.deep.equal(OPERATIONS.map((operation) => `${operation.path}.json`));
    const addRoute = paths['/inbound/add-route.json']?.post;
    expect(Object.keys(addRoute?.responses ?? {})).to.have.members(['200', '401', '404', '422', '429', '500', '503']);
  });

  it('is accepted by an independent OpenAPI validator', async () => {
    expect(await new Validator().validate(JSON.parse(read('openapi.json')))).to.deep.equal({ valid: true });
  });

  it('names every struct once, so that a generated client has one class for each record', () => {
    const {
      components: { schemas },
      paths,
    } = toOpenApi(OPERATIONS, '/api/1.0');
    const route = { $ref: '#/components/schemas/InboundRoute' };
    const answer = (path: string): unknown => paths[path]?.post.responses[200].content['application/json'].schema;
    expect(answer('/inbound/add-route.json')).to.deep.equal(route);
    expect(answer('/inbound/routes.json')).to.deep.equal({ type: 'array', items: route });
    expect(schemas).to.include.keys('Template', 'Webhook', 'SenderDomain', 'DedicatedIp', 'InboundAddRouteRequest');
    expect(paths['/inbound/add-route.json']?.post.requestBody.content['application/json'].schema).to.deep.equal({
      $ref: '#/components/schemas/InboundAddRouteRequest',
    });
    const unnamed = Object.entries(paths).filter(([, { post }]) => {
      const schema: any = post.responses[200].content['application/json'].schema;
      return (schema.type === 'object' && schema.properties !== undefined) || schema.items?.type === 'object';
    });
    expect(unnamed.map(([path]) => path)).to.deep.equal([]);
  });

  it('documents the bearer token, which works', async () => {
    const { components, security, paths } = toOpenApi(OPERATIONS, '/api/1.0');
    expect(components.securitySchemes.bearer).to.include({ type: 'http', scheme: 'bearer' });
    expect(security).to.deep.equal([{ bearer: [] }, {}]);
    expect(Object.keys(paths)).to.include('/users/ping2.json');
    const world = await startApi();
    const ping = async (authorization: string, body: object = {}) => {
      const response = await fetch(`${world.base}/api/1.0/users/ping2`, {
        method: 'POST',
        headers: { authorization },
        body: JSON.stringify(body),
      });
      return [response.status, (await response.json()) as { PING?: string; name?: string; message?: string }];
    };
    expect(await ping(`Bearer ${KEY}`)).to.deep.equal([200, { PING: 'PONG!' }]);
    expect(await ping(`bearer ${KEY}`, { key: null })).to.deep.equal([200, { PING: 'PONG!' }]);
    expect((await ping('Bearer NoSuchKey0000000000000'))[0]).to.equal(401);
    expect(
      (await ping(`Bearer ${KEY}`, { key: 'NoSuchKey0000000000000' }))[0],
      'the key of the body is the one that counts',
    ).to.equal(401);
    expect((await ping(`Basic ${KEY}`))[1]).to.include({
      name: 'ValidationError',
      message: 'You must specify a key value',
    });
    await world.stop();
  });

  it('shows shell commands that return the shown answers', async () => {
    const world = await startApi();
    const html = await (await fetch(`${world.base}/docs`)).text();
    const line = /curl -s http:\/\/127\.0\.0\.1:8080(\S+) -d &#39;(.*?)&#39;<\/code><\/pre><pre><code>([^<]*)</g;
    const plain = (text: string) =>
      text
        .replaceAll('&quot;', '"')
        .replaceAll('&lt;', '<')
        .replaceAll('&gt;', '>')
        .replaceAll('&#39;', "'")
        .replaceAll('&amp;', '&');
    const ping = [...html.matchAll(line)].find(([, path]) => path === '/api/1.0/users/ping2.json');
    const response = await fetch(world.base + ping?.[1], {
      method: 'POST',
      body: plain(ping?.[2] ?? ''),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
    expect(await response.json()).to.deep.equal(JSON.parse(plain(ping?.[3] ?? '')));
    await world.stop();
  });
});
