import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createKey, keyHash } from '../../../src/store/rows/accounts.ts';

import type { SentMessageRow } from '../../../src/store/rows/messages.ts';
import { ACCOUNT, type ApiWorld, OTHER_ACCOUNT, startApi } from '../../support/api.ts';
import { messageRow, putMessages } from '../../support/messages.ts';
import { empty } from '../../support/shared-spool.ts';

const SENT = '5c1e0d0000000000000000000000000a';
const idOf = (n: number) => n.toString(16).padStart(32, '0');

describe('reading messages', () => {
  let world: ApiWorld;
  let made = 0;
  beforeEach(async () => {
    world = await startApi();
    made = 0;
  });
  afterEach(() => world.stop());

  const put = async (fields: Partial<SentMessageRow> = {}, account = ACCOUNT) => {
    const row = messageRow(account, idOf(++made), fields);
    await world.store.messages.insert(row);
    return row.id;
  };
  /** The numbers of what a search finds. */
  const found = async (params: object = {}): Promise<number[]> => {
    const { status, body } = await world.call('/messages/search', params);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body.map(({ _id: id }: { _id: string }) => Number.parseInt(id, 16));
  };

  describe('messages/search', () => {
    it('finds the newest first, of the last 7 days by default, and of this account only', async () => {
      await put({ createdAt: new Date('2026-01-05T10:00:00Z') });
      await put({ createdAt: new Date('2026-01-05T11:00:00Z') });
      await put({ createdAt: new Date('2025-12-28T11:59:00Z') });
      await put({}, OTHER_ACCOUNT);
      expect(await found()).to.deep.equal([2, 1]);
      expect(await found({ query: '*', date_from: '2025-12-01', date_to: '2026-01-05' })).to.deep.equal([2, 1, 3]);
      expect(
        await found({ date_from: '2025-12-01', date_to: '2025-12-28' }),
        'a date alone is all of that day',
      ).to.deep.equal([3]);
      expect(await found({ date_to: '2026-01-05 10:00:00' }), 'to the second').to.deep.equal([1]);
      expect(
        (await world.call('/messages/search', { date_from: '2026-01-05', date_to: '2026-01-04' })).status,
      ).to.equal(422);
      expect(
        await found({ date_from: '2025-12-01', date_to: '9999-12-31' }),
        'up to where the calendar ends',
      ).to.deep.equal([2, 1, 3]);
      expect(await found({ date_to: '0000-01-01 00:00:00' }), 'and where it begins').to.deep.equal([]);
    });

    it('parses words, fields, quotes, not and or', async () => {
      await put({ email: 'ann@example.com', subject: 'Your invoice', tags: ['billing'], metadata: { user: '7' } });
      await put({
        email: 'bob@example.net',
        subject: 'Welcome to us',
        tags: ['welcome', 'new'],
        template: 'hello',
        state: 'bounced',
      });
      await put({
        email: 'carl@example.net',
        subject: 'Invoice overdue',
        sender: 'dunning@example.com',
        subaccount: 'cust-123',
        state: 'spam',
      });
      const cases: Readonly<Record<string, readonly number[]>> = {
        '': [3, 2, 1],
        '*': [3, 2, 1],
        invoice: [3, 1],
        INVOICE: [3, 1],
        'invoice ann': [1],
        'invoice AND ann': [1],
        'ann OR bob': [2, 1],
        'ann OR bob OR carl': [3, 2, 1],
        'invoice ann OR carl': [3, 1],
        '-invoice': [2],
        'invoice -carl': [1],
        '"welcome to"': [2],
        '"to welcome"': [],
        'subject:"your invoice"': [1],
        'email:example.net': [3, 2],
        'full_email:bob@example.net': [2],
        'email:*@example.net': [3, 2],
        'sender:dunning*': [3],
        'tag:welcome': [2],
        'tags:wel': [],
        'tags:wel*': [2],
        'state:bounced': [2],
        'state:spam OR state:bounced': [3, 2],
        '-state:spam': [2, 1],
        'template:hello': [2],
        'subaccount:cust-123': [3],
        'u_user:7': [1],
        'u_user:8': [],
        'http://nowhere': [],
        welcome: [2],
        'nobody@example.com': [],
      };
      for (const [query, numbers] of Object.entries(cases))
        expect((await found({ query })).toSorted(), query).to.deep.equal([...numbers].toSorted());
    });

    it('filters by tags, senders and keys: any of each, all combined', async () => {
      const key = 'AnotherKeyOfTheAccount';
      await createKey(world.store, ACCOUNT, 'second', { clock: world.clock, ids: createIds(world.clock) }, key);
      await put({ tags: ['a', 'b'], apiKey: keyHash(key) });
      await put({ tags: ['b'], sender: 'other@example.com' });
      await put({ tags: ['c'] });
      expect((await found({ tags: ['a', 'c'] })).toSorted()).to.deep.equal([1, 3]);
      expect(await found({ senders: ['Other@Example.com'] })).to.deep.equal([2]);
      expect(await found({ senders: ['news@example.com'], tags: ['b'] })).to.deep.equal([1]);
      expect(await found({ api_keys: [key] })).to.deep.equal([1]);
      expect(await found({ api_keys: ['nobody'] })).to.deep.equal([]);
      expect((await found({ tags: [], senders: [], api_keys: [] })).length, 'an empty list is no condition').to.equal(
        3,
      );
    });

    it('returns 100 by default and at most 1000, even for equal times', async () => {
      for (let n = 0; n < 450; n++) await put({});
      expect(await found()).to.have.length(100);
      const all = await found({ limit: 1000 });
      expect(new Set(all).size).to.equal(450);
      expect(await found({ limit: 1 })).to.have.length(1);
      for (const limit of [-1, 1001]) expect((await world.call('/messages/search', { limit })).status).to.equal(422);
    });

    it('handles hostile queries', async () => {
      await put({ subject: 'a'.repeat(900) });
      for (const query of [
        'a* '.repeat(1000),
        '"'.repeat(3000),
        '-'.repeat(3999),
        ':'.repeat(3000),
        '('.repeat(2000),
        'OR OR OR',
        '__proto__:x',
        'constructor:y',
        'u___proto__:z',
        '\\'.repeat(3000),
      ])
        await found({ query });
      expect((await world.call('/messages/search', { query: 'x'.repeat(4001) })).status).to.equal(422);
    });
  });

  it('totals the results of a search by hour', async () => {
    await put({ opens: 3, clicks: 1 });
    await put({ state: 'spam', opens: 1 });
    await put({ state: 'bounced', tags: ['a'] });
    await put({ state: 'rejected', createdAt: new Date('2026-01-05T08:59:59Z') });
    await put({ state: 'queued', createdAt: new Date('2026-01-05T08:00:00Z') });
    const { body } = await world.call('/messages/search-time-series', { query: '*' });
    const none = {
      hard_bounces: 0,
      soft_bounces: 0,
      rejects: 0,
      complaints: 0,
      unsubs: 0,
      opens: 0,
      unique_opens: 0,
      clicks: 0,
      unique_clicks: 0,
      sent: 0,
    };
    expect(body).to.deep.equal([
      { ...none, time: '2026-01-05 08:00:00', rejects: 1 },
      {
        ...none,
        time: '2026-01-05 09:00:00',
        sent: 2,
        hard_bounces: 1,
        complaints: 1,
        opens: 4,
        unique_opens: 2,
        clicks: 1,
        unique_clicks: 1,
      },
    ]);
    expect((await world.call('/messages/search-time-series', { tags: ['a'] })).body).to.have.length(1);
  });

  describe('messages/info', () => {
    it('shows the delivery history', async () => {
      const id = await put({ state: 'bounced', diag: 'smtp;550 no', bounceDescription: 'bad_mailbox' });
      const at = (second: number) => new Date(Date.UTC(2026, 0, 5, 9, 31, second));
      const event = (kind: 'deferral' | 'hard_bounce', second: number, diag: string, connection = {}) =>
        world.store.messageEvents.insert({
          id: `${id}-${second}`,
          account: ACCOUNT,
          message: id,
          kind,
          at: at(second),
          appliedAt: at(second),
          detail: { diag, ...connection },
          unsent: null,
          unsentSince: null,
        });
      const connection = { source_ip: '192.0.2.1', destination_ip: '198.51.100.7', destination: 'mx.example.com' };
      await event('hard_bounce', 9, 'smtp;550 no', connection);
      await event('deferral', 1, '451 later');
      const { body } = await world.call('/messages/info', { id });
      expect(body.smtp_events).to.deep.equal([
        {
          ts: at(1).getTime() / 1000,
          type: 'deferred',
          diag: '451 later',
          source_ip: null,
          destination_ip: null,
          destination: null,
        },
        { ts: at(9).getTime() / 1000, type: 'bounced', diag: 'smtp;550 no', ...connection },
      ]);
      expect(body).to.include({
        state: 'bounced',
        diag: 'smtp;550 no',
        bounce_description: 'bad_mailbox',
        delivery: null,
      });
    });
  });

  describe('messages/content', () => {
    beforeEach(() => putMessages(world, ACCOUNT));

    it('shows the parts of a document that was submitted whole', async () => {
      const raw =
        'From: News <news@example.com>\r\nTo: Ann <ann@example.com>\r\nSubject: Hello\r\nX-Note: a\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>Hi</p>\r\n--b\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERg==\r\n--b--\r\n';
      const [{ _id: id }] = (await world.call('/messages/send-raw', { raw_message: raw })).body;
      const { body } = await world.call('/messages/content', { id });
      expect(body).to.deep.include({
        _id: id,
        from_email: 'news@example.com',
        from_name: 'News',
        subject: 'Hello',
        to: { email: 'ann@example.com', name: 'Ann' },
        html: '<p>Hi</p>\n',
        text: null,
        attachments: [{ name: 'a.pdf', type: 'application/pdf', binary: true, content: 'JVBERg==' }],
      });
      expect(body.headers).to.include({ 'X-Note': 'a' });
    });

    it('replaces merge tags for the recipient', async () => {
      const message = {
        html: 'Hi *|NAME|* of *|CITY|*',
        subject: 'For *|NAME|*',
        from_email: 'news@example.com',
        to: [{ email: 'Ann@example.com', name: 'Ann' }],
        global_merge_vars: [{ name: 'city', content: 'Rome' }],
        merge_vars: [{ rcpt: 'ann@example.com', vars: [{ name: 'name', content: 'Ann' }] }],
      };
      const [{ _id: id }] = (await world.call('/messages/send', { message })).body;
      expect((await world.call('/messages/content', { id })).body).to.deep.include({
        html: 'Hi Ann of Rome',
        subject: 'For Ann',
        to: { email: 'Ann@example.com', name: 'Ann' },
      });
    });

    it('reports content that has expired or is too large', async () => {
      const gone = (id: string) => ({
        status: 'error',
        code: 11,
        name: 'Unknown_Message',
        message: `No message exists with the id ${id}: its content is not kept any more`,
      });
      await empty(world.spool);
      expect((await world.call('/messages/content', { id: SENT })).body).to.deep.equal(gone(SENT));
      const id = await put({});
      expect((await world.call('/messages/content', { id })).body).to.deep.equal(gone(id));
    });

    it('hides a message sent with view_content_link false, however it was submitted', async () => {
      const message = {
        html: '<p>secret</p>',
        from_email: 'news@example.com',
        to: [{ email: 'ann@example.com' }],
        view_content_link: false,
      };
      const raw = 'From: news@example.com\r\nTo: ann@example.com\r\nX-MC-ViewContentLink: false\r\n\r\nsecret';
      for (const [path, params] of [
        ['/messages/send', { message }],
        ['/messages/send-raw', { raw_message: raw }],
      ] as const) {
        const [{ _id: id }] = (await world.call(path, params)).body;
        const { body } = await world.call('/messages/content', { id });
        expect(body).to.deep.equal({
          status: 'error',
          code: 11,
          name: 'Unknown_Message',
          message: `No message exists with the id ${id}: its content is not kept any more`,
        });
        expect((await world.call('/messages/info', { id })).body).to.include({ _id: id, sender: 'news@example.com' });
      }
      expect(JSON.stringify(world.log.lines)).to.not.include('secret');
    });

    it('hides a delivery of another account, whatever a row says', async () => {
      const [theirs] = await world.spool.list({ recipient: 'reader@example.com' }, 1);
      const id = await put({ delivery: theirs?.id ?? '' }, OTHER_ACCOUNT);
      expect((await world.call('/messages/content', { id, key: 'AnotherKey000000000002' })).body.name).to.equal(
        'Unknown_Message',
      );
    });
  });

  describe('messages/parse', () => {
    it('distinguishes images, attachments and text', async () => {
      const raw =
        'From: a@example.com\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n<img src="cid:pix">\n--b\nContent-Type: image/gif\nContent-ID: <pix>\nContent-Transfer-Encoding: base64\n\nR0lG\n--b\nContent-Type: text/plain; name=n.txt\nContent-Disposition: attachment; filename=n.txt\n\nnote\n--b--\n';
      const { body } = await world.call('/messages/parse', { raw_message: raw });
      expect(body.images).to.deep.equal([{ name: 'pix', type: 'image/gif', content: 'R0lG' }]);
      expect(body.attachments).to.deep.equal([{ name: 'n.txt', type: 'text/plain', binary: false, content: 'note' }]);
      expect(body).to.include({
        html: '<img src="cid:pix">\n',
        text: null,
        from_email: 'a@example.com',
        from_name: null,
      });
    });

    it('rejects messages above a limit, and keeps every header name', async () => {
      const { status, body } = await world.call('/messages/parse', { raw_message: `${'X-A: b\n'.repeat(2000)}\nx` });
      expect({ status, name: body.name }).to.deep.equal({ status: 422, name: 'ValidationError' });
      const { body: parsed } = await world.call('/messages/parse', {
        raw_message: '__proto__: a\nConstructor: b\nX-A: 1\nX-A: 2\n\n',
      });
      expect(Object.entries(parsed.headers)).to.deep.equal([
        ['__proto__', 'a'],
        ['Constructor', 'b'],
        ['X-A', ['1', '2']],
      ]);
    });
  });
});
