import { createHmac } from 'node:crypto';
import { expect } from 'chai';
import { createCaller, KEY } from '../../support/daemon.ts';
import { mongoDriver } from '../../support/database.ts';
import { eventsOf, postsOf } from '../../support/events.ts';
import { type Hosts, RECORDS, send, startHosts } from '../../support/hosts.ts';
import { message, openSession, sendMail } from '../../support/mail.ts';
import { verifySender } from '../../support/signing.ts';
import { plain } from '../../support/submission.ts';
import { PATIENCE, until } from '../../support/until.ts';
import type { ZoneRecords } from '../../support/zone.ts';

// What docs/operations.md says that one host may believe of what another was told, and for how long: a case for each line.

if (mongoDriver)
  describe('what was changed on one of two hosts holds on the other', function () {
    this.timeout(120_000 * PATIENCE);
    let hosts: Hosts;
    before(async () => {
      hosts = await startHosts({ POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0', POSTERN_SUBMISSION__REQUIRE_TLS: 'false' });
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
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
    const comeIn = (subject: string, to: string) =>
      sendMail(hosts.b.smtp, { from: 'ada@example.org', to }, message(subject));
    /** The paths named so answer 500 to what is posted, until the next call. */
    const refuse = (...paths: string[]) =>
      hosts.hook.answer(({ url: path }) => ({ status: paths.includes(path) ? 500 : 200 }));
    afterEach(() => refuse());

    it('an inbound domain, a route, and that there is none any more: inbound.refresh_ms', async () => {
      await hosts.a.api('/inbound/add-domain', { domain: 'other.test' });
      await hosts.a.api('/inbound/add-route', { domain: 'other.test', pattern: '*', url: url('/other') });
      await within(5, 'B to take it', async () => (await comeIn('taken', 'x@other.test')).startsWith('250'));
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

    it('the key that signs posts: 10 seconds, and the old one is good for a day', async () => {
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
        await comeIn('again', 'signed@in.test');
        await new Promise((resolve) => setTimeout(resolve, 500));
        return posts('/signed').some(isSigned);
      });
    });

    it('a webhook that was added: a second', async () => {
      await send(hosts.b, 'before the webhook');
      await until('it to leave', () => hosts.arrived().includes('before the webhook'));
      const { id } = await hosts.a.api('/webhooks/add', { url: url('/added'), events: ['send'] });
      await within(1, 'an event of B', async () => {
        await send(hosts.b, 'with a webhook');
        await new Promise((resolve) => setTimeout(resolve, 300));
        return subjects('/added').includes('with a webhook');
      });
      await hosts.a.api('/webhooks/delete', { id });
    });

    it('a webhook that wants other events: a second', async () => {
      const { id } = await hosts.a.api('/webhooks/add', { url: url('/changed'), events: ['open'] });
      const other = await hosts.a.api('/webhooks/add', { url: url('/unchanged'), events: ['send'] });
      await within(1, 'an event of B for the one beside it', async () => {
        await send(hosts.b, 'an event it does not want');
        await new Promise((resolve) => setTimeout(resolve, 300));
        return subjects('/unchanged').includes('an event it does not want');
      });
      await hosts.a.api('/webhooks/update', { id, url: url('/changed'), events: ['send'] });
      await within(1, 'an event of B', async () => {
        await send(hosts.b, 'an event it wants');
        await new Promise((resolve) => setTimeout(resolve, 300));
        return subjects('/changed').includes('an event it wants');
      });
      expect(subjects('/changed')[0]).to.equal('an event it wants');
      for (const hook of [id, other.id]) await hosts.a.api('/webhooks/delete', { id: hook });
    });

    it('a webhook that was deleted: 5 seconds, for batches that waited too, and at the start of a host at once', async () => {
      refuse('/deleted', '/gone');
      const first = await hosts.a.api('/webhooks/add', { url: url('/deleted'), events: ['send'] });
      await new Promise((resolve) => setTimeout(resolve, 1500)); // that B knows of it
      await send(hosts.b, 'its batch waits');
      await until('the first attempt', () => posts('/deleted').length > 0);
      await hosts.b.down();
      const seen = posts('/deleted').length;
      await hosts.a.api('/webhooks/delete', { id: first.id });
      const second = await hosts.a.api('/webhooks/add', { url: url('/second'), events: ['send'] });
      await hosts.b.up();
      await send(hosts.b, 'for the second');
      await until('the second to have its event', () => subjects('/second').includes('for the second'));
      refuse();
      await new Promise((resolve) => setTimeout(resolve, 6000)); // the attempt after the first is 5 s later
      expect(posts('/deleted'), 'not one post more').to.have.length(seen);
      await hosts.a.api('/webhooks/delete', { id: second.id });
    });

    it('the URL of a webhook, for batches that waited for the old one too: 5 seconds', async () => {
      refuse('/hook-old');
      const { id } = await hosts.a.api('/webhooks/add', { url: url('/hook-old'), events: ['send'] });
      await new Promise((resolve) => setTimeout(resolve, 1500));
      await send(hosts.b, 'follows');
      await until('the first attempt', () => posts('/hook-old').length > 0);
      await hosts.a.api('/webhooks/update', { id, url: url('/hook-new') });
      await until('it to arrive at the new one', () => subjects('/hook-new').includes('follows'), 40_000 * PATIENCE);
      await hosts.a.api('/webhooks/delete', { id });
    });

    it('a subaccount that is paused, resumed or deleted: 5 seconds; what waits asks once a minute', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'cust' });
      const to = (subject: string) => send(hosts.b, subject, { message: { subaccount: 'cust' } });
      await to('before the pause');
      await until('it to leave', () => hosts.arrived().includes('before the pause'));
      await hosts.a.api('/subaccounts/pause', { id: 'cust' });
      await new Promise((resolve) => setTimeout(resolve, 5000));
      await to('paused');
      await send(hosts.b, 'not paused');
      await until('the other mail to leave', () => hosts.arrived().includes('not paused'));
      await hosts.b.down();
      await hosts.b.up();
      await send(hosts.b, 'not paused, after a start');
      await until('the other mail to leave', () => hosts.arrived().includes('not paused, after a start'));
      expect(hosts.arrived()).to.not.include('paused');
      await hosts.a.api('/subaccounts/resume', { id: 'cust' });
      await within(65, 'it to leave', () => hosts.arrived().includes('paused'));
      await hosts.a.api('/subaccounts/delete', { id: 'cust' });
      const { body } = await hosts.b.ask('/messages/send', {
        message: { from_email: 'news@sender.test', text: 'x', to: [{ email: 'jo@to.test' }], subaccount: 'cust' },
      });
      expect(body.name, 'at once').to.equal('Unknown_Subaccount');
    });

    it('a subaccount that was deleted, for mail that waited in it: rejected when it asks again, once a minute', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'gone' });
      await hosts.a.api('/subaccounts/pause', { id: 'gone' });
      const id = await send(hosts.b, 'of a subaccount that goes', { message: { subaccount: 'gone' } });
      await send(hosts.b, 'of none');
      await until('the other mail to leave', () => hosts.arrived().includes('of none'));
      await hosts.a.api('/subaccounts/delete', { id: 'gone' });
      await within(
        65,
        'it to be rejected',
        async () => (await hosts.a.api('/messages/info', { id })).state === 'rejected',
      );
      expect(hosts.arrived()).to.not.include('of a subaccount that goes');
    });

    it('what other hosts have sent of an hourly quota: 5 seconds', async () => {
      await hosts.a.api('/subaccounts/add', { id: 'few', custom_quota: 1 });
      await send(hosts.a, 'first of the hour', { message: { subaccount: 'few' } });
      await until(
        'it to be counted',
        async () => (await hosts.a.api('/subaccounts/info', { id: 'few' })).sent_hourly === 1,
      );
      await new Promise((resolve) => setTimeout(resolve, 5000));
      await send(hosts.b, 'second of the hour', { message: { subaccount: 'few' } });
      await send(hosts.b, 'without a quota');
      await until('the other mail to leave', () => hosts.arrived().includes('without a quota'));
      expect(hosts.arrived()).to.include('first of the hour').and.to.not.include('second of the hour');
    });

    it('an API key that was revoked: a second for calls, 2 for mail that is handed over', async () => {
      const key = (await hosts.cli('key', 'create', 'other')).out.trim();
      const { ask } = createCaller(hosts.b.base, key);
      expect((await ask('/users/ping')).status).to.equal(200);
      const [place] = hosts.b.submission;
      if (!place) throw new Error('B takes no submission');
      const session = await openSession(place);
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

    it('a sender domain that may be signed for: 10 seconds', async () => {
      await send(hosts.b, 'unsigned', { message: { from_email: 'news@signed.test' } });
      await until('it to leave', () => hosts.arrived().includes('unsigned'));
      const records = await verifySender('signed.test', { postern: hosts.a, zone: hosts.zone, sink: hosts.server });
      hosts.zone.set({ ...RECORDS, ...records });
      await within(10, 'a signed message', async () => {
        await send(hosts.b, 'signed?', { message: { from_email: 'news@signed.test' } });
        await new Promise((resolve) => setTimeout(resolve, 500));
        return hosts.server.mails.some(({ raw }) => /^DKIM-Signature:[^]*?d=signed\.test/m.test(raw));
      });
      const unsigned = hosts.server.mails.find(({ raw }) => /^Subject: unsigned\r?$/m.test(raw));
      expect(unsigned?.raw).to.not.match(/^DKIM-Signature:/m);
    });

    it('tracking and return path domains of a domain that was verified: 10 seconds', async () => {
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
      const looks = (subject: string) =>
        hosts.server.mails.find(({ raw }) => raw.includes(`\r\nSubject: ${subject}\r\n`));
      const isOwn = (subject: string) => {
        const { raw = '', from = '' } = looks(subject) ?? {};
        return [raw.replaceAll('=\r\n', '').includes('//track.own.test/track/click/'), from.endsWith('@back.own.test')];
      };
      await send(hosts.b, 'before the proof', { message });
      await until('it to leave', () => looks('before the proof'));
      expect(isOwn('before the proof')).to.deep.equal([false, false]);
      const records = await verifySender('own.test', { postern: hosts.a, zone: hosts.zone, sink: hosts.server });
      hosts.zone.set({ ...RECORDS, ...records, ...own });
      let sent = 0;
      await within(10, 'both to be used', async () => {
        await send(hosts.b, `after the proof ${++sent}`, { message });
        await until('it to leave', () => looks(`after the proof ${sent}`));
        return isOwn(`after the proof ${sent}`).every(Boolean);
      });
    });

    // The last one: with a second account domains have to be proven.
    it('an account that was created: at once for calls', async () => {
      const key = (await hosts.cli('account', 'create', 'second')).out.trim();
      expect((await createCaller(hosts.b.base, key).ask('/users/info')).body).to.include({ username: 'second' });
    });
  });
