import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { type createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { openSession, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';

// What people ask about mail, from SMTP to the answer of the API and of the command line.

const MAILS = [
  { from: 'ann@shop.example', to: 'box-1@in.test', subject: 'Order 4711 is late' },
  { from: 'bob@elsewhere.example', to: 'box-2@in.test', subject: 'Discount: 100%_off' },
  { from: '', to: 'box-1@in.test', subject: 'Undeliverable' },
  { from: 'bob@elsewhere.example', to: 'box-2@in.test', subject: '=?utf-8?Q?Gr=C3=BC=C3=9Fe_aus_K=C3=B6ln?=' },
  { from: 'ann@shop.example', to: 'other@in.test', subject: 'He said "no way"' },
] as const;

const mail = ({ from, subject }: { from: string; subject: string }) =>
  `From: Some One <${from || 'mailer-daemon@shop.example'}>\r\nTo: you@in.test\r\nSubject: ${subject}\r\n\r\nHello.\r\n`;

describe('the history of a host', function () {
  this.timeout(60_000);
  let hook: Receiver;
  let running: TestDaemon;
  let env: Record<string, string>;
  let second: ReturnType<typeof createCaller>;

  before(async () => {
    hook = await startReceiver();
    running = await startDaemon({ POSTERN_INBOUND__OWNERSHIP: 'first' });
    env = { POSTERN_DATA_DIR: running.dir };
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: hook.url });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'other', url: `${hook.url}?b` });
    second = await addAccount(running);
    await second.api('/inbound/add-domain', { domain: 'second.test' });
    await second.api('/inbound/add-route', { domain: 'second.test', pattern: '*', url: hook.url });

    hook.answer(({ url }) => (url.endsWith('?b') ? { status: 503, body: 'moving' } : { status: 200 }));
    for (const one of MAILS) await sendMail(running.smtp, one, mail(one));
    await sendMail(running.smtp, { from: 'ann@shop.example', to: 'x@second.test' }, mail(MAILS[0]));

    // One session in which a mailbox, a foreign domain and a mailbox of the other account are tried.
    const session = await openSession(running.smtp);
    await session.say('EHLO mail.shop.example');
    await session.say('MAIL FROM:<carl@shop.example>');
    for (const to of ['nobody@in.test', 'x@foreign.test', 'box-3@in.test']) await session.say(`RCPT TO:<${to}>`);
    await session.say('DATA');
    await session.data(mail({ from: 'carl@shop.example', subject: 'Third time' }));
    await session.say('QUIT');
    session.close();
    await until('everything is in the history', async () => {
      const { mails } = await running.api('/inbound/search', { query: '' });
      const { refusals } = await running.api('/inbound/refusals', {});
      const theirs = await second.api('/inbound/search', {});
      const all = [...mails, ...theirs.mails];
      return (
        all.length === MAILS.length + 2 &&
        all.every(({ attempts, subject }) => attempts > 0 && subject !== null) &&
        refusals.length === 1 &&
        refusals[0]
      );
    });
  });
  after(async () => {
    await running.stop();
    await hook.stop();
  });

  const subjects = async (query: string, more: object = {}): Promise<string[]> =>
    (await running.api('/inbound/search', { query, ...more })).mails.map(({ subject }: { subject: string }) => subject);
  const faultOf = async (path: string, query: string): Promise<string> => {
    const { status, body } = await running.ask(path, { query });
    expect(status, query).to.equal(422);
    return JSON.parse(body.message.slice('Validation error: '.length)).query;
  };

  describe('search', () => {
    it('finds words in subject, sender and recipient, in any case, and only mail that has all of them', async () => {
      expect(await subjects('LATE')).to.deep.equal(['Order 4711 is late']);
      expect(await subjects('order late ann')).to.deep.equal(['Order 4711 is late']);
      expect(await subjects('order bob')).to.deep.equal([]);
      expect(await subjects('shop.example box-1')).to.deep.equal(['Undeliverable', 'Order 4711 is late']);
    });

    it('shows the newest first, with the details of each mail', async () => {
      const { mails, next } = await running.api('/inbound/search', { query: '*' });
      expect(mails.map(({ subject }: { subject: string }) => subject)).to.deep.equal([
        'Third time',
        'He said "no way"',
        'Grüße aus Köln',
        'Undeliverable',
        'Discount: 100%_off',
        'Order 4711 is late',
      ]);
      expect(next).to.equal(null);
      const first = mails.at(-1);
      expect(first).to.deep.include({
        sender: 'ann@shop.example',
        from: 'Some One <ann@shop.example>',
        to: 'box-1@in.test',
        pattern: 'box-*',
        url: hook.url,
        state: 'delivered',
        attempts: 1,
        last_status: 200,
        last_error: null,
        client: '127.0.0.1',
        helo: 'client.example.org',
        tls: null,
        dkim: 'none',
        kept: true,
      });
      expect(first.id.startsWith(`${first.message_id}-`)).to.equal(true);
      expect(first.at).to.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    });

    it('finds umlauts', async () => {
      for (const query of ['Köln', 'grüße', 'subject:"grüße aus"', 'ü'])
        expect(await subjects(query), query).to.deep.equal(['Grüße aus Köln']);
    });

    it('takes wildcard characters and quotes literally', async () => {
      expect(await subjects('100%_')).to.deep.equal(['Discount: 100%_off']);
      expect(await subjects('%')).to.deep.equal(['Discount: 100%_off']);
      for (const query of ['100__', '1%off', '"*"', "'; DROP TABLE mail --", 'late OR discount', '"order late"'])
        expect(await subjects(query), query).to.deep.equal([]);
      expect(await subjects('"\\"'), 'a quote that is not closed').to.deep.equal([]);
      expect(await subjects('"no way')).to.deep.equal(['He said "no way"']);
      expect(await subjects('late*')).to.deep.equal(['Order 4711 is late']);
    });

    it('finds words of one and two characters, and unusual characters', async () => {
      expect(await subjects('47 is')).to.deep.equal(['Order 4711 is late']);
      expect(await subjects('order\u0001late')).to.deep.equal(['Order 4711 is late']);
      for (const query of ['\u202e', '\u{1f4a9}ab']) expect(await subjects(query), query).to.deep.equal([]);
    });

    it('filters by field', async () => {
      const [late] = (await running.api('/inbound/search', { query: 'late' })).mails;
      const found: readonly (readonly [string, number])[] = [
        ['from:ann', 2],
        ['to:other', 1],
        ['subject:order', 1],
        ['subject:ann', 0],
        ['client:127.0.0', 6],
        ['client:mail.shop', 1],
        ['route:box-*', 0], // a star at the end of a word says nothing
        ['route:"box-*"', 5],
        [`route:${late.route}`, 5],
        ['state:waiting', 1],
        ['state:waiting state:delivered', 6],
        ['status:503', 1],
        ['status:2xx', 5],
        ['status:none', 0],
        [`id:${late.id}`, 1],
        [`id:${late.message_id}`, 1],
        [`id:${late.id} id:nobody`, 1],
        ['id:nobody', 0],
        [`url:${hook.url}`, 5],
        ['after:1h', 6],
        ['before:1h', 0],
        ['after:2026-01-05 before:2126-01-05T12:00:00Z', 6],
        ['after:"2126-01-05 12:00:00"', 0],
      ];
      for (const [query, count] of found) expect(await subjects(query), query).to.have.length(count);
      expect(await subjects('', { from: '2126-01-01' })).to.deep.equal([]);
      expect(await subjects('after:1h', { to: '2020-01-01' })).to.deep.equal([]);
    });

    it('names the unknown word and the allowed ones', async () => {
      expect(await faultOf('/inbound/search', 'late form:bob')).to.match(
        /^Word 2: unknown filter "form:"\. Use from:, to:, subject:/,
      );
      expect(await faultOf('/inbound/search', 'state:lost')).to.contain('waiting, delivered, dead, dropped');
      expect(await faultOf('/inbound/search', 'a b status:9xxx')).to.match(
        /^Word 3: status: takes a status such as 500/,
      );
      expect(await faultOf('/inbound/search', 'after:yesterday')).to.contain('2h or 3d');
      expect(await faultOf('/inbound/search', 'from:""')).to.contain('needs a value');
      expect(await faultOf('/inbound/search', 'from: ann')).to.contain('right after from:');
      expect(await faultOf('/inbound/search', '-from:ann')).to.contain('excluding is not supported');
      expect(await faultOf('/inbound/search', 'route:1 route:2')).to.contain('once');
      expect(await faultOf('/inbound/search', 'a '.repeat(31))).to.contain('at most 30 words');
      expect(await subjects('"form:bob"')).to.deep.equal([]);
      expect(await subjects('12:30')).to.deep.equal([]);
    });

    it('continues after its last row while more mail arrives', async () => {
      const seen: string[] = [];
      let before: number | undefined;
      for (let page = 0; page < 10; page++) {
        const { mails, next } = await running.api('/inbound/search', { query: 'to:in.test', limit: 2, before });
        seen.push(...mails.map(({ id }: { id: string }) => id));
        if (next === null) break;
        before = next;
        const late = { from: 'eve@more.test', to: 'x@second.test' };
        await sendMail(running.smtp, late, mail({ from: late.from, subject: 'meanwhile' }));
      }
      expect(new Set(seen).size).to.equal(seen.length);
      expect(seen).to.have.length(6);
    });
  });

  describe('of one mail', () => {
    it('shows all steps from the connection to the answer', async () => {
      const [found] = (await running.api('/inbound/search', { query: 'subject:"third time"' })).mails;
      const info = await until('the session has ended', async () => {
        const one = await running.api('/inbound/info', { id: found.id });
        return one.timeline[0].kind === 'session' && one;
      });
      expect(info).to.deep.include({ ...found });
      const texts = info.timeline.map(({ kind, text }: { kind: string; text: string }) => `${kind}: ${text}`);
      expect(texts[0]).to.equal('session: Connected: 127.0.0.1 (mail.shop.example), no TLS');
      expect(texts.slice(1, 4)).to.deep.equal([
        'refused: RCPT nobody@in.test refused: 550 5.1.1 No such mailbox here',
        'refused: RCPT x@foreign.test refused: 550 5.7.1 Relay access denied',
        `accepted: Accepted from carl@shop.example for box-3@in.test, ${found.size} bytes`,
      ]);
      expect(texts[4]).to.match(/^verdicts: SPF \w+, DKIM none, DMARC \w+$/);
      expect(texts[5]).to.match(/^attempt: POST to 127\.0\.0\.1:\d+: 200, after \d+ ms$/);
      expect(texts[6]).to.equal('delivered: Delivered');
      expect(info.timeline[0].detail).to.match(/^1 message, 1 recipient, 2 refusals, ended after \d+ ms \(quit\)$/);
      expect(info.timeline[1].detail).to.contain('Add a route');
      expect(info.timeline[0].after_ms).to.be.below(0);
      expect(info.deliveries).to.have.length(1);
      expect(info.deliveries[0]).to.include({ id: found.id, state: 'delivered' });
    });

    it('shows the next attempt, and the answer of the webhook', async () => {
      const [found] = (await running.api('/inbound/search', { query: 'to:other' })).mails;
      const { timeline, deliveries } = await running.api('/inbound/info', { id: found.id });
      expect(timeline.at(-1)).to.include({
        kind: 'next_attempt',
        text: 'Next attempt',
        at: deliveries[0].next_attempt_at,
      });
      expect(timeline.find(({ kind }: { kind: string }) => kind === 'attempt')).to.include({ detail: 'moving' });
    });

    it('hides it, and its refusals, from another account', async () => {
      const [theirs] = (await second.api('/inbound/search', { query: 'late' })).mails;
      const { status, body } = await running.ask('/inbound/info', { id: theirs.id });
      expect({ status, name: body.name }).to.deep.equal({ status: 404, name: 'Unknown_Message' });
      expect(await subjects(`id:${theirs.id}`)).to.deep.equal([]);
      expect((await second.api('/inbound/refusals')).refusals).to.deep.equal([]);
      const session = await openSession(running.smtp);
      await session.say('EHLO two.example');
      await session.say('MAIL FROM:<dan@shop.example>');
      await session.say('RCPT TO:<gone@in.test>');
      await session.say('RCPT TO:<here@second.test>');
      await session.say('DATA');
      await session.data(mail({ from: 'dan@shop.example', subject: 'for two' }));
      await session.say('QUIT');
      session.close();
      const kinds = await until('the session has ended', async () => {
        const [one] = (await second.api('/inbound/search', { query: '"for two"' })).mails;
        const info = one && (await second.api('/inbound/info', { id: one.id }));
        return info?.timeline[0].kind === 'session' && info.timeline.map(({ kind }: { kind: string }) => kind);
      });
      expect(kinds).not.to.contain('refused');
    });
  });

  describe('of refusals', () => {
    it('finds a refused recipient, and explains it', async () => {
      const { refusals, by_reason } = await running.api('/inbound/refusals', { query: 'NOBODY@in.test' });
      expect(refusals).to.have.length(1);
      expect(refusals[0]).to.deep.include({
        listener: 'smtp',
        stage: 'RCPT',
        reply: '550 5.1.1 No such mailbox here',
        reason: 'noMailbox',
        client: '127.0.0.1',
        helo: 'mail.shop.example',
        tls: null,
        sender: 'carl@shop.example',
        recipient: 'nobody@in.test',
        times: 1,
      });
      expect(refusals[0].advice).to.contain('No route of the domain matches the mailbox');
      expect(by_reason).to.deep.equal([{ reason: 'noMailbox', count: 1 }]);
    });

    it('filters them by field, reason, domain and time', async () => {
      const count = async (params: object) => (await running.api('/inbound/refusals', params)).refusals.length;
      for (const query of [
        'from:carl to:nobody client:mail.shop',
        'carl reason:noMailbox domain:in.test',
        'carl after:1h before:2126-01-01',
        'carl 127.0.0.1',
      ])
        expect(await count({ query }), query).to.equal(1);
      for (const query of ['from:nobody', 'reason:tooBig', 'domain:test', 'before:1h', 'n%y', 'foreign'])
        expect(await count({ query }), query).to.equal(0);
      expect(await count({ query: 'carl', reason: 'noMailbox', domain: 'in.test' })).to.equal(1);
      expect(await count({ reason: 'tooBig' })).to.equal(0);
    });

    it('names unknown filters', async () => {
      expect(await faultOf('/inbound/refusals', 'subject:x')).to.contain('unknown filter "subject:"');
      expect(await faultOf('/inbound/refusals', 'reason:because')).to.contain('noMailbox');
      const { body } = await running.ask('/inbound/refusals', { reason: 'because' });
      expect(body.message).to.contain('"reason":"The reasons are ');
      for (const [name, value] of [
        ['reason', 'tooBig'],
        ['domain', 'in.test'],
      ] as const) {
        const { body } = await running.ask('/inbound/refusals', { query: `${name}:${value}`, [name]: value });
        expect(body.message).to.contain(`Please give ${name} as a parameter or in the query, not both`);
      }
    });
  });

  describe('and replays', () => {
    it('count first, then replay what a search finds, and record the actor', async () => {
      const nothing = { matched: 0, forgotten: 0, replayed: 0, job: null };
      expect(await running.api('/inbound/replay', { query: 'late' }), 'it was delivered').to.deep.equal(nothing);
      const wish = { query: 'late state:delivered' };
      expect(await second.api('/inbound/replay', { ...wish, dry_run: true })).to.include({ matched: 1 });
      expect(await running.api('/inbound/replay', { ...wish, dry_run: true })).to.deep.equal({
        ...nothing,
        matched: 1,
      });
      const posts = hook.requests.length;
      expect(await running.api('/inbound/replay', wish)).to.deep.equal({ ...nothing, matched: 1, replayed: 1 });
      await until('it is posted again', () => hook.requests.length > posts);
      const { actions } = await until('it is noted', async () => {
        const list = await running.api('/actions/list');
        return list.actions[0]?.what === 'replayed' && list;
      });
      expect(actions.slice(1).every(({ what }: any) => / added$/.test(what))).to.equal(true);
      expect(actions[0]).to.include({
        by: running.key.slice(0, 4),
        what: 'replayed',
        count: 1,
        detail: 'query late state:delivered',
      });
      expect((await second.api('/actions/list')).actions.every(({ what }: any) => / added$/.test(what))).to.equal(true);
      const info = await until('its story', async () => {
        const [{ id }] = (await running.api('/inbound/search', { query: 'late' })).mails;
        const one = await running.api('/inbound/info', { id });
        return one.attempts === 2 && one;
      });
      expect(info.timeline.map(({ kind }: { kind: string }) => kind).slice(-4)).to.deep.equal([
        'delivered',
        'replayed',
        'attempt',
        'delivered',
      ]);
    });

    it('select by URL and by status', async () => {
      const dry = { dry_run: true, state: 'delivered' };
      expect((await running.api('/inbound/replay', { ...dry, url: hook.url })).matched).to.equal(5);
      expect((await running.api('/inbound/replay', { ...dry, status: '2xx' })).matched).to.equal(5);
      expect((await running.api('/inbound/replay', { ...dry, status: '2xx', query: 'bob' })).matched).to.equal(2);
      expect((await running.api('/inbound/replay', { ...dry, status: '200', url: `${hook.url}?b` })).matched).to.equal(
        0,
      );
      expect((await running.api('/inbound/replay', { ...dry, status: 'none' })).matched).to.equal(0);
    });

    it('reject contradictory requests, and ones that are already queued', async () => {
      for (const [params, field] of [
        [{ query: 'form:x' }, 'query'],
        [{ query: 'state:waiting' }, 'query'],
        [{ status: '9' }, 'status'],
        [{ id: 'x', query: 'late' }, 'id'],
        [{ ids: ['x'], status: '500' }, 'id'],
        [{ query: 'status:500', status: '5xx' }, 'status'],
        [{ query: 'state:dead', state: 'dead' }, 'state'],
        [{ query: 'url:http://a', url: 'http://a' }, 'url'],
        [{ query: 'route:1.1', route: '1.1' }, 'route'],
      ] as const) {
        const { status, body } = await running.ask('/inbound/replay', params);
        expect(status, JSON.stringify(params)).to.equal(422);
        expect(JSON.parse(body.message.slice('Validation error: '.length))).to.have.keys(field);
      }
    });
  });

  describe('on the command line', () => {
    it('finds mail of all accounts, as a table and as JSON', async () => {
      const { code, out } = await postern(['mail', 'find', 'subject:"4711 is"'], env);
      expect(code).to.equal(0);
      expect(out)
        .to.match(/^id +state +age +from +to +subject/)
        .and.to.contain('box-1@in.test')
        .and.to.contain('x@second.test')
        .and.to.contain('delivered');
      expect(out).not.to.contain('/hook'); // a URL may hold secrets
      const rows = (await postern(['mail', 'find', 'late', 'to:in.test', '--json'], env)).records();
      expect(rows).to.have.length(1);
      expect(rows[0]).to.include({ sender: 'ann@shop.example', kind: 'inbound', subject: 'Order 4711 is late' });
      expect(rows[0]).not.to.have.property('kept');
      expect((await postern(['mail', 'find', '--limit', '1'], env)).out).to.contain('More rows match; see --limit.');
      expect((await postern(['mail', 'find', 'nowhere'], env)).out).to.equal('No matching mail.\n');
    });

    it('reports matching refusals', async () => {
      expect((await postern(['mail', 'find', 'to:nobody@in.test'], env)).out).to.equal(
        'No matching mail.\n\n1 refusal matches: postern mail refused\n',
      );
    });

    it('shows the history of a mail by its own id or its Message-ID', async () => {
      const [row] = (await postern(['mail', 'find', 'subject:"third time"', '--json'], env)).records();
      for (const id of [row.id, row.message_id]) {
        const { code, out } = await postern(['mail', 'show', id], env);
        expect(code).to.equal(0);
        expect(out)
          .to.match(/^subject +Third time$/m)
          .and.to.match(/ -0\.\d{3}s +Connected: 127\.0\.0\.1 \(mail\.shop\.example\), no TLS$/m)
          .and.to.match(/ RCPT nobody@in\.test refused: 550 5\.1\.1 No such mailbox here$/m)
          .and.to.match(/ {4}No route of the domain matches the mailbox\./)
          .and.to.match(/ \+0\.000s +Accepted from carl@shop\.example for box-3@in\.test/)
          .and.to.match(/ POST to 127\.0\.0\.1:\d+: 200, after \d+ ms$/m);
      }
      const shown = (await postern(['mail', 'show', row.id, '--json'], env)).json();
      expect(shown[0].timeline.map(({ kind }: { kind: string }) => kind)).to.include.members(['session', 'delivered']);
      expect((await postern(['mail', 'show', 'nobody'], env)).err).to.equal(
        'No mail nobody in the history of this host.\n',
      );
      const waiting = (await postern(['mail', 'find', 'state:waiting', '--json'], env)).records();
      expect((await postern(['mail', 'show', waiting[0].id], env)).out).to.match(
        /^Retrying after \d attempts?; last answer: HTTP 503; (?:next attempt [-\d]+ [:\d]+ UTC|the next attempt is due)\.$/m,
      );
    });

    it('asks for the recipient when a message has several', async () => {
      await sendMail(
        running.smtp,
        { from: 'ann@shop.example', to: ['box-8@in.test', 'box-9@in.test'] },
        mail({ from: 'ann@shop.example', subject: 'to both' }),
      );
      const rows = await until('both', async () => {
        const found = (await postern(['mail', 'find', 'subject:"to both"', '--json'], env)).records();
        return found.length === 2 && found;
      });
      const { code, err } = await postern(['mail', 'show', rows[0].message_id], env);
      expect(code).to.equal(1);
      expect(err).to.contain('The message has 2 recipients').and.to.contain(rows[0].id).and.to.contain(rows[1].id);
    });

    it('lists refusals of all accounts, with what to do', async () => {
      const { out } = await postern(['mail', 'refused', 'carl', 'after:1h'], env);
      expect(out)
        .to.contain('nobody@in.test')
        .and.to.contain('550 5.7.1 Relay access denied')
        .and.to.match(/^1 × noRelay\n {2}The domain of the recipient is not an inbound domain here\./m);
      const rows = (await postern(['mail', 'refused', 'to:foreign.test', '--json'], env)).records();
      expect(rows[0]).to.include({ account: null, reason: 'noRelay', stage: 'RCPT' });
      expect((await postern(['mail', 'refused', 'nowhere'], env)).out).to.equal('No matching refusals.\n');
    });

    it('exits with 64 for an invalid query', async () => {
      for (const argv of [
        ['find', 'form:x'],
        ['refused', 'subject:x'],
        ['find', '--limit', '0'],
        ['refused', '--limit', 'x'],
        ['show'],
      ])
        expect((await postern(['mail', ...argv], env)).code, argv.join(' ')).to.equal(64);
      expect((await postern(['mail', 'find', 'form:x'], env)).err).to.contain('Word 1: unknown filter "form:"');
    });

    it('records changes of domains and routes with their actor, without the query of a URL', async () => {
      const list = async () => (await running.api('/actions/list')).actions;
      const before = (await list()).length;
      expect((await postern(['domain', 'add', 'noted.test', '--account', 'main'], env)).code).to.equal(0);
      await running.api('/inbound/add-domain', { domain: 'noted.test' }); // it is there already
      const route = await running.api('/inbound/add-route', {
        domain: 'noted.test',
        pattern: 'a-*',
        url: `${hook.url}?token=secret`,
      });
      await running.api('/inbound/update-route', { id: route.id, pattern: 'b-*', batch_events: 5 });
      await running.api('/inbound/update-route', { id: route.id, pattern: 'b-*' }); // changes nothing
      await running.api('/inbound/delete-route', { id: route.id });
      await running.api('/inbound/delete-domain', { domain: 'noted.test' });
      const actions = await until('they are noted', async () => {
        const found = await list();
        return found.length >= before + 5 && found.slice(0, found.length - before).reverse();
      });
      const by = running.key.slice(0, 4);
      expect(actions.map((one: any) => [one.by, one.what, one.count, one.detail])).to.deep.equal([
        ['command line', 'domain added', 1, 'noted.test'],
        [by, 'route added', 1, `${route.id}: a-*@noted.test to ${hook.url}`],
        [by, 'route changed', 1, `${route.id} of noted.test: pattern a-* to b-*, batch_events 1 to 5`],
        [by, 'route removed', 1, `${route.id}: b-*@noted.test to ${hook.url}`],
        [by, 'domain removed', 1, 'noted.test with its routes (0)'],
      ]);
    });

    it('records what commands did to the mail of each account', async () => {
      const before = (await running.api('/actions/list')).actions.length;
      await postern(['queue', 'drop', '--url', `${hook.url}?b`], env);
      await postern(['replay', '--all', '--dry-run'], env);
      const { actions } = await running.api('/actions/list');
      expect(actions).to.have.length(before + 1);
      expect(actions[0]).to.include({ by: 'command line', what: 'dropped', count: 1, detail: `url ${hook.url}?b` });
      const theirs = (await second.api('/actions/list')).actions;
      expect(theirs.map(({ what }: any) => what)).to.deep.equal(['route added', 'domain added']);
      const [last] = (await running.api('/inbound/search', { query: 'to:other' })).mails;
      await postern(['replay', last.id], env);
      expect((await running.api('/actions/list')).actions[0]).to.include({
        what: 'replayed',
        detail: `id ${last.id}`,
      });
    });
  });
});

