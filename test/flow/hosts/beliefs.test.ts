import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { createCaller, KEY } from '../../support/daemon.ts';
import { mongoDriver } from '../../support/database.ts';
import { eventsOf, postsOf } from '../../support/events.ts';
import { type Hosts, type More, RECORDS, send, startHosts, submit } from '../../support/hosts.ts';
import { message, openSession, sendMail } from '../../support/mail.ts';
import { returnOf } from '../../support/sent-mail.ts';
import { verifySender } from '../../support/signing.ts';
import { plain } from '../../support/submission.ts';
import { PATIENCE, until } from '../../support/until.ts';
import type { ZoneRecords } from '../../support/zone.ts';

// What docs/operations.md says that one host may believe of what another was told, and for how long: a case for each
// line. That something does not happen is only said once something else has shown that the other host has looked.

/** An address that this machine has without any setup. */
const DEDICATED = '127.0.0.21';
/** What a server that is greeted from there knows the client by. */
const DEDICATED_NAME = 'out21.postern.test';

if (mongoDriver)
  describe('a change on one of two hosts takes effect on the other', function () {
    this.timeout(120_000 * PATIENCE);
    let hosts: Hosts;
    before(async () => {
      hosts = await startHosts({
        POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
        POSTERN_SUBMISSION__REQUIRE_TLS: 'false',
        POSTERN_OUTBOUND__RETURN_DOMAIN: 'bounces.postern.test',
      });
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
      // Requests for an address are served once a minute, so this one is made before all cases.
      await leave('before the address');
      await hosts.cli('ip', 'add', DEDICATED);
      await hosts.a.api('/ips/create-pool', { pool: 'own' });
      await until(
        'the message to be counted',
        async () => (await hosts.a.ask('/ips/provision', { pool: 'own' })).status === 200,
      );
    });
    after(() => hosts?.stop());

    /** Seconds of the documented bound, with the time that a busy machine takes. */
    const within = <T>(seconds: number, what: string, probe: () => T | Promise<T>) =>
      until(what, probe, (seconds * 1000 + 2000) * PATIENCE);
    const url = (path: string) => hosts.hook.url.replace(/\/hook$/, path);
    const posts = (path: string) => postsOf(hosts.hook.requests).filter((request) => request.url === path);
    const subjects = (path: string): string[] =>
      posts(path)
        .flatMap(eventsOf)
        .map(({ msg }) => msg.subject);
    /** B sends it, and it has left. */
    const leave = async (subject: string, more?: More) => {
      await send(hosts.b, subject, more);
      await until(`${subject} to leave`, () => hosts.arrived().includes(subject));
    };
    let rounds = 0;
    /** Has B send messages, each once the one before has left, until `probe` is content; answers the last subject. */
    const leaveUntil = (seconds: number, what: string, more: More, probe: (subject: string) => boolean) =>
      within(seconds, what, async () => {
        const subject = `until ${what}, ${++rounds}`;
        await leave(subject, more);
        return probe(subject) && subject;
      });
    const sunk = (subject: string) => hosts.server.mails.find(({ raw }) => raw.includes(`\r\nSubject: ${subject}\r\n`));
    const comeIn = (subject: string, to: string) =>
      sendMail(hosts.b.smtp, { from: 'ada@example.org', to }, message(subject));
    /** The paths named so answer 500 to what is posted, until the next call. */
    const refuse = (...paths: string[]) =>
      hosts.hook.answer(({ url: path }) => ({ status: paths.includes(path) ? 500 : 200 }));
    afterEach(() => refuse());

    it('an inbound domain and a route: at once; their deletion: inbound.refresh_ms', async () => {
      await hosts.a.api('/inbound/add-domain', { domain: 'other.test' });
      await hosts.a.api('/inbound/add-route', { domain: 'other.test', pattern: 'x', url: url('/other') });
      expect(await comeIn('taken', 'x@other.test')).to.match(/^250/);
      await hosts.a.api('/inbound/add-route', { domain: 'other.test', pattern: 'y', url: url('/other') });
      expect(await comeIn('taken', 'y@other.test')).to.match(/^250/);
      await hosts.a.api('/inbound/delete-domain', { domain: 'other.test' });
      await within(5, 'B to refuse it', async () => (await comeIn('not taken', 'x@other.test')).startsWith('550'));
    });

    it('the URL of a route, for mail that waited for the old one too: inbound.refresh_ms', async () => {
      refuse('/old');
      const { id } = await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: 'moves', url: url('/old') });
      await within(5, 'B to take it', async () => (await comeIn('moves', 'moves@in.test')).startsWith('250'));
      await until('the first attempt', () => posts('/old').length > 0);
      await hosts.a.api('/inbound/update-route', { id, url: url('/new') });
      // Every attempt asks; the next one is made when the breaker and the backoff let it.
      await until('it to arrive at the new one', () => subjects('/new').includes('moves'), 40_000 * PATIENCE);
    });

    it('the URL of a route, for a host that was down when it was changed', async () => {
      refuse('/before');
      const { id } = await hosts.a.api('/inbound/add-route', {
        domain: 'in.test',
        pattern: 'down',
        url: url('/before'),
      });
      await within(5, 'B to take it', async () => (await comeIn('down', 'down@in.test')).startsWith('250'));
      await until('the first attempt', () => posts('/before').length > 0);
      await hosts.b.down();
      const seen = posts('/before').length;
      await hosts.a.api('/inbound/update-route', { id, url: url('/after') });
      await hosts.b.up();
      await until('it to arrive at the new one', () => subjects('/after').includes('down'), 40_000 * PATIENCE);
      expect(posts('/before'), 'not one post more').to.have.length(seen);
    });

    it('the signing key of posts: 10 seconds, and the old one is valid for a day', async () => {
      const { id } = await hosts.a.api('/inbound/add-route', {
        domain: 'in.test',
        pattern: 'signed',
        url: url('/signed'),
      });
      await within(5, 'B to take it', async () => (await comeIn('first', 'signed@in.test')).startsWith('250'));
      await until('the first post', () => posts('/signed').length > 0);
      const { auth_key: key } = await hosts.a.api('/inbound/route-key', { id, rotate: true });
      const isSigned = ({ headers, body }: (typeof hosts.hook.requests)[number]) =>
        headers['x-mandrill-signature'] ===
        createHmac('sha1', key)
          .update(`${url('/signed')}mandrill_events${new URLSearchParams(body.toString()).get('mandrill_events')}`)
          .digest('base64');
      await within(10, 'a post with the new key', async () => {
        const seen = posts('/signed').length;
        await comeIn('again', 'signed@in.test');
        await until('its post', () => posts('/signed').length > seen);
        return posts('/signed').some(isSigned);
      });
    });

    it('a new webhook: a second', async () => {
      await leave('before the webhook');
      const { id } = await hosts.a.api('/webhooks/add', { url: url('/added'), events: ['send'] });
      await leaveUntil(1, 'an event of B', {}, () => subjects('/added').length > 0);
      await hosts.a.api('/webhooks/delete', { id });
    });

    it('the events of a webhook: a second', async () => {
      const { id } = await hosts.a.api('/webhooks/add', { url: url('/changed'), events: ['open'] });
      const other = await hosts.a.api('/webhooks/add', { url: url('/unchanged'), events: ['send'] });
      const last = await leaveUntil(1, 'an event for the one beside it', {}, () => subjects('/unchanged').length > 0);
      await until('the last event', () => subjects('/unchanged').includes(last));
      await hosts.a.api('/webhooks/update', { id, url: url('/changed'), events: ['send'] });
      await leaveUntil(1, 'an event for the one that was changed', {}, () => subjects('/changed').length > 0);
      expect(subjects('/changed')[0]).to.match(/^until an event for the one that was changed/);
      for (const hook of [id, other.id]) await hosts.a.api('/webhooks/delete', { id: hook });
    });

    /** Has A add a webhook that refuses its posts, and B make an attempt; answers its id. */
    const waitFor = async (path: string): Promise<number> => {
      refuse(path);
      const { id } = await hosts.a.api('/webhooks/add', { url: url(path), events: ['send'] });
      await leaveUntil(1, `an attempt at ${path}`, {}, () => posts(path).length > 0);
      return id;
    };
    /** B has nothing more to post for it. */
    const forgets = (id: number) =>
      until(
        'B to have no batch of it',
        async () => (await hosts.b.queue('--webhook', String(id))).length === 0,
        15_000 * PATIENCE,
      );

    it('a deleted webhook: 5 seconds, for batches that waited too', async () => {
      const id = await waitFor('/deleted');
      await hosts.a.api('/webhooks/delete', { id });
      const beside = await hosts.a.api('/webhooks/add', { url: url('/beside'), events: ['send'] });
      await forgets(id);
      const seen = posts('/deleted').length;
      await leaveUntil(1, 'an event for the one beside it', {}, () => subjects('/beside').length > 0);
      expect(await hosts.b.queue('--webhook', String(id))).to.deep.equal([]);
      expect(posts('/deleted'), 'not one post more').to.have.length(seen);
      await hosts.a.api('/webhooks/delete', { id: beside.id });
    });

    it('a deleted webhook, for a host that was down meanwhile: at its start', async () => {
      const first = await waitFor('/gone');
      await hosts.b.down();
      const seen = posts('/gone').length;
      await hosts.a.api('/webhooks/delete', { id: first });
      const second = await hosts.a.api('/webhooks/add', { url: url('/second'), events: ['send'] });
      refuse();
      await hosts.b.up();
      await send(hosts.b, 'for the second');
      await until('the second to have its event', () => subjects('/second').includes('for the second'));
      await forgets(first);
      expect(posts('/gone'), 'not one post more').to.have.length(seen);
      await hosts.a.api('/webhooks/delete', { id: second.id });
    });

    it('the URL of a webhook, for batches that waited for the old one too: 5 seconds', async () => {
      const id = await waitFor('/hook-old');
      const [waits] = subjects('/hook-old');
      await hosts.a.api('/webhooks/update', { id, url: url('/hook-new') });
      await until('it to arrive at the new one', () => subjects('/hook-new').includes(waits ?? ''), 40_000 * PATIENCE);
      await hosts.a.api('/webhooks/delete', { id });
    });

    /** Has B send mail of a subaccount until it answers that it holds one back for that reason; answers its subject. */
    const heldOf = (subaccount: string, reason: string) =>
      within(5, `B to hold mail of ${subaccount} back`, async () => {
        const subject = `${subaccount}, ${++rounds}`;
        const { queued_reason: why } = await submit(hosts.b, subject, { message: { subaccount } });
        return why === reason && subject;
      });

    it('a subaccount that is paused, resumed or deleted: 5 seconds; waiting mail checks once a minute', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'cust' });
      const more = { message: { subaccount: 'cust' } };
      await leave('before the pause', more);
      await hosts.a.api('/subaccounts/pause', { id: 'cust' });
      const held = await heldOf('cust', 'sending-paused');
      await leave('not paused');
      await hosts.b.down();
      await hosts.b.up();
      await leave('not paused, after a start');
      expect(hosts.arrived()).to.not.include(held);
      await hosts.a.api('/subaccounts/resume', { id: 'cust' });
      await within(65, 'it to leave', () => hosts.arrived().includes(held));
      await hosts.a.api('/subaccounts/delete', { id: 'cust' });
      const { body } = await hosts.b.ask('/messages/send', {
        message: { from_email: 'news@sender.test', text: 'x', to: [{ email: 'jo@to.test' }], subaccount: 'cust' },
      });
      expect(body.name, 'at once').to.equal('Unknown_Subaccount');
    });

    it('a deleted subaccount, for mail that waited in it: rejected at the next check, once a minute', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'gone' });
      await hosts.a.api('/subaccounts/pause', { id: 'gone' });
      const id = await send(hosts.b, 'of a subaccount that goes', { message: { subaccount: 'gone' } });
      await leave('of none');
      await hosts.a.api('/subaccounts/delete', { id: 'gone' });
      await within(
        65,
        'it to be rejected',
        async () => (await hosts.a.api('/messages/info', { id })).state === 'rejected',
      );
      expect(hosts.arrived()).to.not.include('of a subaccount that goes');
    });

    it('mail sent by other hosts within an hourly quota: 5 seconds', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'few', custom_quota: 2 });
      await hosts.a.api('/subaccounts/add', { id: 'beside' });
      await leave('first of the hour', { message: { subaccount: 'few' } });
      await leave('beside it', { message: { subaccount: 'beside' } });
      await send(hosts.a, 'second of the hour', { message: { subaccount: 'few' } });
      await until(
        'both to be counted',
        async () => (await hosts.a.api('/subaccounts/info', { id: 'few' })).sent_hourly === 2,
      );
      // B has read this one after the other, and believes both for 5 seconds: once it knows better of this one, what it
      // had read of the other is over too.
      await hosts.a.api('/subaccounts/pause', { id: 'beside' });
      await heldOf('beside', 'sending-paused');
      const { queued_reason: reason } = await submit(hosts.b, 'third of the hour', { message: { subaccount: 'few' } });
      await leave('without a quota');
      expect(reason).to.equal('hourly-quota');
      expect(hosts.arrived()).to.include('second of the hour').and.to.not.include('third of the hour');
    });

    it('a revoked API key: a second for calls, 2 for submitted mail', async () => {
      const key = (await hosts.cli('key', 'create', 'other')).out.trim();
      const { ask } = createCaller(hosts.b.base, key);
      expect((await ask('/users/ping')).status).to.equal(200);
      const [listener] = hosts.b.submission;
      if (!listener) throw new Error('B takes no submission');
      const session = await openSession(listener);
      await session.say('EHLO client.test');
      expect(await session.say(`AUTH PLAIN ${plain(key)}`)).to.match(/^235 /);
      expect(await session.say('MAIL FROM:<news@sender.test>')).to.match(/^250 /);
      await hosts.cli('key', 'revoke', key);
      await within(1, 'calls to be refused', async () => (await ask('/users/ping')).body.name === 'Invalid_Key');
      await within(2, 'the session to be refused', async () => {
        await session.say('RSET');
        return !(await session.say('MAIL FROM:<news@sender.test>')).startsWith('250');
      });
      session.close();
      expect((await createCaller(hosts.b.base, KEY).ask('/users/ping')).status).to.equal(200);
    });

    it('rejects, the whitelist and templates: at once', async () => {
      await hosts.a.api('/rejects/add', { email: 'no@to.test' });
      const refused = await hosts.b.api('/messages/send', {
        message: { from_email: 'news@sender.test', text: 'x', to: [{ email: 'no@to.test' }] },
      });
      expect(refused[0]).to.include({ status: 'rejected', reject_reason: 'custom' });
      await hosts.a.api('/whitelists/add', { email: 'no@to.test' });
      const sent = await hosts.b.api('/messages/send', {
        message: { from_email: 'news@sender.test', text: 'x', to: [{ email: 'no@to.test' }] },
      });
      expect(sent[0]).to.include({ status: 'queued' });
      await hosts.a.api('/templates/add', { name: 'news', code: '<p>one</p>' });
      expect((await hosts.b.api('/templates/render', { template_name: 'news', template_content: [] })).html).to.equal(
        '<p>one</p>',
      );
      await hosts.a.api('/templates/update', { name: 'news', code: '<p>two</p>' });
      expect((await hosts.b.api('/templates/render', { template_name: 'news', template_content: [] })).html).to.equal(
        '<p>two</p>',
      );
    });

    it('a sender domain that became valid for signing: 10 seconds', async () => {
      const more = { message: { from_email: 'news@signed.test' } };
      const isSigned = (subject: string) => /^DKIM-Signature:[^]*?d=signed\.test/m.test(sunk(subject)?.raw ?? '');
      await leave('unsigned', more);
      expect(isSigned('unsigned')).to.equal(false);
      const records = await verifySender('signed.test', { postern: hosts.a, zone: hosts.zone, sink: hosts.server });
      hosts.zone.set({ ...RECORDS, ...records });
      await leaveUntil(10, 'a signed message', more, isSigned);
    });

    it('tracking and return path domains of a verified domain: 10 seconds', async () => {
      const message = {
        from_email: 'news@own.test',
        html: '<a href="https://shop.test/">shop</a>',
        track_clicks: true,
        tracking_domain: 'track.own.test',
        return_path_domain: 'back.own.test',
      };
      const own: ZoneRecords = {
        'track.own.test': { CNAME: 'postern.test' },
        'back.own.test': { MX: [{ exchange: 'b.postern.test', priority: 10 }] },
      };
      hosts.zone.set({ ...RECORDS, ...own });
      const isOwn = (subject: string) => {
        const { raw = '', from = '' } = sunk(subject) ?? {};
        return [raw.replaceAll('=\r\n', '').includes('//track.own.test/track/click/'), from.endsWith('@back.own.test')];
      };
      await leave('before the proof', { message });
      expect(isOwn('before the proof')).to.deep.equal([false, false]);
      const records = await verifySender('own.test', { postern: hosts.a, zone: hosts.zone, sink: hosts.server });
      hosts.zone.set({ ...RECORDS, ...records, ...own });
      await leaveUntil(10, 'both to be used', { message }, (subject) => isOwn(subject).every(Boolean));
    });

    it('a dedicated address, its pool, and its release: 5 seconds', async () => {
      hosts.zone.set({
        ...RECORDS,
        '21.0.0.127.in-addr.arpa': { PTR: [DEDICATED_NAME] },
        [DEDICATED_NAME]: { A: [DEDICATED] },
      });
      const own = { ip_pool: 'own' };
      const isOver = (subject: string, name: string) => sunk(subject)?.helo === name;
      expect(isOver('before the address', 'b.postern.test')).to.equal(true);
      await until('it to be given', async () => (await hosts.a.api('/ips/list')).length === 1, 65_000 * PATIENCE);
      await leaveUntil(5, 'the address to be used', own, (subject) => isOver(subject, DEDICATED_NAME));
      await leave('of the default pool');
      expect(isOver('of the default pool', 'b.postern.test'), 'which has no address').to.equal(true);
      await hosts.a.api('/ips/set-pool', { ip: DEDICATED, pool: 'Main Pool' });
      await leaveUntil(5, 'the pool to have it', {}, (subject) => isOver(subject, DEDICATED_NAME));
      await hosts.a.api('/ips/delete', { ip: DEDICATED });
      await leaveUntil(5, 'it to be used no more', {}, (subject) => isOver(subject, 'b.postern.test'));
    });

    // The last one: with a second account domains have to be proven.
    it('a new account: at once for calls, inbound.refresh_ms for returned mail', async () => {
      const key = (await hosts.cli('account', 'create', 'second')).out.trim();
      expect((await createCaller(hosts.b.base, key).ask('/users/info')).body).to.include({ username: 'second' });
      const second = createCaller(hosts.a.base, key);
      const id = await send(second, 'of the second');
      const mail = await until('it to leave A', () => sunk('of the second'));
      // Until then it gets a temporary error (451).
      await within(2, 'B to take the bounce', async () =>
        (await sendMail(hosts.b.smtp, { from: '', to: mail.from }, returnOf('postfix-unknown-user', mail))).startsWith(
          '250 ',
        ),
      );
      await until(
        'the bounce to be told',
        async () => (await second.api('/messages/info', { id })).state === 'bounced',
      );
    });
  });
