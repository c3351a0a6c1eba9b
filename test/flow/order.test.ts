import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { createFastClock } from '../support/fast-clock.ts';
import { sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type How, type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

interface Written {
  readonly subject: string;
  readonly from?: string;
  /** Of the envelope. */
  readonly sender?: string;
  readonly more?: string;
  readonly to?: string | readonly string[];
  readonly text?: string;
}

const textOf = ({ subject, from = 'ada@example.org', more = '', text = 'Hello.' }: Written): string =>
  `${from === '' ? '' : `From: ${from}\r\n`}To: box@in.test\r\nSubject: ${subject}\r\n${more}\r\n${text}\r\n`;
const subjectsOf = (post: Received): string[] => eventsOf(post).map(({ msg }) => msg.subject);

describe('mail of a route with `order`', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let hook: Receiver;
  /** Subjects in the order in which they were answered with 2xx. */
  let passed: string[] = [];
  const start = async (env: Record<string, string> = {}, options: Parameters<typeof startDaemon>[1] = {}) => {
    running = await startDaemon(env, options);
  };
  const route = async (params: object) => {
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    return running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url, ...params });
  };
  async function send(...mails: Written[]): Promise<void> {
    for (const mail of mails)
      expect(
        await sendMail(
          running.smtp,
          { from: mail.sender ?? 'ada@sender.test', to: mail.to ?? 'box@in.test' },
          textOf(mail),
        ),
      ).to.match(/^250/);
  }
  /** The endpoint answers each POST as this says, by the subjects in it. */
  function answer(how: (subjects: readonly string[], attempt: number) => How | Promise<How>): void {
    const attempts = new Map<string, number>();
    hook.answer(async (request) => {
      if (postsOf([request]).length === 0) return { status: 200 };
      const subjects = subjectsOf(request);
      const attempt = (attempts.get(subjects.join()) ?? 0) + 1;
      attempts.set(subjects.join(), attempt);
      const said = await how(subjects, attempt);
      if (typeof said === 'object' && 'status' in said && said.status === 200) passed.push(...subjects);
      return said;
    });
  }
  const ok = { status: 200 } as const;
  const arrived = (count: number) => until(`${count} messages`, () => passed.length >= count, 40_000);
  /** The history has a message soon after it was accepted. */
  const info = (id: string) =>
    until('the history has it', () => running.api('/inbound/info', { id }).catch(() => undefined));
  const deliveries = async (): Promise<any[]> => (await running.api('/inbound/deliveries')).reverse();

  beforeEach(async () => {
    passed = [];
    hook = await startReceiver();
  });
  afterEach(async () => {
    await running.stop();
    await hook.stop();
  });

  it('is posted one by one for each author, even a slow one, while other authors proceed', async () => {
    await start({ POSTERN_SMTP__THREADS: '2' });
    await route({ order: 'sender' });
    let release = (): void => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    answer(async ([subject]) => {
      if (subject === 'a1') await released;
      return ok;
    });
    await send(
      { subject: 'a1' },
      { subject: 'a2', from: 'Ada Lovelace <ADA@Example.org>' },
      { subject: 'a3', sender: '' },
    );
    await send({ subject: 'b1', from: 'bob@example.org' }, { subject: 'b2', from: 'bob@example.org' });
    // Without an author it is the envelope sender.
    await send({ subject: 'c1', from: '', sender: 'ada@example.org' });
    await arrived(2);
    await until('the first post', () => postsOf(hook.requests).length === 3);
    expect(passed).to.deep.equal(['b1', 'b2']);
    const [first, second] = await deliveries();
    expect([first.state, second.state, second.next_attempt_at]).to.deep.equal(['waiting', 'waiting', null]);
    const { waits, timeline } = await info(second.id);
    expect(waits).to.deep.equal({ kind: 'behind', text: 'Waits behind an earlier message of the same sender' });
    expect(timeline.map(({ kind }: any) => kind)).not.to.include('next_attempt');
    const shown = await postern(['queue', 'list'], { POSTERN_DATA_DIR: running.dir });
    expect(shown.out).to.contain('a2');
    expect((await postern(['queue', 'show', second.id], { POSTERN_DATA_DIR: running.dir })).out).to.contain(waits.text);
    const metrics = await scrape(running.base);
    expect(metrics.of('postern_spool_waiting_in_order')).to.equal(3);
    release();
    await arrived(6);
    expect(passed).to.deep.equal(['b1', 'b2', 'a1', 'a2', 'a3', 'c1']);
  });

  it('waits only for a failing message of its own author; mail without an author does not wait', async () => {
    await start();
    await route({ order: 'sender' });
    const failing = new Map<string | undefined, How>([
      ['a1', { status: 500 }],
      ['b1', 'reset'],
    ]);
    answer(([subject]) => failing.get(subject) ?? ok);
    const bob = 'bob@example.org';
    await send({ subject: 'a1' }, { subject: 'b1', from: bob }, { subject: 'a2' }, { subject: 'b2', from: bob });
    await send(...['1', '2', '3'].map((subject) => ({ subject, from: '', sender: '' })), { subject: 'a3' });
    await arrived(3);
    expect(passed).to.have.members(['1', '2', '3']);
    failing.clear();
    for (const { id, next_attempt_at: next } of await deliveries())
      if (next !== null) await running.api('/inbound/retry', { id });
    await arrived(8);
    expect([passed.filter((one) => one.startsWith('a')), passed.filter((one) => one.startsWith('b'))]).to.deep.equal([
      ['a1', 'a2', 'a3'],
      ['b1', 'b2'],
    ]);
  });

  it('is posted one by one for each conversation, with any author', async () => {
    await start();
    await route({ order: 'thread' });
    let fails = true;
    answer(([subject]) => (fails && subject === 'one' ? { status: 500 } : ok));
    await send(
      { subject: 'one', more: 'Message-ID: <root@x.test>\r\n' },
      { subject: 'answer', from: 'bob@example.org', more: 'In-Reply-To: <root@x.test>\r\nMessage-ID: <2@x.test>\r\n' },
      { subject: 'other', more: 'Message-ID: <other@x.test>\r\n' },
      {
        subject: 'third',
        more: 'References: <root@x.test>\r\n <2@x.test>\r\nIn-Reply-To: <2@x.test>\r\n',
        // Large enough for a file of its own.
        text: 'x'.repeat(70).concat('\r\n').repeat(6000),
      },
    );
    await arrived(1);
    const [first, waiting] = await deliveries();
    expect((await info(waiting.id)).waits.text).to.equal('Waits behind an earlier message of the same conversation');
    fails = false;
    await running.api('/inbound/retry', { id: first.id });
    await arrived(4);
    expect(passed).to.deep.equal(['other', 'one', 'answer', 'third']);
  });

  it('has one message of an author in a shared POST, and keeps its order when that fails', async () => {
    await start({ POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1' });
    await route({ order: 'sender', batch_events: 10 });
    let release = (): void => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    let failed = 0;
    answer(async (subjects) => {
      if (subjects.includes('first')) await released;
      return subjects.length > 1 && failed++ === 0 ? { status: 500 } : ok;
    });
    await send({ subject: 'first', from: 'zoe@example.org' });
    await until('the first post', () => postsOf(hook.requests).length === 1);
    const authors = ['a', 'b', 'c'];
    for (const n of [1, 2, 3])
      await send(...authors.map((who) => ({ subject: `${who}${n}`, from: `${who}@example.org` })));
    release();
    await arrived(10);
    for (const who of authors)
      expect(passed.filter((one) => one.startsWith(who))).to.deep.equal([`${who}1`, `${who}2`, `${who}3`]);
    for (const post of postsOf(hook.requests)) {
      const people = subjectsOf(post).map((subject) => subject[0]);
      expect(new Set(people).size).to.equal(people.length);
    }
  });

  it('is pulled one by one: the next one after an ack, or when the lease expires', async () => {
    await start();
    await route({ order: 'sender', url: 'pull:' });
    const pull = async (params: object = {}): Promise<any[]> => running.api('/inbound/pull', params);
    const subjects = (mails: any[]) =>
      mails.map(
        ({ body }) =>
          JSON.parse(new URLSearchParams(Buffer.from(body, 'base64').toString()).get('mandrill_events') ?? '[]')[0].msg
            .subject,
      );
    await send({ subject: 'a1' }, { subject: 'a2' }, { subject: 'b1', from: 'bob@example.org' }, { subject: 'a3' });
    const some = await pull({ lease: 3600 });
    expect(subjects(some)).to.deep.equal(['a1', 'b1']);
    expect(subjects(await pull())).to.deep.equal([]);
    const next = pull({ wait: 30 });
    await running.api('/inbound/ack', { lease: some[0].lease });
    const second = await next;
    expect(subjects(second), 'who waits is told').to.deep.equal(['a2']);
    await running.api('/inbound/nack', { lease: second[0].lease, delay: 0 });
    expect(subjects(await pull({ lease: 10 })), 'it is still its turn').to.deep.equal(['a2']);
  });

  it('continues without a message that keeps failing, after delivery.order_hold_minutes', async () => {
    await start({ POSTERN_DELIVERY__ORDER_HOLD_MINUTES: '1' }, { clock: createFastClock(10) });
    await route({ order: 'sender' });
    answer(([subject]) => (subject === 'a1' ? { status: 500 } : ok));
    await send({ subject: 'a1' }, { subject: 'a2' }, { subject: 'a3' });
    await arrived(2);
    expect(passed).to.deep.equal(['a2', 'a3']);
    expect(postsOf(hook.requests).filter((post) => subjectsOf(post)[0] === 'a1').length).to.be.at.least(3);
    const [first] = await deliveries();
    expect(first.state).to.equal('waiting');
  });

  it('is ordered at each URL of its route separately, and per route; several recipients are ordered too', async () => {
    await start();
    const other = await startReceiver();
    try {
      await route({ order: 'sender', also: [{ url: other.url }] });
      const events = (): string[] =>
        postsOf(other.requests)
          .flatMap(eventsOf)
          .map(({ msg }) => msg.subject);
      answer((_, attempt) => (attempt === 1 ? { status: 500 } : ok));
      await send({ subject: 'a1', to: ['one@in.test', 'two@in.test'] }, { subject: 'a2' });
      await until('the other URL', () => events().length === 3);
      expect(events()).to.deep.equal(['a1', 'a1', 'a2']);
      await arrived(3);
      expect(passed).to.deep.equal(['a1', 'a1', 'a2']);
    } finally {
      await other.stop();
    }
  });

  it('is set by the API and the command line, and applies to mail accepted afterwards', async () => {
    await start();
    const { id, order } = await route({});
    expect(order).to.equal('none');
    expect(await running.api('/inbound/update-route', { id, order: 'thread' })).to.include({ order: 'thread' });
    expect(await running.api('/inbound/update-route', { id, pattern: 'a*' })).to.include({ order: 'thread' });
    const bad = await running.ask('/inbound/update-route', { id, order: 'size' });
    expect(bad.status).to.equal(422);
    const env = { POSTERN_DATA_DIR: running.dir };
    const added = await postern(['route', 'add', 'in.test', 'b*', hook.url, '--order', 'sender', '--json'], env);
    expect(added.json()[0]).to.include({ order: 'sender' });
    const listed = (await postern(['route', 'list', '--json'], env)).json();
    expect(listed.map((row: any) => row.order)).to.deep.equal(['thread', 'sender']);
  });
});
