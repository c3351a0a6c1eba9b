import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { newSenderDomain } from '../../../src/store/rows/domains.ts';
import type { Store } from '../../../src/store/store.ts';
import { ACCOUNT, type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { until } from '../../support/until.ts';

const PATH = '/api/1.0/templates/list.json';
/** Together far more than the buffers of two sockets hold. */
const TEMPLATES = 60;
const LENGTH = 1_000_000;

describe('a list that is streamed whole', () => {
  let world: ApiWorld;
  let reads: number;
  /** Which reading of templates and sender domains fails, counted from 1. */
  let failing: number;
  let socket: Socket | undefined;

  /** The store, which counts how often a page is read and may fail. */
  function counting(real: Store): Store {
    const counted = <T extends { many(...args: never[]): Promise<unknown> }>(collection: T): T => ({
      ...collection,
      async many(...args: never[]) {
        if (++reads === failing) throw new StoreAway('the store is away');
        return collection.many(...args);
      },
    });
    return {
      ...real,
      of: (account) => ({
        ...real.of(account),
        templates: counted(real.of(account).templates),
        senderDomains: counted(real.of(account).senderDomains),
      }),
    };
  }

  beforeEach(async () => {
    [reads, failing] = [0, 0];
    world = await startApi({ store: counting });
  });
  afterEach(async () => {
    socket?.destroy();
    await world.stop();
  });

  async function addDomains(count: number): Promise<void> {
    for (let n = 0; n < count; n++)
      await world.store.senderDomains.insert(
        newSenderDomain(ACCOUNT, `d${String(n).padStart(5, '0')}.example`, new Date()),
      );
  }

  async function addTemplates(): Promise<void> {
    const createdAt = new Date('2026-01-05T11:00:00Z');
    const draft = { code: 'x'.repeat(LENGTH), subject: null, fromEmail: null, fromName: null, text: null };
    for (let n = 0; n < TEMPLATES; n++) {
      const name = `t${String(n).padStart(2, '0')}`;
      await world.store.templates.insert({
        id: name,
        account: ACCOUNT,
        name,
        slug: name,
        labels: [],
        draft,
        published: null,
        publishedAt: null,
        createdAt,
        updatedAt: createdAt,
        version: 1,
      });
    }
  }

  /** Requests the list over a connection that is not read yet. */
  async function ask(): Promise<Socket> {
    const made = connect(world.port, '127.0.0.1');
    socket = made;
    made.on('error', () => {});
    made.pause();
    const body = JSON.stringify({ key: KEY });
    made.write(
      `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    );
    // Two pages are read before the first byte.
    await until('the list is begun', () => reads >= 2);
    return made;
  }

  /** How many pages were read when no more are. */
  async function settledReads(): Promise<number> {
    let [last, same] = [-1, 0];
    await until('nothing more is read', () => {
      same = last === reads ? same + 1 : 0;
      last = reads;
      return same > 30;
    });
    return reads;
  }

  it('is cut off when the store fails in the middle, and never looks complete', async () => {
    await addDomains(1200);
    failing = 3;
    const response = await fetch(`${world.base}/api/1.0/senders/domains.json`, {
      method: 'POST',
      body: JSON.stringify({ key: KEY }),
    });
    expect(response.status).to.equal(200);
    const body = await response.text().catch((error: unknown) => error);
    expect(body).to.be.instanceOf(Error);
    await until('the call is told of', () => world.log.of('api.call').length === 1);
    expect(world.log.of('api.call')[0]?.fields).to.include({
      operation: '/senders/domains',
      status: 503,
      error: 'ServiceUnavailable',
    });
    failing = 0;
    expect((await world.call('/senders/domains')).body).to.have.length(1201);
  }).timeout(60_000);

  it('returns an error when the store fails before the first byte', async () => {
    await addDomains(600);
    for (const read of [1, 2]) {
      [reads, failing] = [0, read];
      const { status, body } = await world.call('/senders/domains');
      expect({ status, name: body.name }).to.deep.equal({ status: 503, name: 'ServiceUnavailable' });
    }
  }).timeout(60_000);

  it('is empty, or one page with its length, like any other answer', async () => {
    const { body, headers } = await world.call('/senders/domains');
    expect(body).to.have.length(1);
    expect(headers.get('content-length')).to.equal(String(Buffer.byteLength(JSON.stringify(body))));
    await world.store.senderDomains.remove({ account: ACCOUNT });
    expect((await world.call('/senders/domains')).body).to.deep.equal([]);
  });

  it('is read from the store only as fast as the client reads', async () => {
    await addTemplates();
    const client = await ask();
    const stalled = await settledReads();
    const chunks: Buffer[] = [];
    client.on('data', (chunk) => chunks.push(chunk)).resume();
    await new Promise((resolve) => client.once('end', resolve));
    expect(stalled, 'while nobody reads').to.be.below(reads / 2);
    const text = Buffer.concat(chunks).toString();
    expect(text.match(/"name":"t\d\d"/g)).to.have.length(TEMPLATES);
    expect(text.trimEnd().endsWith('0')).to.equal(true);
  }).timeout(60_000);

  it('stops reading when its client has disconnected', async () => {
    await addTemplates();
    const client = await ask();
    client.destroy();
    const last = await settledReads();
    expect(last).to.be.below(20);
    await until('the call is over', () => world.log.of('api.call').length === 1);
  }).timeout(60_000);

  it('is cut off when its client reads nothing for a minute', async () => {
    await addTemplates();
    const client = await ask();
    await settledReads();
    expect(world.log.of('api.call')).to.deep.equal([]);
    await world.clock.advance(60_000);
    await until('the call is over', () => world.log.of('api.call').length === 1);
    client.resume();
    await until('the connection is closed', () => client.destroyed);
  }).timeout(60_000);
});
