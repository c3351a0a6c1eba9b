import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { openSession, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

// While an endpoint is down, none of its mail is parsed, but people search for it.

const mail = (subject: string) =>
  `From: =?utf-8?Q?J=C3=B6rg?= <joerg@shop.example>\r\nTo: box@in.test\r\nSubject: ${subject}\r\nMessage-ID: <${subject.length}@shop.example>\r\n\r\nHello.\r\n`;

for (const threads of ['0', '2'])
  describe(`mail for an endpoint that is down (smtp.threads: ${threads})`, function () {
    this.timeout(60_000);
    let running: TestDaemon;
    let hook: Receiver;
    let env: Record<string, string>;
    let dir: string;
    const more = { POSTERN_SMTP__THREADS: threads };

    const queued = async (...options: string[]) =>
      (await postern(['queue', 'list', '--json', ...options], env)).records() as any[];
    const search = async (query: string) => (await running.api('/inbound/search', { query })).mails as any[];
    const waitsOf = async (id: string) => (await running.api('/inbound/info', { id })).waits;
    const send = (to: string, subject: string) =>
      sendMail(running.smtp, { from: 'ann@shop.example', to }, mail(subject));

    before(async () => {
      hook = await startReceiver();
      dir = await tempDir();
      env = { POSTERN_DATA_DIR: dir };
      running = await startDaemon(more, { dir });
      await running.api('/inbound/add-domain', { domain: 'in.test' });
      await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box', url: hook.url });
      hook.answer({ status: 503, body: 'away' });
      for (let n = 0; n < 12; n++) await send('box@in.test', `Before ${n}`);
      await until('the endpoint to be down', async () => {
        const [one] = await running.api('/endpoints/list');
        return one.breaker === 'down';
      });
      await send('box@in.test', '=?utf-8?B?R3LDvMOfZSBhdXMgS8O2bG4=?=');
      await running.api('/inbound/send-raw', { raw_message: mail('By the API'), to: ['box@in.test'] });
      await send('box@in.test', `Large ${'x'.repeat(10)}`.concat('\r\nX-Pad: ', 'y\r\n '.repeat(100_000), 'end'));
      await until('all are in the history', async () => (await search('state:waiting')).length === 15);
    });
    after(async () => {
      await running.stop();
      await hook.stop();
    });

    it('is found by subject, author and Message-ID, even if never attempted', async () => {
      const attempts: number[] = [];
      for (const [query, subject] of [
        ['subject:köln', 'Grüße aus Köln'],
        ['grüße from:jörg', 'Grüße aus Köln'],
        ['"By the API"', 'By the API'],
        ['subject:large', `Large ${'x'.repeat(10)}`],
      ] as const) {
        const [one, ...others] = await until(`what ${query} finds`, async () => {
          const found = await search(query);
          return found.length > 0 && found;
        });
        expect(others, query).to.deep.equal([]);
        expect(one, query).to.include({ subject, from: 'Jörg <joerg@shop.example>', state: 'waiting' });
        attempts.push(one.attempts);
      }
      // One may have been chosen to try the endpoint.
      expect(attempts).to.include(0);
      for (const one of await search('state:waiting')) expect(one.subject, one.id).to.be.a('string').and.not.equal('');
      expect(await search('<24@shop.example>')).to.have.length(0);
      expect(await search('<10@shop.example>')).not.to.have.length(0);
    });

    it('is shown by the command line with its subject and the reason for waiting', async () => {
      const { out } = await postern(['queue', 'list'], env);
      expect(out)
        .to.contain('Grüße aus Köln')
        .and.to.contain('By the API')
        .and.to.match(/ {2}down$/m);
      const [one] = (await queued()).filter(({ subject }) => subject === 'By the API');
      expect(one).to.deep.include({ from: 'Jörg <joerg@shop.example>', message_id: '<10@shop.example>', attempts: 0 });
      expect(one.waits).to.match(/^Endpoint down since [-\d]+ [:\d]+ UTC; last answer: HTTP 503; next probe /);
      expect((await postern(['queue', 'show', one.id], env)).out)
        .to.match(/^subject +By the API$/m)
        .and.to.match(/^waits +Endpoint down since .* last answer: HTTP 503/m);
      expect((await postern(['mail', 'find', 'köln'], env)).out).to.contain('Grüße aus Köln');
      expect((await postern(['mail', 'show', one.id], env)).out).to.match(/^Endpoint down since .*\.$/m);
    });

    it('shows since when the endpoint is down, its last answer, and who paused it, in the same words everywhere', async () => {
      const [{ id }] = await search('"By the API"');
      const { kind, text } = await waitsOf(id);
      expect(kind).to.equal('down');
      expect(text).to.match(
        /^Endpoint down since [-\d]+ [:\d]+ UTC; last answer: HTTP 503; next probe [-\d]+ [:\d]+ UTC$/,
      );
      await running.api('/endpoints/pause', { url: hook.url });
      const paused = await waitsOf(id);
      expect(paused.kind).to.equal('paused');
      expect(paused.text).to.match(/^Endpoint paused by the account since .* UTC, until .* UTC$/);
      expect((await queued(id))[0].waits).to.equal(paused.text);
      await running.api('/endpoints/resume', { url: hook.url });
    });

    it('keeps these details over a restart, also for mail that was waiting before', async () => {
      await running.stop();
      running = await startDaemon(more, { dir });
      const [one] = await until('the history to open', async () => {
        const found = await search('köln');
        return found.length > 0 && found;
      });
      const { kind, text } = await waitsOf(one.id);
      expect(kind).to.equal('down');
      expect(text).to.match(/^Endpoint down since .*; last answer: HTTP 503; next probe /);
    });

    it('shows after which answer it is retried, and why it waits', async () => {
      await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'other', url: `${hook.url}?other` });
      await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'kept', url: hook.url, action: 'hold' });
      await send('other@in.test', 'In backoff');
      await send('kept@in.test', 'Held by a route');
      const [failed] = await until('its first attempt', async () => {
        const found = await search('"in backoff"');
        return found[0]?.attempts === 1 && found;
      });
      const waits = await waitsOf(failed.id);
      expect(waits.kind).to.equal('backoff');
      expect(waits.text).to.match(
        /^Retrying after 1 attempt; last answer: HTTP 503; (?:next attempt .* UTC|the next attempt is due)$/,
      );
      const [held] = await until('what is held', async () => {
        const found = await search('"held by a route"');
        return found.length > 0 && found;
      });
      expect(held).to.include({ state: 'held', from: 'Jörg <joerg@shop.example>' });
      expect((await waitsOf(held.id)).text).to.match(/^Held by route \S+ until it is released$/);
      expect((await queued('--state', 'held'))[0]).to.deep.include({ subject: 'Held by a route' });
    });
  });

