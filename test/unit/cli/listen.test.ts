import { expect } from 'chai';
import { runCommandLine } from '../../../src/cli/command-line.ts';
import { commands } from '../../../src/cli/commands.ts';
import { subjectOfPost } from '../../../src/cli/listen/forward.ts';
import { postern } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { eventsOf, postsOf } from '../../support/events.ts';
import { message, sendMail } from '../../support/mail.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { until } from '../../support/until.ts';

const TIME = String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`;

/** `postern listen` while it runs. */
function startListening(argv: readonly string[], key: string) {
  const said = { out: '', err: '' };
  let stop = () => {};
  const code = runCommandLine(commands, ['listen', ...argv], {
    env: { POSTERN_KEY: key },
    pid: 1,
    terminals: { in: false, out: false, err: false },
    out: (text) => {
      said.out += String(text);
    },
    err: (text) => {
      said.err += text;
    },
    onSignal(listener) {
      stop = () => listener('stop');
    },
  });
  return {
    said,
    code,
    stop() {
      stop();
      return code;
    },
  };
}

describe('postern listen', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let app: Receiver;
  let route: { id: string };
  const send = async (subject: string) =>
    expect(await sendMail(running.smtp, { from: 'ada@sender.test', to: 'box@in.test' }, message(subject))).to.match(
      /^250/,
    );
  const posts = () => postsOf(app.requests);
  const begin = (...more: string[]) =>
    startListening(['--server', running.base, '--forward-to', `${app.url}?a=1`, ...more], running.key);

  beforeEach(async () => {
    app = await startReceiver();
    running = await startDaemon({ POSTERN_INBOUND__OWNERSHIP: 'first' });
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    route = await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: 'pull:' });
  });
  afterEach(async () => {
    await running.stop();
    await app.stop();
  });
  const states = async () => (await running.api('/inbound/deliveries')).map(({ state }: any) => state);

  it('posts mail with the headers of a POST, prints a line for each, and acknowledges 2xx answers', async () => {
    const listening = begin();
    await send('Hello');
    await until('the ack', async () => (await states())[0] === 'delivered');
    const [post] = posts();
    expect(eventsOf(post as any)[0].msg.subject).to.equal('Hello');
    expect(post?.headers).to.include({ 'content-type': 'application/x-www-form-urlencoded' });
    for (const name of ['x-mandrill-signature', 'webhook-id', 'webhook-timestamp', 'webhook-signature'])
      expect(post?.headers[name], name).to.be.a('string');
    expect(await listening.stop()).to.equal(0);
    expect(listening.said.out).to.match(new RegExp(String.raw`^${TIME}  box@in\.test  "Hello"  200  \d+ ms\n$`));
    expect(listening.said.err).to.contain('Forwarding mail for pull: to');
  });

  it('returns messages without a 2xx answer, or without an answer', async () => {
    app.answer({ status: 500, body: 'no such table' });
    const listening = begin('--jsonl');
    await send('Hello');
    await until('the attempt', async () => (await running.api('/inbound/deliveries'))[0].last_status === 500);
    const [{ attempts, state }] = await running.api('/inbound/deliveries');
    expect([state, attempts[0].answer]).to.deep.equal(['waiting', 'no such table']);
    expect(await listening.stop()).to.equal(0);
    expect(JSON.parse(listening.said.out.split('\n')[0] ?? '')).to.include({
      subject: 'Hello',
      status: 500,
      tapped: false,
    });
  });

  it('continues after the server was unavailable', async () => {
    const { dir, base } = running;
    const listening = begin();
    await until('the greeting', () => listening.said.err.includes('Ctrl-C'));
    await running.stop();
    await until('the complaint', () => listening.said.err.includes('no answer from'));
    running = await startDaemon(
      { POSTERN_INBOUND__OWNERSHIP: 'first', POSTERN_HTTP__LISTEN: base.replace('http://', '') },
      { dir },
    );
    await send('later');
    await until('the ack', async () => (await states())[0] === 'delivered', 30_000);
    expect(await listening.stop()).to.equal(0);
  });

  it('finishes the current message on stop, and returns the rest at once', async () => {
    let answer = () => {};
    const asked = new Promise<void>((resolve) => {
      answer = resolve;
    });
    app.answer(async () => {
      await asked;
      return { status: 200 };
    });
    for (const subject of ['one', 'two', 'three']) await send(subject);
    const listening = begin();
    await until('the first post', () => posts().length === 1);
    const ended = listening.stop();
    answer();
    expect(await ended).to.equal(0);
    expect((await states()).sort()).to.deep.equal(['delivered', 'waiting', 'waiting']);
    expect(await running.api('/inbound/pull')).to.have.length(2);
  });

  it('copies the mail of a live route with --tap, marks each line, and consumes nothing', async () => {
    const live = await startReceiver();
    await running.api('/inbound/update-route', { id: route.id, url: live.url });
    const listening = begin('--route', route.id, '--tap');
    await until('the greeting', () => listening.said.err.includes('Copying'));
    await send('Hello');
    await until('both posts', () => posts().length === 1 && postsOf(live.requests).length === 1);
    expect(posts()[0]?.body.toString()).to.equal(postsOf(live.requests)[0]?.body.toString());
    expect(await listening.stop()).to.equal(0);
    expect(listening.said.out).to.match(
      new RegExp(String.raw`^${TIME}  box@in\.test  "Hello"  200  \d+ ms  \(copy; delivered normally\)\n$`),
    );
    await live.stop();
  });

  it('exits at once with a wrong key, an unknown route, and invalid options', async () => {
    const wrong = startListening(['--server', running.base, '--forward-to', app.url], 'wrong');
    expect(await wrong.code).to.equal(1);
    expect(wrong.said.err).to.equal('postern listen: Invalid API key (see: postern key create)\n');
    expect(await begin('--route', '9.9').code).to.equal(1);
    for (const argv of [
      [],
      ['--forward-to', 'localhost:3000'],
      ['--forward-to', app.url, '--tap'],
      ['--forward-to', app.url, '--queue', 'a', '--route', '1.1'],
    ])
      expect(await startListening(argv, 'k').code, argv.join(' ')).to.equal(64);
    expect((await postern(['listen', '--forward-to', app.url])).err).to.contain('missing API key');
  });

  it('finds the subject in every format that has one', async () => {
    const of = (type: string, body: string) => subjectOfPost(type, Buffer.from(body).toString('base64'));
    const form = (fields: Record<string, string>) => new URLSearchParams(fields).toString();
    const FORM = 'application/x-www-form-urlencoded';
    expect(await of(FORM, form({ mandrill_events: JSON.stringify([{ msg: { subject: 'Hi' } }]) }))).to.equal('Hi');
    expect(await of(FORM, form({ subject: 'Hi' }))).to.equal('Hi');
    expect(await of('application/json', '{"Subject":"Hi"}')).to.equal('Hi');
    expect(await of('application/json', '{"headers":{"subject":"Hi"}}')).to.equal('Hi');
    expect(await of('message/rfc822', 'From: a\r\nSubject: Hi\r\n\r\nSubject: no')).to.equal('Hi');
    expect(await of('message/rfc822', 'Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\r\n in one line\r\n\r\n')).to.equal(
      'Größe in one line',
    );
    expect(await of('message/rfc822', 'From: a\r\n\r\n')).to.equal(null);
    for (const body of ['', '{', '[]', '7', '"x"']) expect(await of('application/json', body)).to.equal(null);
    expect(await of('multipart/form-data; boundary=x', '--x')).to.equal(null);
  });
});
