import { expect } from 'chai';
import type { Store } from '../../src/store/store.ts';
import {
  type Attempt,
  CANARY_ADDRESSES,
  type Canaries,
  OPEN_ADDRESS,
  startCanaries,
  watchConnections,
} from '../support/attacks/canaries.ts';
import { figures } from '../support/attacks/figures.ts';
import { CLASSES, forbiddenUrls, ODD_EXCHANGES, redirects, ZONE } from '../support/attacks/inward.ts';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { openTestStore } from '../support/store.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// Everything that the product connects to because somebody else said so, led inward in every way we know. What must not
// be reached is watched twice: by listeners, and by every connection that is begun at all.

const WAIT_MS = 60_000;
const isCanary = ({ address }: Attempt) => CANARY_ADDRESSES.some((canary) => canary === address);

describe('private destinations named by accounts and senders', () => {
  let canaries: Canaries;
  let zone: Zone;
  let postern: TestDaemon;
  let watch: ReturnType<typeof watchConnections>;
  const tried = { urls: 0, redirects: 0, mail: 0, policies: 0 };

  before(async () => {
    [canaries, zone] = [await startCanaries(), await startZone({ ...ZONE, ...ODD_EXCHANGES })];
    const dir = await tempDir();
    await seed(dir, [...forbiddenUrls(canaries.port), ...redirects(canaries.port)]);
    watch = watchConnections();
    postern = await open(dir, OPEN_ADDRESS);
  });
  after(async () => {
    watch.stop();
    await postern.stop();
    await Promise.all([zone.stop(), canaries.stop()]);
    figures(17, {
      'forms of URL': tried.urls,
      redirects: tried.redirects,
      'mail domains': tried.mail,
      policies: tried.policies,
      'connections to canaries': canaries.hits().length,
      'connections begun to forbidden addresses': begun().length,
    });
  });

  /** The daemon, where `allowed` is open and nothing else is. */
  const open = (dir: string, allowed: string): Promise<TestDaemon> =>
    startDaemon(
      {
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_DNS__TIMEOUT_MS: '2000',
        POSTERN_WEBHOOKS__ALLOW_PRIVATE: allowed,
        POSTERN_OUTBOUND__ALLOW_PRIVATE: allowed,
        POSTERN_WEBHOOKS__TIMEOUT_MS: '5000',
        POSTERN_OUTBOUND__MX_PORT: String(canaries.port),
        POSTERN_MAIL__MX_PORT: String(canaries.port),
      },
      { dir },
    );
  /** Connections that were begun to anything but the open address, those of the test itself apart. */
  const begun = () =>
    watch.attempts.filter(
      ({ address, port }) =>
        address !== OPEN_ADDRESS &&
        ![portOf(postern.base), postern.smtp.port, portOf(`dns://${zone.server}`)].includes(port),
    );
  const untouched = () => expect({ hits: canaries.hits(), begun: begun() }).to.deep.equal({ hits: [], begun: [] });

  it('are tried in at least 200 forms', () => {
    const urls = forbiddenUrls(canaries.port);
    expect(new Set(urls).size).to.equal(urls.length).and.to.be.at.least(200);
  });

  it('are rejected for webhooks and routes, directly or by a redirect', async () => {
    const urls = [...forbiddenUrls(canaries.port), ...redirects(canaries.port)];
    await each(urls, async (url) => {
      for (const [path, params] of [
        ['/webhooks/add', { url }],
        ['/inbound/add-route', { domain: 'in.test', pattern: 'other', url }],
        ['/webhooks/update', { id: HOOK, url }],
      ] as const) {
        const { status, body } = await postern.ask(path, params);
        expect({ status, name: body.name }, `${path} ${url}`).to.deep.equal({ status: 422, name: 'ValidationError' });
      }
    });
    tried.urls = forbiddenUrls(canaries.port).length;
    tried.redirects = redirects(canaries.port).length;
    untouched();
  });

  it('get no mail or batch posted, even if the stored route or webhook names them', async () => {
    const urls = [...forbiddenUrls(canaries.port), ...redirects(canaries.port)];
    const recipients = urls.map((_, n) => `f${n}@in.test`);
    expect(await sendMail(postern.smtp, { from: 'ada@example.org', to: recipients }, message('inward'))).to.match(
      /^250/,
    );
    await postern.api('/rejects/add', { email: 'someone@example.org' });
    const ended = () =>
      postern.log.lines.filter(
        ({ event }) => event === 'delivery.deferred' || event === 'delivery.failed' || event === 'delivery.delivered',
      );
    await until(
      'an attempt for every route and webhook',
      () => new Set(ended().map(({ fields }) => fields.delivery)).size >= 2 * urls.length,
      WAIT_MS,
    );
    expect(postern.log.of('delivery.delivered')).to.deep.equal([]);
    untouched();
  });

  it('get no outgoing mail by MX, address, odd exchange or MTA-STS policy', async () => {
    const kinds = ['mx', 'direct', 'policy'].flatMap((kind) =>
      Object.keys(CLASSES).map((name) => `someone@${name}.${kind}.test`),
    );
    const to = [...kinds, ...Object.keys(ODD_EXCHANGES).map((domain) => `someone@${domain}`)];
    const before = postern.log.lines.length;
    await postern.api('/messages/send', {
      message: { from_email: 'ann@sender.test', subject: 'inward', text: 'x', to: to.map((email) => ({ email })) },
    });
    for (const name of Object.keys(CLASSES))
      await postern.api('/senders/verify-domain', { domain: `${name}.mx.test`, mailbox: 'postmaster' });
    const ended = () =>
      new Set(
        postern.log.lines
          .slice(before)
          .filter(({ event }) => event === 'delivery.failed' || event === 'delivery.deferred')
          .map(({ fields }) => fields.delivery),
      );
    await until('an end for every recipient', () => ended().size >= to.length, WAIT_MS);
    tried.mail = to.length;
    tried.policies = Object.keys(CLASSES).length;
    expect(
      zone.questions.filter(({ name }) => name.startsWith('_mta-sts.')).length,
      'policies were asked for',
    ).to.be.at.least(tried.policies);
    untouched();
  });

  it('get no mail by an address literal in place of a domain', async () => {
    const to = [
      'a@[127.0.0.1]',
      'a@[IPv6:::1]',
      'a@127.0.0.1',
      'a@2130706433',
      'a@localhost',
      'a@0x7f.1',
      'a@[::1]',
      `a@[127.0.0.1]:${canaries.port}`,
    ].map((email) => ({ email }));
    const answers = await postern.api('/messages/send', { message: { from_email: 'ann@sender.test', text: 'x', to } });
    const taken = answers
      .filter(({ status }: { status: string }) => status !== 'invalid')
      .map(({ email }: { email: string }) => email);
    const ended = () =>
      postern.log.lines.filter(
        ({ event, fields }) =>
          /^delivery\.(?:failed|deferred)$/.test(event) &&
          /^(?:127\.0\.0\.1|2130706433|localhost|0x7f\.1)$/.test(String(fields.host)),
      ).length;
    await until('what became of those that were taken', () => ended() >= taken.length, WAIT_MS);
    untouched();
  });

  it('are reached where the operator allows them (control)', async () => {
    const seen = { open: canaries.opened.length, hits: canaries.hits().length };
    // The redirects were looked at, and the one open address was connected to.
    expect(seen.open).to.be.above(0);
    const from = watch.attempts.length;
    const dir = await tempDir();
    const inside = forbiddenUrls(canaries.port).filter(isOnLoopback);
    await seed(dir, inside);
    const opened = await open(dir, '127.0.0.0/8,::1');
    for (const url of inside) await opened.ask('/webhooks/add', { url });
    const added = canaries.hits().length - seen.hits;
    await sendMail(
      opened.smtp,
      { from: 'ada@example.org', to: inside.map((_, n) => `f${n}@in.test`) },
      message('inward'),
    );
    await until('a delivery', () => opened.log.of('delivery.delivered').length >= inside.length / 2, WAIT_MS);
    const posted = canaries.hits().length - seen.hits - added;
    await opened.api('/messages/send', {
      message: {
        from_email: 'ann@sender.test',
        text: 'x',
        to: [{ email: 'a@loopback.policy.test' }, { email: 'a@v6-loopback.mx.test' }],
      },
    });
    await until(
      'the policy host and the MX',
      () =>
        watch.attempts.slice(from).some(({ address, port }) => address === '127.0.0.1' && port === 443) &&
        watch.attempts.slice(from).some(({ address, port }) => address === '::1' && port === canaries.port),
      WAIT_MS,
    );
    await opened.stop();
    const begunHere = watch.attempts.splice(from).filter(isCanary).length;
    figures(17, {
      'control: forms on loopback': inside.length,
      'hits by webhookexists': added,
      'hits by deliveries': posted,
      'connections begun': begunHere,
    });
    expect(added).to.be.at.least(inside.length / 2);
    expect(posted).to.be.at.least(inside.length / 2);
    canaries.forget(); // those were wanted
  });
});

