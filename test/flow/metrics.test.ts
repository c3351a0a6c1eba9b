import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { expect } from 'chai';
import { DECLARED } from '../../src/base/metric-list.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, openSession, sendMail } from '../support/mail.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { createClient, openData } from '../support/smtp.ts';
import { plain } from '../support/submission.ts';
import { PATIENCE, until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const fixture = (name: string) => new URL(`../fixtures/tls/${name}.pem`, import.meta.url).pathname;

describe('the metrics of the daemon', function () {
  this.timeout(60_000);
  let zone: Zone;
  let server: MailServer;
  let receiver: Receiver;
  let postern: TestDaemon;
  before(async () => {
    zone = await startZone({
      'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
    });
    server = await startMailServer();
    receiver = await startReceiver();
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
      POSTERN_SMTP__TLS__KEY: fixture('first.key'),
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_WEBHOOKS__BATCH_WAIT_MS: '20',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: 'box*', url: receiver.url });
  });
  after(async () => {
    await postern.stop();
    await Promise.all([zone.stop(), receiver.stop(), server.stop()]);
  });

  const mail = (to: string, text = 'Hello.') =>
    sendMail(postern.smtp, { from: 'ada@sender.test', to }, message('numbers', text));
  const settled = (count: number) =>
    until(
      `${count} settled deliveries`,
      () =>
        postern.log.lines.filter(({ event }) => /^delivery\.(delivered|deferred|failed)$/.test(event)).length >= count,
    );

  it('show every declared metric, even before anything was counted', async () => {
    const { names } = await scrape(postern.base);
    expect(names).to.include.members(DECLARED.map(([name]) => name));
  });

  it('show errors of every kind as 0, so that alerts see the first increase', async () => {
    const { text } = await scrape(postern.base);
    for (const event of ['spool.fault', 'daemon.fault', 'smtp.fault', 'api.fault', 'delivery.fault', 'task.fault'])
      expect(text).to.contain(`\npostern_log_lines_total{level="error",event="${event}"} 0\n`);
  });

  it('count sessions, messages, their bytes and refusals as they happen', async () => {
    const before = await scrape(postern.base);
    for (let i = 0; i < 3; i++) expect(await mail('box@in.test')).to.match(/^250 /);
    for (let i = 0; i < 2; i++) expect(await mail('nobody@in.test')).to.match(/^550 5\.1\.1/);
    expect(await mail('box@elsewhere.test')).to.match(/^550 5\.7\.1/);
    await settled(3);
    await until(
      'the sessions to end',
      async () => (await scrape(postern.base)).of('postern_smtp_sessions_active{listener="smtp"}') === 0,
    );
    const after = await until('all to be counted', async () => {
      const found = await scrape(postern.base);
      return found.of('postern_spool_deliveries{state="delivered"}') === 3 && found;
    });
    const more = (series: string) => after.of(series) - before.of(series);
    expect(more('postern_smtp_sessions_total{listener="smtp"}')).to.equal(6);
    expect(more('postern_messages_accepted_total{source="smtp"}')).to.equal(3);
    expect(more('postern_message_bytes_count{direction="inbound"}')).to.equal(3);
    expect(more('postern_message_bytes_sum{direction="inbound"}')).to.equal(3 * message('numbers').length);
    expect(more('postern_message_bytes_bucket{direction="inbound",le="1024"}')).to.equal(3);
    expect(more('postern_smtp_refusals_total{listener="smtp",code="550",reason="no_mailbox"}')).to.equal(2);
    expect(more('postern_smtp_refusals_total{listener="smtp",code="550",reason="no_relay"}')).to.equal(1);
    expect(after.sum('postern_smtp_refusals_total') - before.sum('postern_smtp_refusals_total')).to.equal(3);
    expect(more('postern_attempts_total{class="inbound",outcome="delivered",code="2xx"}')).to.equal(3);
    expect(more('postern_attempt_seconds_count{class="inbound"}')).to.equal(3);
    expect(more('postern_authentication_results_total{method="spf",result="pass"}')).to.equal(3);
    expect(more('postern_authentication_results_total{method="dkim",result="none"}')).to.equal(3);
    expect(more('postern_message_parse_seconds_count'), 'counted in the render threads').to.equal(3);
    expect(more('postern_spool_commit_messages_sum')).to.equal(3);
    expect(more('postern_spool_commit_writes_sum')).to.be.at.least(6);
  });

  it('count the queries sent to name servers', async () => {
    const { sum, of } = await scrape(postern.base);
    expect(sum('postern_dns_questions_total'))
      .to.equal(zone.questions.filter(({ type }) => !type.startsWith('TCP')).length)
      .and.to.be.greaterThan(0);
    expect(of('postern_dns_seconds_count')).to.equal(sum('postern_dns_questions_total'));
  });

  it('count attempts by their answers, and show waiting mail by age', async () => {
    const before = await scrape(postern.base);
    receiver.answerOnce({ status: 500 }, { status: 404 }, { redirect: 'http://127.0.0.1:9/' });
    for (let i = 0; i < 3; i++) await mail('box@in.test');
    await settled(6);
    const after = await scrape(postern.base);
    for (const code of ['5xx', '4xx', '3xx']) {
      const series = `postern_attempts_total{class="inbound",outcome="deferred",code="${code}"}`;
      expect(after.of(series) - before.of(series), code).to.equal(1);
    }
    expect(after.of('postern_spool_waiting{endpoint="webhook"}')).to.equal(3);
    expect(after.of('postern_spool_deliveries{state="waiting"}')).to.equal(3);
    expect(after.of('postern_spool_oldest_waiting_seconds')).to.be.within(0.001, 60);
    expect(after.sum('postern_endpoints', { endpoint: 'webhook' })).to.equal(1);
    expect(after.sum('postern_log_lines_total', { event: 'delivery.deferred' })).to.equal(3);
  });

  it('count encrypted sessions by TLS version, and show when the certificate expires', async () => {
    const client = createClient(connect(postern.smtp.port, postern.smtp.host));
    await client.reply();
    await client.say('EHLO client.test');
    await client.say('STARTTLS');
    const version = (await client.secure()).getProtocol();
    const { of } = await scrape(postern.base);
    expect(of(`postern_smtp_tls_sessions_total{listener="smtp",version="${version}"}`)).to.equal(1);
    expect(of('postern_smtp_sessions_active{listener="smtp"}')).to.equal(1);
    expect(of('postern_tls_certificate_not_after_timestamp_seconds{listener="smtp"}')).to.equal(
      Date.parse(new X509Certificate(readFileSync(fixture('first.cert'))).validTo) / 1000,
    );
    client.destroy();
  });

  it('count mail that accounts send, from submission to result', async () => {
    const to = ['jo@to.test', 'gone@to.test', 'no address at all'].map((email) => ({ email }));
    await postern.api('/messages/send', {
      message: { from_email: 'news@sender.test', subject: 'Numbers', text: 'Hello', to },
    });
    const after = await until('both to be settled', async () => {
      const found = await scrape(postern.base);
      return (
        found.of('postern_dead_letters_total{class="outbound"}') === 1 &&
        found.of('postern_spool_deliveries{state="dead"}') === 1 &&
        found.of('postern_spool_waiting{endpoint="outbound"}') === 0 &&
        found
      );
    });
    expect(after.of('postern_submissions_total{source="api"}')).to.equal(1);
    expect(after.of('postern_submission_recipients_total{status="queued"}')).to.equal(2);
    expect(after.of('postern_submission_recipients_total{status="invalid"}')).to.equal(1);
    expect(after.of('postern_sending_results_total{result="send"}')).to.equal(1);
    expect(after.of('postern_sending_results_total{result="hard_bounce"}')).to.equal(1);
    expect(after.of('postern_attempts_total{class="outbound",outcome="failed",code="5xx"}')).to.equal(1);
    expect(after.of('postern_dead_letters_total{class="outbound"}')).to.equal(1);
  });

  it('count logins, submissions, and batches of events', async () => {
    await postern.api('/webhooks/add', { url: receiver.url, events: ['send'] });
    const before = await scrape(postern.base);
    const listener = postern.submission[0];
    const client = createClient(connect(listener?.port ?? 0, listener?.host));
    await client.reply();
    await client.say('EHLO client.test');
    await client.say('STARTTLS');
    await client.secure();
    await client.say('EHLO client.test');
    expect(await client.say(`AUTH PLAIN ${plain('not-a-key-of-anybody')}`)).to.match(/^535 /);
    expect(await client.say(`AUTH PLAIN ${plain(postern.key)}`)).to.match(/^235 /);
    await openData(client, 'news@sender.test', 'jo@to.test');
    client.send('From: news@sender.test\r\nSubject: Numbers\r\n\r\nHello\r\n.\r\n');
    expect(await client.reply()).to.match(/^250 /);
    client.destroy();
    const after = await until('the batch', async () => {
      const found = await scrape(postern.base);
      return found.of('postern_attempts_total{class="events",outcome="delivered",code="2xx"}') > 0 && found;
    });
    const more = (series: string) => after.of(series) - before.of(series);
    expect(more('postern_smtp_logins_total{result="ok"}')).to.equal(1);
    expect(more('postern_smtp_logins_total{result="wrong"}')).to.equal(1);
    expect(more('postern_smtp_sessions_total{listener="submission"}')).to.equal(1);
    expect(more('postern_smtp_refusals_total{listener="submission",code="535",reason="wrong_key"}')).to.equal(1);
    expect(more('postern_submissions_total{source="smtp"}')).to.equal(1);
    expect(more('postern_message_bytes_count{direction="outbound"}')).to.equal(1);
    expect(after.of('postern_attempts_total{class="events",outcome="delivered",code="2xx"}')).to.equal(1);
  });

  it('count API calls by operation and status, and time the store', async () => {
    const before = await scrape(postern.base);
    await postern.ask('/users/ping2');
    await postern.ask('/users/ping2', { key: 'no-such-key-of-anybody' });
    await postern.ask('/inbound/add-domain', {});
    const after = await scrape(postern.base);
    const more = (series: string) => after.of(series) - before.of(series);
    expect(more('postern_api_calls_total{operation="/users/ping2",status="200"}')).to.equal(1);
    expect(more('postern_api_calls_total{operation="/users/ping2",status="401"}')).to.equal(1);
    expect(more('postern_api_calls_total{operation="/inbound/add-domain",status="422"}')).to.equal(1);
    expect(more('postern_api_call_seconds_count{group="users"}')).to.equal(2);
    expect(after.of('postern_store_operation_seconds_count{operation="one"}')).to.be.greaterThan(
      before.of('postern_store_operation_seconds_count{operation="one"}'),
    );
    expect(after.of('postern_store_away')).to.equal(0);
  });

  it('add no series for any input of a client', async () => {
    await Promise.all([hostileSession(postern, 1), fetchAll(postern, 1)]);
    const before = await scrape(postern.base);
    for (let i = 0; i < 10; i++) await hostileSession(postern, 99);
    await fetchAll(postern, 1000);
    const after = await scrape(postern.base);
    expect(
      after.of('postern_smtp_sessions_total{listener="smtp"}') -
        before.of('postern_smtp_sessions_total{listener="smtp"}'),
    ).to.equal(10);
    expect(
      after.of('postern_api_calls_total{operation="unknown",status="404"}') -
        before.of('postern_api_calls_total{operation="unknown",status="404"}'),
    ).to.equal(1000);
    // A task may have run meanwhile.
    expect(
      after.series.filter((one) => !before.series.includes(one) && !one.startsWith('postern_task_')),
    ).to.deep.equal([]);
    expect(after.text).not.to.match(/evil/);
  });
});

