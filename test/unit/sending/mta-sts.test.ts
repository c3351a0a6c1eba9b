import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { allowedNetworks } from '../../../src/base/networks.ts';
import {
  createPolicies,
  createPolicyFetch,
  parsePolicy,
  parsePolicyId,
  policyAllows,
} from '../../../src/sending/transport/mta-sts.ts';
import { MX_CERT, MX_KEY } from '../../support/carrier-tls.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { until } from '../../support/until.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const POLICY = 'version: STSv1\r\nmode: enforce\r\nmx: mx.example.com\r\nmx: *.Backup.example.\r\nmax_age: 86400\r\n';

describe('an MTA-STS policy', () => {
  it('is parsed by RFC 8461', () => {
    expect(parsePolicy(POLICY)).to.deep.equal({
      mode: 'enforce',
      hosts: ['mx.example.com', '*.backup.example'],
      maxAgeS: 86_400,
    });
    expect(parsePolicy('version: STSv1\nmode: testing\nmode: enforce\nmx: a\nmax_age: 1\nfuture: x\n\n')).to.deep.equal(
      { mode: 'testing', hosts: ['a'], maxAgeS: 1 },
    );
    expect(parsePolicy('version: STSv1\nmode: none\nmax_age: 1')).to.deep.equal({
      mode: 'none',
      hosts: [],
      maxAgeS: 1,
    });
    for (const wrong of [
      '',
      'version: STSv2\nmode: none\nmax_age: 1',
      'version: STSv1\nmode: enforced\nmx: a\nmax_age: 1',
      'version: STSv1\nmode: enforce\nmax_age: 1',
      'version: STSv1\nmode: none\nmax_age: -1',
      'version: STSv1\nmode: none\nmax_age: 1e9',
      'version: STSv1\nmode: none',
      '<html>',
    ]) {
      expect(parsePolicy(wrong), wrong).to.equal(undefined);
    }
  });

  it('has an id in the DNS', () => {
    expect(parsePolicyId(['v=STSv1; id=20160831085700Z;'])).to.equal('20160831085700Z');
    expect(parsePolicyId(['something else', 'v=STSv1;id=a', 'v=spf1 -all'])).to.equal('a');
    for (const wrong of [
      [],
      ['v=STSv1; id=a', 'v=STSv1; id=b'],
      ['v=STSv1'],
      ['v=STSv1; id='],
      [`v=STSv1; id=${'a'.repeat(33)}`],
      ['v=STSv1; id=a-b'],
      ['v=STSv10; id=a'],
    ])
      expect(parsePolicyId(wrong), wrong.join()).to.equal(undefined);
  });

  it('lists hosts by name, and by one label', () => {
    const policy = { mode: 'enforce', hosts: ['mx.example.com', '*.backup.example'], maxAgeS: 1 } as const;
    for (const host of ['mx.example.com', 'MX.Example.com.', 'a.backup.example'])
      expect(policyAllows(policy, host), host).to.equal(true);
    for (const host of [
      'x.mx.example.com',
      'example.com',
      'backup.example',
      'a.b.backup.example',
      'abackup.example',
      'mx.example.com.evil.example',
    ])
      expect(policyAllows(policy, host), host).to.equal(false);
  });
});

describe('MTA-STS policies', () => {
  let clock: TestClock;
  let fetched: string[];
  let text: string | undefined;
  beforeEach(() => {
    clock = createTestClock();
    fetched = [];
    text = POLICY;
  });

  const fetchPolicy = async (domain: string) => {
    fetched.push(domain);
    if (text === undefined) throw new Error('away');
    return text;
  };
  const policiesOf = (zone: () => ZoneRecords) =>
    createPolicies({
      clock,
      fetchPolicy,
      resolver: {
        ...zoneResolver({}),
        resolve: (...args: Parameters<ReturnType<typeof zoneResolver>['resolve']>) =>
          zoneResolver(zone()).resolve(...args),
      } as ReturnType<typeof zoneResolver>,
    });
  const record = (id: string): ZoneRecords => ({ '_mta-sts.example.com': { TXT: [`v=STSv1; id=${id}`] } });

  it('are fetched once for each id, and not at all without a record', async () => {
    let zone = record('one');
    const policies = policiesOf(() => zone);
    expect(
      await Promise.all([policies.of('example.com'), policies.of('example.com'), policies.of('other.example')]),
    ).to.deep.include({ mode: 'enforce', hosts: ['mx.example.com', '*.backup.example'], maxAgeS: 86_400 });
    expect(await policies.of('example.com')).to.include({ mode: 'enforce' });
    expect(fetched).to.deep.equal(['example.com']);
    zone = record('two');
    text = 'version: STSv1\nmode: testing\nmx: a\nmax_age: 10';
    expect(await policies.of('example.com')).to.include({ mode: 'testing' });
    expect(fetched).to.deep.equal(['example.com', 'example.com']);
  });

  it('are valid until they expire, whatever happens to the record or the policy host', async () => {
    let zone: ZoneRecords = record('one');
    const policies = policiesOf(() => zone);
    await policies.of('example.com');
    zone = { '_mta-sts.example.com': { fails: 'servfail' } };
    expect(await policies.of('example.com')).to.include({ mode: 'enforce' });
    zone = {};
    expect(await policies.of('example.com')).to.include({ mode: 'enforce' });
    zone = record('two');
    text = undefined;
    expect(await policies.of('example.com')).to.include({ mode: 'enforce' });
    await clock.advance(86_400_000);
    expect(await policies.of('example.com')).to.equal(undefined);
  });

  it('are fetched again five minutes after a failure', async () => {
    text = undefined;
    const policies = policiesOf(() => record('one'));
    expect([await policies.of('example.com'), await policies.of('example.com')]).to.deep.equal([undefined, undefined]);
    expect(fetched).to.have.length(1);
    await clock.advance(300_000);
    text = POLICY;
    expect(await policies.of('example.com')).to.include({ mode: 'enforce' });
    text = 'no policy';
    expect(fetched).to.have.length(2);
  });
});