const HOOK = 900_000;

function portOf(url: string): number {
  return Number(new URL(url).port);
}

/** Whether a canary sits at the address in a URL, once it is parsed. */
function isOnLoopback(url: string): boolean {
  const { hostname = '', protocol = '' } = URL.parse(url) ?? {};
  return (
    protocol === 'http:' && CANARY_ADDRESSES.some((address) => hostname === address || hostname === `[${address}]`)
  );
}

/** A store with a route and a webhook for each of these URLs, as an older version or another hand may have left it. */
async function seed(dir: string, urls: readonly string[]): Promise<void> {
  const first = await startDaemon({ POSTERN_WEBHOOKS__ALLOW_PRIVATE: '' }, { dir });
  await first.api('/inbound/add-domain', { domain: 'in.test' });
  await first.stop();
  const store = await openTestStore(undefined, dir);
  const account = await accountOf(store);
  const createdAt = new Date('2026-01-05T11:00:00Z');
  await Promise.all(
    urls.map(async (url, n) => {
      await store.inboundRoutes.insert({
        id: `1.${HOOK + n}`,
        account,
        domain: 'in.test',
        pattern: `f${n}`,
        url,
        createdAt,
      });
      await store.webhooks.insert({
        id: String(HOOK + n),
        number: HOOK + n,
        account,
        url,
        description: null,
        events: ['blacklist'],
        createdAt,
      });
    }),
  );
  await store.close();
}

async function accountOf(store: Store): Promise<string> {
  const [account] = await store.accounts.many({});
  if (!account) throw new Error(`no account of ${KEY}`);
  return account.id;
}

/** Some at a time. */
async function each<T>(items: readonly T[], run: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let item = left.pop(); item !== undefined; item = left.pop()) await run(item);
    }),
  );
}