let hostile = 0;
const NOT_FOUND = 'HTTP/1.1 404';

/** As many different HELOs and MAIL FROMs in one session. */
async function hostileSession({ smtp }: TestDaemon, count: number): Promise<void> {
  const session = await openSession(smtp);
  for (let i = 0; i < count; i++) await session.say(`EHLO evil-${++hostile}.test`);
  await session.say(`MAIL FROM:<evil-${hostile}@evil.test> EVIL=${hostile}`);
  session.close();
}

/** As many different operations and paths, over one connection and without waiting for each answer. */
async function fetchAll({ base }: TestDaemon, count: number): Promise<void> {
  const { hostname, port } = new URL(base);
  const socket = connect(Number(port), hostname);
  let answers = 0;
  let rest = ''; // a status line may fall on the border of two chunks
  socket.on('data', (chunk) => {
    const parts = (rest + chunk.toString('latin1')).split(NOT_FOUND);
    answers += parts.length - 1;
    rest = parts.at(-1)?.slice(1 - NOT_FOUND.length) ?? '';
  });
  for (let i = 0; i < count; i++) {
    const path = i % 2 === 0 ? `/api/1.0/evil-${i}/evil.json` : `/evil-${i}?evil=${i}`;
    if (!socket.write(`POST ${path} HTTP/1.1\r\nHost: evil-${i}.test\r\nContent-Length: 2\r\n\r\n{}`))
      await new Promise<void>((resolve) => socket.once('drain', () => resolve()));
  }
  await until('the answers', () => answers === count, 30_000 * PATIENCE);
  socket.destroy();
}
