import { once } from 'node:events';
import { get } from 'node:https';
import { connect, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls';
import { expect } from 'chai';
import type { ApiSettings } from '../../../src/api/http/server.ts';
import { type ApiWorld, startApi } from '../../support/api.ts';
import { type IssueOptions, issueCertificate } from '../../support/issuer.ts';
import { until } from '../../support/until.ts';

const NAMES = ['api.postern.test', 'track.customer.test'] as const;
const ANY_PORT = { host: '127.0.0.1', port: 0 };

describe('HTTPS in this process', () => {
  let world: ApiWorld;
  let port: number;
  let plainPort: number;
  let sockets: Socket[];
  const contexts = new Map<string, ReturnType<typeof createSecureContext>>();
  before(async () => {
    for (const name of NAMES) {
      const options: IssueOptions = { name };
      const { chain: cert, key } = await issueCertificate(options);
      contexts.set(name, createSecureContext({ cert, key }));
    }
  });
  beforeEach(() => {
    sockets = [];
  });
  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    await world.stop();
  });

  async function start(settings: Partial<ApiSettings> = {}, has: (name: string) => boolean = () => true) {
    world = await startApi({
      settings: { secureListen: [ANY_PORT], redirectListen: [ANY_PORT], ...settings },
      deps: {
        certificates: {
          contextFor: (name) => (has(name) ? (contexts.get(name) ?? contexts.get(NAMES[0])) : undefined),
          isOurs: (name) => contexts.has(name),
          answerTo: async (token) => (token === 'known-token' ? 'the answer' : undefined),
        },
      },
    });
    const { https, redirect } = world.api.tlsAddresses();
    port = https[0]?.port ?? 0;
    plainPort = redirect[0]?.port ?? 0;
  }
  function ask(path: string, options: object = {}) {
    return new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
      const given = { host: '127.0.0.1', port, path, rejectUnauthorized: false, agent: false, ...options };
      get(given, (answer) => {
        answer.toArray().then((parts) => resolve({ status: answer.statusCode, text: parts.join('') }), reject);
      }).on('error', reject);
    });
  }
  /** A TCP connection that says nothing by itself. */
  async function silent(to = port): Promise<Socket> {
    const socket = connect(to, '127.0.0.1').on('error', () => undefined);
    sockets.push(socket.resume());
    await once(socket, 'connect');
    return socket;
  }
  const isOver = (socket: Socket) => socket.destroyed || socket.readableEnded;
  async function secured(servername: string): Promise<TLSSocket> {
    const socket = connectTls({ host: '127.0.0.1', port, servername, rejectUnauthorized: false });
    sockets.push(socket);
    await once(socket, 'secureConnect');
    return socket;
  }

  it('answers as HTTP does, with the certificate of the name that the client asks for', async () => {
    await start();
    for (const name of NAMES) {
      const socket = await secured(name);
      expect(socket.getPeerX509Certificate()?.subjectAltName).to.equal(`DNS:${name}`);
      expect(socket.alpnProtocol || false).to.equal(false);
    }
    expect((await ask('/healthz')).status).to.equal(200);
    expect(world.api.connections('https')).to.be.at.least(2);
    expect((await world.call('/users/ping')).status).to.equal(200);
  });

  it('keeps a connection for several calls, and knows the address of the client', async () => {
    await start({ trustedProxies: [] });
    const socket = await secured(NAMES[0]);
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk;
    });
    for (let n = 1; n <= 3; n++) {
      socket.write('GET /healthz HTTP/1.1\r\nHost: api.postern.test\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n');
      await until('an answer', () => text.split('HTTP/1.1 200').length === n + 1);
    }
    socket.write(
      'POST /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9\r\nContent-Length: 13\r\n\r\n{"key":"bad"}',
    );
    await until('the refusal', () => world.log.of('api.refused_key').length === 1);
    expect(world.log.of('api.refused_key')[0]?.fields['address']).to.equal('127.0.0.1');
  });

  it('ends the handshake without a certificate, and continues', async () => {
    await start({}, () => false);
    const failed = await ask('/healthz').then(
      () => undefined,
      (error: Error) => error,
    );
    expect(String(failed)).to.match(/handshake|EPROTO|alert/i);
    expect((await world.call('/users/ping')).status).to.equal(200);
  });

  it('survives invalid handshakes, and connections that are reset during one', async () => {
    await start();
    for (let n = 0; n < 30; n++) {
      const socket = await silent();
      if (n % 3 === 0) socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      if (n % 3 === 1) socket.write(Buffer.from('16030100ff010000fb0303', 'hex'));
      if (n % 3 === 2) socket.resetAndDestroy();
      else if (n % 2 === 0) socket.resetAndDestroy();
    }
    expect((await ask('/healthz')).status).to.equal(200);
    expect(world.log.lines.filter(({ level }) => level === 'error' || level === 'warn')).to.deep.equal([]);
  });

  it('counts connections before their handshake: those beyond the limit of an address are closed', async () => {
    await start({ maxConnectionsPerAddress: 5 });
    const held: Socket[] = [];
    for (let n = 0; n < 40; n++) held.push(await silent());
    // Ten may wait for an answer that says why.
    await until('the end of the others', () => held.filter(isOver).length >= 25);
    expect(held.slice(0, 5).some(isOver)).to.equal(false);
    for (const socket of held) socket.destroy();
    await until('a slot', () =>
      ask('/healthz').then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
  });

  it('gives the slot of a handshake that never ends to a client that calls', async () => {
    await start({ maxConnections: 20, maxConnectionsPerAddress: 50 });
    const held: Socket[] = [];
    for (let n = 0; n < 20; n++) held.push(await silent());
    expect((await ask('/healthz', { localAddress: '127.0.0.2' })).status).to.equal(200);
    expect(held.filter(isOver).length).to.be.at.least(1);
  });

  it('stops with handshakes and idle connections open', async () => {
    await start();
    const [half, idle] = [await silent(), await secured(NAMES[0])];
    await world.api.stop();
    await until('the end of both', () => isOver(half) && (idle.destroyed || idle.readableEnded || idle.closed));
    expect(world.api.tlsAddresses()).to.deep.equal({ https: [], redirect: [] });
  });

  it('answers a challenge on every port, for a proxy in front that passes it on', async () => {
    await start();
    expect(await ask('/.well-known/acme-challenge/known-token')).to.deep.equal({ status: 200, text: 'the answer' });
    for (const [token, status] of [
      ['known-token', 200],
      ['other-token', 404],
    ] as const)
      expect((await fetch(`${world.base}/.well-known/acme-challenge/${token}`)).status).to.equal(status);
  });

  it('answers a challenge on port 80 whatever the host, and limits connections there as well', async () => {
    await start({ maxConnectionsPerAddress: 5 });
    for (const host of ['api.postern.test', 'unknown.example']) {
      const path = '/.well-known/acme-challenge/known-token';
      const answer = await fetch(`http://127.0.0.1:${plainPort}${path}`, { headers: { host, connection: 'close' } });
      expect([answer.status, await answer.text()]).to.deep.equal([200, 'the answer']);
    }
    const held: Socket[] = [];
    for (let n = 0; n < 40; n++) held.push(await silent(plainPort));
    await until('the end of some', () => held.filter(isOver).length >= 20);
  });
});
