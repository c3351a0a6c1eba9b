import { expect } from 'chai';
import { readFileSync } from 'node:fs';
import { toOpenApi } from '../../src/api/openapi.ts';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { toMarkdown } from '../../src/api/reference.ts';
import { startApi } from '../support/api.ts';

const read = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8');

describe('the reference', () => {
  it('docs/api.md is what the declarations say (npm run docs writes it)', () => {
    expect(read('api.md') === toMarkdown(OPERATIONS), 'docs/api.md is out of date: npm run docs').to.equal(true);
  });

  it('docs/openapi.json is what the declarations say (npm run docs writes it)', () => {
    expect(JSON.parse(read('openapi.json'))).to.deep.equal(JSON.parse(JSON.stringify(toOpenApi(OPERATIONS, '/api/1.0'))));
  });

  it('describes every operation with the key, its own parameters and every status it may answer', () => {
    const { paths } = toOpenApi(OPERATIONS, '/api/1.0');
    expect(Object.keys(paths)).to.deep.equal(OPERATIONS.map((operation) => `${operation.path}.json`));
    const addRoute = paths['/inbound/add-route.json']?.post;
    expect(addRoute?.requestBody.content['application/json'].schema.required).to.deep.equal(['key', 'domain', 'pattern', 'url']);
    expect(Object.keys(addRoute?.responses ?? {})).to.have.members(['200', '401', '404', '422', '429', '500', '503']);
  });

  it('shows command lines that answer what it says, as a shell would run them', async () => {
    const world = await startApi();
    const html = await (await fetch(`${world.base}/docs`)).text();
    const line = /curl -s http:\/\/127\.0\.0\.1:8080(\S+) -d &#39;(.*?)&#39;<\/code><\/pre><pre><code>([^<]*)</g;
    const plain = (text: string) => text.replaceAll('&quot;', '"').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&#39;', "'").replaceAll('&amp;', '&');
    const ping = [...html.matchAll(line)].find(([, path]) => path === '/api/1.0/users/ping2.json');
    const response = await fetch(world.base + ping?.[1], { method: 'POST', body: plain(ping?.[2] ?? ''), headers: { 'content-type': 'application/x-www-form-urlencoded' } });
    expect(await response.json()).to.deep.equal(JSON.parse(plain(ping?.[3] ?? '')));
    await world.stop();
  });
});
