import { expect } from 'chai';
import { type Acme, createAcme } from '../../../src/certificates/acme.ts';
import { type AcmeAnswer, AcmeFault, type AcmeHttp } from '../../../src/certificates/acme-http.ts';
import { newAccountKey } from '../../../src/certificates/certificates.ts';

// Answers that Pebble cannot be made to give; what works is in test/interop/acme.test.ts.

const NOW = Date.UTC(2026, 0, 5);
const CA = 'https://ca.test';
const TOKEN = 'a-token-of-at-least-16';

type Given = { status?: number; headers?: Readonly<Record<string, string>>; body?: unknown };

/** A client of an authority with these answers, by the end of the URL; the last one of a list is repeated. */
function clientOf(answers: Readonly<Record<string, Given | readonly Given[]>>) {
  const asked: string[] = [];
  const waits: number[] = [];
  const counts = new Map<string, number>();
  const all: Readonly<Record<string, Given | readonly Given[]>> = {
    '/dir': {
      body: {
        newNonce: `${CA}/nonce`,
        newAccount: `${CA}/account`,
        newOrder: `${CA}/order`,
        renewalInfo: `${CA}/renewal`,
      },
    },
    '/nonce': {},
    '/account': { status: 201, headers: { location: `${CA}/account/1` } },
    '/order': {
      status: 201,
      headers: { location: `${CA}/order/1` },
      body: { status: 'pending', authorizations: [`${CA}/authz/1`], finalize: `${CA}/finalize` },
    },
    '/authz/1': {
      body: { status: 'pending', challenges: [{ type: 'http-01', url: `${CA}/challenge`, token: TOKEN }] },
    },
    '/challenge': {},
    ...answers,
  };
  const wire: AcmeHttp = {
    async send(method, url): Promise<AcmeAnswer> {
      const path = url.slice(CA.length);
      asked.push(`${method} ${path}`);
      const given = all[path] ?? { status: 404 };
      const at = counts.get(path) ?? 0;
      counts.set(path, at + 1);
      const {
        status = 200,
        headers = {},
        body = {},
      } = Array.isArray(given) ? given[Math.min(at, given.length - 1)] : (given as Given);
      const fields: Readonly<Record<string, string>> = { 'replay-nonce': `nonce-${asked.length}`, ...headers };
      return { status, header: (name) => fields[name], text: typeof body === 'string' ? body : JSON.stringify(body) };
    },
    stop: async () => {},
  };
  const key = newAccountKey();
  const acme = createAcme(
    { directory: `${CA}/dir`, email: '', eab: { keyId: '', hmacKey: '' } },
    {
      wire,
      accountKey: async () => key,
      clock: { now: () => NOW },
      wait: async (ms) => {
        waits.push(ms);
      },
    },
  );
  const shown: string[] = [];
  const show = async (token: string) => {
    shown.push(token);
    return async () => {
      shown.push(`hide ${token}`);
    };
  };
  return { acme, asked, waits, shown, show };
}

async function faultOf(work: Promise<unknown>): Promise<AcmeFault> {
  const fault = await work.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(fault instanceof AcmeFault)) throw new Error(`no fault of the authority: ${fault}`);
  return fault;
}

const problem = (type: string, detail: string) => ({ type: `urn:ietf:params:acme:error:${type}`, detail });
const limited = (retryAfter: string): Given => ({
  status: 429,
  headers: { 'retry-after': retryAfter },
  body: problem('rateLimited', 'too many certificates already issued'),
});