describe('fetching an MTA-STS policy', () => {
  const known = getCACertificates('default');
  let server: Server;
  let asked: IncomingMessage[];
  let answer: (response: ServerResponse) => void;

  beforeEach(async () => {
    asked = [];
    answer = (response) => response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end(POLICY);
    server = createServer({ cert: MX_CERT, key: MX_KEY }, (request, response) => {
      asked.push(request);
      answer(response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    setDefaultCACertificates([...known, MX_CERT]);
  });
  afterEach(async () => {
    setDefaultCACertificates(known);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const port = () => (server.address() as AddressInfo).port;
  const fetchPolicy = (
    domain: string,
    {
      zone = { [`mta-sts.${domain}`]: { A: ['127.0.0.1'] } } as ZoneRecords,
      allowPrivate = ['127.0.0.0/8'],
      clock = systemClock as typeof systemClock,
    } = {},
  ) =>
    createPolicyFetch(
      { allowed: allowedNetworks({ allowPrivate, loopbackOnly: false }), port: port() },
      { resolver: zoneResolver(zone), clock },
    )(domain);
  const refused = (fetching: Promise<string>): Promise<string> =>
    fetching.then(
      () => 'fetched',
      (error: unknown) => (error instanceof Error ? error.message : ''),
    );

  it('connects to the host of that name, at the checked address', async () => {
    expect(await fetchPolicy('example.com')).to.equal(POLICY);
    expect(asked.map(({ url, headers, method }) => [method, url, headers.host])).to.deep.equal([
      ['GET', '/.well-known/mta-sts.txt', `mta-sts.example.com:${port()}`],
    ]);
  });

  it('requires a valid certificate for that name', async () => {
    expect(await refused(fetchPolicy('other.example'))).to.match(/altnames|Hostname/);
    setDefaultCACertificates(known);
    expect(await refused(fetchPolicy('example.com'))).to.match(/self-signed/);
    expect(asked).to.have.length(0);
  });

  it('connects to no private address', async () => {
    expect(await refused(fetchPolicy('example.com', { allowPrivate: [] }))).to.equal(
      'mta-sts.example.com has forbidden addresses',
    );
    expect(
      await refused(fetchPolicy('example.com', { zone: { 'mta-sts.example.com': { A: ['127.0.0.1', '10.0.0.1'] } } })),
    ).to.equal('mta-sts.example.com has forbidden addresses');
    expect(await refused(fetchPolicy('example.com', { zone: {} }))).to.equal('mta-sts.example.com has no address');
    expect(asked).to.have.length(0);
  });

  it('accepts only a short text', async () => {
    const wrong: readonly [(response: ServerResponse) => void, string][] = [
      [
        (response) => response.writeHead(302, { location: `https://mta-sts.example.com:${port()}/` }).end(),
        'the policy host answered 302',
      ],
      [(response) => response.writeHead(404).end(), 'the policy host answered 404'],
      [
        (response) => response.writeHead(200, { 'content-type': 'text/html' }).end(POLICY),
        'the policy is not text/plain',
      ],
      [
        (response) => response.writeHead(200, { 'content-type': 'text/plain' }).end('x'.repeat(70_000)),
        'the policy is too long',
      ],
    ];
    for (const [how, reason] of wrong) {
      answer = how;
      expect(await refused(fetchPolicy('example.com'))).to.equal(reason);
    }
    expect(asked).to.have.length(4);
  });

  it('times out after ten seconds, however busy the server is', async () => {
    const clock = createTestClock();
    answer = (response) => {
      response.writeHead(200, { 'content-type': 'text/plain' }).write('version');
    };
    const fetching = refused(fetchPolicy('example.com', { clock }));
    await until('the question', () => asked.length === 1);
    await clock.advance(10_000);
    expect(await fetching).to.match(/abort/);
  });
});
