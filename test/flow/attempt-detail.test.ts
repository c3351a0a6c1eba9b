import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const PASSWORD = 'relay-hunter22';
const HOSTILE = 'evil\u001b[31m\u202etext';

/** Every byte of the queue, with what its log holds. */
async function queueBytes(dir: string): Promise<string> {
  const files = (await readdir(join(dir, 'spool'))).filter((name) => name.startsWith('spool.db'));
  return Buffer.concat(await Promise.all(files.map((name) => readFile(join(dir, 'spool', name))))).toString('latin1');
}

describe('details of an attempt, through the whole daemon', function () {
  this.timeout(60_000);
  let hook: Receiver;
  let relay: MailSink;
  let zone: Zone;
  let running: TestDaemon;
  let env: Record<string, string>;
  let route: { readonly id: string };
  before(async () => {
    hook = await startReceiver();
    zone = await startZone({ 'relay.test': { A: ['127.0.0.1'] } });
    relay = await startMailSink();
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__RELAY: `smtp://relay-user:${PASSWORD}@relay.test:${relay.port}`,
      POSTERN_WEBHOOKS__BATCH_WAIT_MS: '20',
    });
    env = { POSTERN_DATA_DIR: running.dir };
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    route = await running.api('/inbound/add-route', {
      domain: 'in.test',
      pattern: '*',
      url: `${hook.url}?token=t0ken`,
    });
  });
  after(async () => {
    await running.stop();
    await Promise.all([hook.stop(), relay.stop(), zone.stop()]);
  });

  const show = async (id: string, ...options: string[]): Promise<string> =>
    (await postern(['queue', 'show', id, ...options], env)).out;

  /** Has a message to the box attempted so often; answers its record. */
  async function attempted(box: string, times: number): Promise<any> {
    const known = (await running.api('/inbound/deliveries')).map(({ id }: any) => id);
    await sendMail(running.smtp, { from: 'ada@example.org', to: `${box}@in.test` }, message(box));
    return await until('the attempts', async () => {
      const [found] = (await running.api('/inbound/deliveries')).filter(({ id }: any) => !known.includes(id));
      if (found && found.attempts.length < times) await postern(['queue', 'retry', found.id], env);
      return found?.attempts.length >= times && found;
    });
  }

  it('are in the record of the delivery: in full if it failed, short if the first attempt delivered', async () => {
    hook.answerOnce({ status: 503, headers: { 'x-request-id': 'r-1' }, body: 'busy' });
    const { id, attempts } = await attempted('retried', 2);
    const [failed, passed] = attempts;
    expect(failed.detail).to.include({ address: `127.0.0.1:${hook.port}`, tls: null, headers_left_out: 0 });
    const sent = postsOf(hook.requests)[0]?.headers ?? {};
    expect(failed.detail.request_headers.map(({ name }: any) => name.toLowerCase())).to.deep.equal(Object.keys(sent));
    expect(failed.detail.request_headers).to.deep.include({ name: 'webhook-id', value: id });
    expect(failed.detail.response_headers).to.deep.include({ name: 'x-request-id', value: 'r-1' });
    for (const name of ['dns_ms', 'first_byte_ms']) expect(failed.detail[name], name).to.be.a('number');
    expect(passed).to.include({ status: 200 });
    expect(passed.detail.request_headers, 'it had failed before').not.to.deep.equal([]);

    const [first] = (await attempted('first', 1)).attempts;
    expect(first.detail).to.deep.include({
      address: `127.0.0.1:${hook.port}`,
      request_headers: [],
      response_headers: [],
      headers_left_out: 0,
    });
  });

  it('are printed by queue show --verbose, without terminal control characters', async () => {
    hook.answerOnce({
      status: 500,
      headers: {
        'x-note': Buffer.from(HOSTILE, 'utf8')
          .toString('latin1')
          .replace(/[^ -~]/g, '?'),
      },
      body: HOSTILE,
    });
    const { id } = await attempted('shown', 1);
    const out = await show(id, '-v');
    expect(out)
      .to.contain('> webhook-id: ')
      .and.to.match(/> webhook-signature: v1,.{8}…\n/)
      .and.to.match(/< x-note: evil/)
      .and.to.match(/first byte [\d.]+ ms/);
    expect(out).not.to.match(/[\p{Cf}\u001b]/u);
    expect(await show(id)).not.to.contain('webhook-signature');
    const [record] = (await postern(['queue', 'show', id, '--json'], env)).json();
    expect(record.attempts_made[0].detail.address).to.equal(`127.0.0.1:${hook.port}`);
  });

  it('contain no keys of webhooks, no whole signatures and no relay password', async () => {
    // Its first attempt, and not a further one of the mail above.
    const fails = new Set(['secret']);
    hook.answer(({ body }) => ({ status: body.includes('secret') && fails.delete('secret') ? 500 : 200 }));
    const { id } = await attempted('secret', 1);
    await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'Hello', to: [{ email: 'secret@to.test' }] },
    });
    await until('the mail', () => relay.mails.some(({ to }) => to.includes('secret@to.test')));
    const { auth_key: key } = await running.api('/inbound/route-key', { id: route.id });
    const post = postsOf(hook.requests).find(({ headers }) => headers['webhook-id'] === id);
    const signatures = ['x-mandrill-signature', 'webhook-signature'].map((name) => String(post?.headers[name]));
    const [{ attempts }] = await running.api('/inbound/deliveries', { id });
    // The mail is there a moment before the queue has what was said.
    const kept = await until('the dialog with the relay', async () => {
      const bytes = await queueBytes(running.dir);
      return bytes.includes('> AUTH PLAIN') && bytes;
    });
    const shown = [JSON.stringify(attempts), await show(id, '-v')];
    // A text may be split over two pages of the file: what is looked for there stands in more than one row.
    expect(kept, 'it logged in').to.contain('> AUTH PLAIN (credentials)').and.to.contain('webhook-signature');
    for (const text of shown) expect(text).to.contain(signatures[0]?.slice(0, 8));
    for (const text of [kept, ...shown]) {
      for (const secret of [...signatures, key, PASSWORD, Buffer.from(PASSWORD).toString('base64')])
        expect(text.includes(secret), secret).to.equal(false);
    }
  });

  it('show each line of the dialog of outgoing mail, and the server in its events', async () => {
    const [{ _id: id }] = await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'Hello', to: [{ email: 'jo@to.test' }] },
    });
    const [row] = await until('it is sent', async () => {
      const rows = (
        await postern(['queue', 'list', '--state', 'delivered', '--recipient', 'jo@to.test', '--json'], env)
      ).records();
      return rows.length === 1 && rows;
    });
    const out = await show(row.id, '--verbose');
    expect(out)
      .to.match(/relay\.test \(127\.0\.0\.1:\d+\) from 127\.0\.0\.1, TLSv1\.3,( connection reused,)? \d+ ms\n/)
      .and.to.match(/ {2}> RCPT TO:<jo@to\.test>\n/)
      .and.to.match(/ {2}> \(\d+ bytes\)\n {2}< 250 /);
    const info = await until('the event', async () => {
      const found = await running.api('/messages/info', { id });
      return found.smtp_events.length > 0 && found;
    });
    expect(info.smtp_events[0]).to.include({
      type: 'sent',
      source_ip: '127.0.0.1',
      destination_ip: '127.0.0.1',
      destination: 'relay.test',
    });
    const { state, next_attempt_at: next, attempts } = info.delivery;
    expect({ state, next, tries: attempts.length }).to.deep.equal({ state: 'delivered', next: null, tries: 1 });
    expect(attempts[0]).to.include({ status: 250, error: null, connections_left_out: 0 });
    const [connection] = attempts[0].connections;
    expect(connection).to.include({ host: 'relay.test', source_ip: '127.0.0.1', tls: 'TLSv1.3', error: null });
    expect(connection.dialog)
      .to.include('> RCPT TO:<jo@to.test>')
      .and.to.satisfy((lines: string[]) => lines.some((line) => /^> \(\d+ bytes\)$/.test(line)));
    expect(JSON.stringify(info)).not.to.contain(PASSWORD);
  });

  it('are in the record of a batch of events too', async () => {
    const { id } = await running.api('/webhooks/add', { url: `${hook.url}/events`, events: ['send'] });
    hook.answer((request) => ({
      status: request.url.includes('/events') && postsOf([request]).length > 0 ? 500 : 200,
    }));
    await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'Hello', to: [{ email: 'batch@to.test' }] },
    });
    const [batch] = await until('its attempt', async () => {
      const found = await running.api('/webhooks/deliveries', { id });
      return found[0]?.attempts.length > 0 && found;
    });
    hook.answer({ status: 200 });
    expect(batch.attempts[0].detail.request_headers).to.deep.include({ name: 'webhook-id', value: batch.id });
  });
});