describe('the refusals of a session', function () {
  this.timeout(60_000);
  it('are in the timeline of the mail of the same transaction only', async () => {
    const hook = await startReceiver();
    const running = await startDaemon();
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: hook.url });
    const session = await openSession(running.smtp);
    await session.say('EHLO mail.shop.example');
    const transaction = async (subject: string, to: readonly string[]) => {
      await session.say(`MAIL FROM:<${subject}@shop.example>`);
      for (const one of to) await session.say(`RCPT TO:<${one}@in.test>`);
      await session.say('DATA');
      await session.data(mail(subject));
    };
    await session.say('MAIL FROM:<tries@shop.example>');
    for (const to of ['a', 'b', 'c']) await session.say(`RCPT TO:<${to}@in.test>`);
    await session.say('RSET');
    await transaction('first', ['own', 'box-1']);
    await transaction('second', ['later', 'box-2', 'latest']);
    await session.say('QUIT');
    session.close();
    const timelineOf = (subject: string) =>
      until(`the session of ${subject}`, async () => {
        const [one] = (await running.api('/inbound/search', { query: `subject:${subject}` })).mails;
        const { timeline } = one ? await running.api('/inbound/info', { id: one.id }) : { timeline: [] };
        const ended = timeline.some(({ kind }: any) => kind === 'delivered');
        return timeline[0]?.kind === 'session' && ended && timeline;
      });
    const refusedIn = async (subject: string) =>
      (await timelineOf(subject)).filter(({ kind }: any) => kind === 'refused').map(({ text }: any) => text);
    const refused = (to: string) => `RCPT ${to}@in.test refused: 550 5.1.1 No such mailbox here`;
    expect(await refusedIn('first')).to.deep.equal(['5 other refusals in this session', refused('own')]);
    expect(await refusedIn('second')).to.deep.equal([
      '4 other refusals in this session',
      refused('later'),
      refused('latest'),
    ]);
    const timeline = await timelineOf('first');
    const ended = timeline.findIndex(({ kind }: any) => kind === 'delivered');
    expect(timeline.slice(ended).map(({ kind }: any) => kind)).to.deep.equal(['delivered']);
    await running.stop();
    await hook.stop();
  });
});
