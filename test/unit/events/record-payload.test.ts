import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { toExampleEvents } from '../../../src/events/payload.ts';
import type { MessageEvent } from '../../../src/events/record.ts';
import { HOOK_EVENTS } from '../../../src/store/rows/webhooks.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { drivers } from '../../support/database.ts';
import { createRecording, MESSAGE, newEvent, newMessage } from '../../support/recording.ts';

const [driver] = drivers;
const AT = Date.UTC(2026, 0, 5, 11, 30) / 1000;
const SENT = Date.UTC(2026, 0, 5, 11) / 1000;
const AGENT = 'Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; en-US; rv:1.9.1.8) Gecko/20100317 Postbox/1.1.3';
const VISIT = {
  ip: '192.0.2.7',
  user_agent: AGENT,
  location: null,
  // What captured posts say of this agent, but for pictures and the name of the system, which was renamed.
  user_agent_parsed: {
    type: 'Email Client',
    ua_family: 'Postbox',
    ua_name: 'Postbox 1.1.3',
    ua_version: '1.1.3',
    ua_url: 'https://www.postbox-inc.com/',
    ua_company: 'Postbox, Inc.',
    ua_company_url: 'https://www.postbox-inc.com/',
    ua_icon: null,
    os_family: 'macOS',
    os_name: 'macOS 10.6 Snow Leopard',
    os_url: 'https://www.apple.com/macos/',
    os_company: 'Apple Inc.',
    os_company_url: 'https://www.apple.com/',
    os_icon: null,
    mobile: false,
  },
};
const NOBODY = { opens: [], clicks: [] };

/** What every event tells of its message. */
const COMMON = {
  ts: SENT,
  subject: 'Hello',
  email: 'person@example.net',
  sender: 'news@example.com',
  tags: ['one', 'two'],
  metadata: { user: 7 },
  subaccount: 'cust-1',
  template: 'welcome',
  diag: null,
  bounce_description: null,
  _id: MESSAGE,
};

const ROWS: readonly {
  kind: MessageEvent['kind'];
  detail?: MessageEvent['detail'];
  state: string;
  msg: object;
  event?: object;
}[] = [
  { kind: 'send', state: 'sent', msg: { ...NOBODY, smtp_events: [], resends: [], reject: null } },
  {
    kind: 'deferral',
    state: 'deferred',
    detail: { diag: '451 4.3.5 try later', source_ip: '192.0.2.1', destination_ip: '192.0.2.2' },
    msg: {
      ...NOBODY,
      diag: '451 4.3.5 try later',
      smtp_events: [
        {
          ts: AT,
          type: 'deferred',
          diag: '451 4.3.5 try later',
          source_ip: '192.0.2.1',
          destination_ip: '192.0.2.2',
          size: 0,
        },
      ],
    },
  },
  {
    kind: 'hard_bounce',
    state: 'bounced',
    detail: { diag: 'smtp;550 5.1.1 no such user', description: 'bad_mailbox' },
    msg: { bounce_description: 'bad_mailbox', bgtools_code: 10, diag: 'smtp;550 5.1.1 no such user' },
  },
  {
    kind: 'soft_bounce',
    state: 'soft-bounced',
    detail: { diag: 'smtp;552 5.2.2 Over Quota', description: 'mailbox_full', code: 22, rule: 'mailbox-full' },
    msg: {
      bounce_description: 'mailbox_full',
      bgtools_code: 22,
      diag: 'smtp;552 5.2.2 Over Quota',
      bounce_rule: 'mailbox-full',
    },
  },
  {
    kind: 'open',
    state: 'sent',
    detail: { ip: VISIT.ip, user_agent: VISIT.user_agent },
    event: VISIT,
    msg: { opens: [{ ts: AT }], clicks: [] },
  },
  {
    kind: 'click',
    state: 'sent',
    detail: { url: 'http://a.example/', ip: VISIT.ip, user_agent: VISIT.user_agent },
    event: { url: 'http://a.example/', ...VISIT },
    msg: { opens: [], clicks: [{ ts: AT, url: 'http://a.example/' }] },
  },
  { kind: 'spam', state: 'sent', msg: NOBODY },
  { kind: 'unsub', state: 'sent', msg: NOBODY },
  {
    kind: 'reject',
    state: 'rejected',
    detail: { reason: 'hard-bounce' },
    msg: { ...NOBODY, reject: { reason: 'hard-bounce' } },
  },
  {
    kind: 'reject',
    state: 'rejected',
    detail: { reason: 'rule', diag: 'its subaccount was deleted' },
    msg: { ...NOBODY, diag: 'its subaccount was deleted', reject: { reason: 'rule' } },
  },
];