describe('the ACME client', () => {
  const order = ({ acme, show }: { acme: Acme; show: (token: string) => Promise<() => Promise<void>> }) =>
    acme.order('mx.test', show);

  it('reports how long a limit of the authority lasts, in seconds or as a date', async () => {
    for (const [text, ms] of [
      ['3600', 3_600_000],
      [new Date(NOW + 90_000).toUTCString(), 90_000],
      ['-5', undefined],
      ['soon', undefined],
    ] as const) {
      const fault = await faultOf(order(clientOf({ '/order': limited(text) })));
      expect(fault.type).to.equal('rateLimited');
      expect(fault.retryAfterMs, text).to.equal(ms);
    }
  });

  it('reports an HTML answer of a gateway, an invalid directory, and answers without required fields', async () => {
    const html = { status: 503, headers: { 'retry-after': '120' }, body: '<html>unavailable</html>' };
    for (const [answers, text] of [
      [{ '/dir': html }, 'answered 503'],
      [{ '/dir': { body: '<html>' } }, 'is not an ACME directory'],
      [{ '/nonce': { headers: { 'replay-nonce': undefined } } }, 'gave no nonce'],
      [{ '/account': { status: 201, body: {} } }, 'named no account'],
      [{ '/order': { status: 201, headers: { location: `${CA}/order/1` }, body: '[]' } }, 'something unknown'],
    ] as const) {
      const client = clientOf(answers as unknown as Readonly<Record<string, Given>>);
      expect((await faultOf(order(client))).message).to.contain(text);
    }
    expect((await faultOf(order(clientOf({ '/dir': html })))).retryAfterMs).to.equal(120_000);
  });

  it('reads the directory again after a failure', async () => {
    const client = clientOf({ '/order': limited('60') });
    const broken = clientOf({ '/dir': [{ status: 500 }, { body: { newNonce: '', newAccount: '', newOrder: '' } }] });
    await faultOf(order(client));
    await faultOf(order(client));
    expect(client.asked.filter((one) => one === 'GET /dir')).to.have.length(1);
    await faultOf(order(broken));
    await faultOf(order(broken));
    expect(broken.asked.filter((one) => one === 'GET /dir').length).to.be.at.least(2);
  });

  it('gives up when the authority refuses every nonce', async () => {
    const client = clientOf({ '/order': { status: 400, body: problem('badNonce', 'no') } });
    expect((await faultOf(order(client))).type).to.equal('badNonce');
    expect(client.asked.filter((one) => one === 'POST /order')).to.have.length(12);
  });

  it('says why a challenge failed, and hides its answer then', async () => {
    const pending = { status: 'pending', challenges: [{ type: 'http-01', url: `${CA}/challenge`, token: TOKEN }] };
    const failed = {
      status: 'invalid',
      challenges: [{ ...pending.challenges[0], error: problem('caa', 'forbids it') }],
    };
    const client = clientOf({ '/authz/1': [{ body: pending }, { body: pending }, { body: failed }] });
    const fault = await faultOf(order(client));
    expect([fault.type, fault.message]).to.deep.equal(['caa', 'forbids it']);
    expect(client.shown).to.deep.equal([TOKEN, `hide ${TOKEN}`]);
  });

  it('shows no invalid token, and needs a challenge by HTTP', async () => {
    for (const challenge of [
      { type: 'http-01', url: `${CA}/challenge`, token: '../../secret/of/the/host' },
      { type: 'http-01', url: `${CA}/challenge`, token: 'short' },
      { type: 'dns-01', url: `${CA}/challenge`, token: TOKEN },
    ]) {
      const client = clientOf({ '/authz/1': { body: { status: 'pending', challenges: [challenge] } } });
      expect((await faultOf(order(client))).message).to.contain('no http-01 challenge');
      expect(client.shown).to.deep.equal([]);
    }
  });

  it('waits as long as the authority asks, within limits, and gives up on an order that never finishes', async () => {
    const slow = { status: 'processing', authorizations: [], finalize: `${CA}/finalize` };
    const client = clientOf({
      '/order': { status: 201, headers: { location: `${CA}/order/1` }, body: slow },
      '/order/1': [
        { body: slow },
        { body: slow, headers: { 'retry-after': '3' } },
        { body: slow, headers: { 'retry-after': '86400' } },
      ],
    });
    expect((await faultOf(order(client))).type).to.equal('slow');
    expect(client.waits[0]).to.equal(3000);
    expect(Math.max(...client.waits)).to.be.at.most(15_000);
  });

  it('orders again if the authority does not accept that the order replaces a certificate', async () => {
    const placed = { status: 201, headers: { location: `${CA}/order/1` }, body: { status: 'ready' } };
    for (const type of ['alreadyReplaced', 'malformed', 'unauthorized']) {
      const refused = { status: 409, body: { type: `urn:ietf:params:acme:error:${type}`, detail: 'no' } };
      const { acme, asked, show } = clientOf({ '/order': [refused, placed] });
      await faultOf(acme.order('a.test', show, 'an-id'));
      expect(asked.filter((one) => one === 'POST /order')).to.have.length(2);
    }
    const { acme, asked, show } = clientOf({
      '/order': { status: 429, body: { type: 'urn:ietf:params:acme:error:rateLimited', detail: 'later' } },
    });
    expect((await faultOf(acme.order('a.test', show, 'an-id'))).type).to.equal('rateLimited');
    expect(asked.filter((one) => one === 'POST /order')).to.have.length(1);
  });

  it('reads the renewal time that the authority suggests, and ignores invalid answers', async () => {
    const suggestedWindow = { start: '2026-02-01T00:00:00Z', end: '2026-02-03T00:00:00+02:00' };
    const { acme } = clientOf({ '/renewal/a.b': { body: { suggestedWindow }, headers: { 'retry-after': '21600' } } });
    expect(await acme.renewal('a.b')).to.deep.equal({
      start: Date.UTC(2026, 1, 1),
      end: Date.UTC(2026, 1, 2, 22),
      askAfterMs: 21_600_000,
    });
    for (const body of ['<html>', { suggestedWindow: { start: 'x', end: 'y' } }])
      expect(await clientOf({ '/renewal/a.b': { body } }).acme.renewal('a.b')).to.equal(undefined);
    expect(await clientOf({}).acme.renewal('a.b')).to.equal(undefined);
  });
});