describe('the history of a stopped host', function () {
  this.timeout(60_000);

  it('can be read, and explains if it cannot', async () => {
    const hook = await startReceiver();
    const running = await startDaemon();
    const env = { POSTERN_DATA_DIR: running.dir };
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    await sendMail(
      running.smtp,
      { from: 'ann@shop.example', to: 'a@in.test' },
      mail({ from: 'a@b.c', subject: 'kept' }),
    );
    await running.stop();
    await hook.stop();
    expect((await postern(['mail', 'find', 'to:a@in.test', '--json'], env)).records()).to.have.length(1);
    const file = join(running.dir, 'journal.db');
    truncateSync(file, 0);
    const other = await postern(['mail', 'find'], env);
    expect(other.code).to.equal(69);
    expect(other.err).to.match(/the history .*journal\.db cannot be read: the journal is of another version/);
    writeFileSync(file, 'no database'.repeat(1000));
    expect((await postern(['mail', 'refused'], env)).err).to.match(
      /cannot be read: .*\. The daemon replaces it with a new one/,
    );
    const nowhere = await postern(['mail', 'find'], { POSTERN_DATA_DIR: join(running.dir, 'none') });
    expect(nowhere).to.include({ code: 69 });
    expect(nowhere.err).to.match(
      /no history in .*\(data_dir\)\. Start the daemon first, or pass its settings file with --config\./,
    );
  });
});