describe('the payload of an event', () => {
  let store: Store;
  let world: ReturnType<typeof createRecording>;
  beforeEach(async () => {
    if (!driver) throw new Error('no store');
    store = await openStore(await driver.open());
    world = createRecording(store);
    await world.recorder.begin(newMessage());
  });
  afterEach(() => store.close());

  for (const { kind, state, detail = {}, msg, event = {} } of ROWS) {
    it(`has the fields that consumers of Mandrill read, for ${kind}`, async () => {
      await world.recorder.record(newEvent(kind, { detail }));
      const [
        {
          msg: { _version: version, ...told },
          ...rest
        },
      ] = world.bodies();
      expect(rest).to.deep.equal({ event: kind, _id: MESSAGE, ts: AT, ...event });
      expect(told).to.deep.equal({ ...COMMON, state, ...msg });
      expect(version).to.match(/^[\w-]{22}$/);
    });
  }

  it('is posted twice for an accepted message: as send, and as delivered to subscribers, with the reply of the server', async () => {
    await world.recorder.record(
      newEvent('send', { detail: { diag: '250 2.0.0 OK', source_ip: '192.0.2.1', destination_ip: '192.0.2.2' } }),
    );
    expect(world.published.map(({ id, event }) => [id, event])).to.deep.equal([
      ['event-send', 'send'],
      ['event-send-delivered', 'delivered'],
    ]);
    const [send, delivered] = world.bodies();
    const events = [
      { ts: AT, type: 'sent', diag: '250 2.0.0 OK', source_ip: '192.0.2.1', destination_ip: '192.0.2.2', size: 0 },
    ];
    expect(send.msg).to.deep.include({ state: 'sent', smtp_events: events });
    expect({ ...delivered, msg: { ...delivered.msg, state: 'sent' } }).to.deep.equal({ ...send, event: 'delivered' });
    expect(delivered.msg.state).to.equal('delivered');
  });

  it('has the full history so far', async () => {
    await world.recorder.record(newEvent('open', { id: 'a', at: new Date('2026-01-05T11:10:00Z') }));
    await world.recorder.record(
      newEvent('click', { id: 'b', at: new Date('2026-01-05T11:11:00Z'), detail: { url: 'http://a.example/?q=ü' } }),
    );
    await world.recorder.record(newEvent('unsub'));
    const bodies = world.bodies();
    expect(bodies[2].msg).to.deep.include({
      opens: [{ ts: SENT + 600 }],
      clicks: [{ ts: SENT + 660, url: 'http://a.example/?q=ü' }],
      state: 'sent',
    });
    expect(new Set(bodies.map(({ msg }) => msg._version)).size, 'a version for each state of the message').to.equal(3);
  });

  it('writes empty metadata as an empty list, and nothing as null', async () => {
    const id = 'a'.repeat(32);
    await world.recorder.begin(newMessage({ id, metadata: {}, tags: [], template: null, subaccount: null }));
    await world.recorder.record(newEvent('click', { message: id }));
    await world.recorder.record(newEvent('hard_bounce', { message: id, detail: { description: 'invalid_domain' } }));
    await world.recorder.record(newEvent('soft_bounce', { message: id, detail: { description: 'something_new' } }));
    const [click, hard, soft] = world.bodies();
    expect(click).to.deep.include({ url: '', ip: null, user_agent: null });
    expect(click.msg).to.deep.include({ metadata: [], tags: [], template: null, subaccount: null });
    expect(hard.msg).to.include({ bgtools_code: 21, diag: null });
    expect(soft.msg).to.include({ bgtools_code: null, bounce_description: 'something_new' });
  });

  it('is stored with the event, so that webhooks get the same words at any time', async () => {
    world.spool.broken = true;
    await world.recorder.record(newEvent('open'));
    const body = (await store.messageEvents.one({ id: 'event-open' }))?.unsent?.[0]?.body;
    await world.recorder.record(newEvent('click'));
    expect((await store.messageEvents.one({ id: 'event-open' }))?.unsent?.[0]?.body).to.equal(body);
    expect(JSON.parse(body ?? '').msg.clicks).to.deep.equal([]);
  });
});

describe('docs/payload.md', () => {
  it('names each event of sent mail, and each of its fields', () => {
    const section = readFileSync('docs/payload.md', 'utf8').split('## Events of sent mail')[1]?.split('\n## ')[0] ?? '';
    const named = new Set([...section.matchAll(/`(?:msg\.)?([\w]+)`/g)].map(([, name = '']) => name));
    const events = toExampleEvents(HOOK_EVENTS, new Date(0)).map((event) => JSON.parse(event));
    const used = events.flatMap((event) => [
      ...Object.keys(event),
      ...Object.keys(event.msg ?? {}),
      ...Object.keys(event.reply ?? {}),
    ]);
    expect([...HOOK_EVENTS, ...used].filter((name) => !named.has(name))).to.deep.equal([]);
  });
});
