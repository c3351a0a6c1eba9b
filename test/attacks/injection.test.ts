import { expect } from 'chai';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { createLog } from '../../src/base/log.ts';
import { createPrometheus } from '../../src/base/prometheus.ts';
import { type Daemon, openDaemon } from '../../src/daemon.ts';
import { toToken } from '../../src/mail/addresses/return-address.ts';
import { ACCOUNT, startApi } from '../support/api.ts';
import { figures } from '../support/attacks/figures.ts';
import { faultsOfCsv, faultsOfLogLine, faultsOfMail, tagsOf } from '../support/attacks/outlets.ts';
import { paramsWith, positionsOf } from '../support/attacks/positions.ts';
import { SMALL } from '../support/attacks/sizes.ts';
import { createCaller, KEY, testSettings } from '../support/daemon.ts';
import { readArchive, readCsv } from '../support/exports.ts';
import { sendMail } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { messageRow } from '../support/messages.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { localLink } from '../support/sent-mail.ts';
import { tempDir } from '../support/temp.ts';
import { TOKEN_SECRET } from '../support/tracking.ts';
import { until } from '../support/until.ts';

// Text of others in everything that leaves: headers of mail and of posts, cells of tables, lines of the log, pages.

const LINES = [
  'a\r\nX-Injected: 1',
  'a\nX-Injected: 1',
  'a\rX-Injected: 1',
  'a\r\n\r\nINJECTED',
  'a\u0085X-Injected: 1',
  'a\u2028X-Injected: 1',
  '=?utf-8?Q?a=0D=0AX-Injected:_1?=',
  'a%0d%0aX-Injected: 1',
  'a\\r\\nX-Injected: 1',
  'a\u0000\r\nX-Injected: 1',
  '\r\n',
  '\r\n.\r\nMAIL FROM:<a@b.test>',
  `${'x'.repeat(500)}\r\nX-Injected: 1`,
];
const FORMULAS = [
  '=1+1',
  '+1',
  '-1',
  '@SUM(A1)',
  '\t=1',
  '\n=1',
  '\uff1d1',
  '"=1"',
  "=cmd|' /C calc'!A0",
  ',=1',
  '\r=1',
];
const MARKUP = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onload='alert(1)",
  '</title><b>',
  '<!--',
  '&lt;b&gt;',
  '\u202e\u2066a',
];
const ALL = [...LINES, ...FORMULAS, ...MARKUP];
const FEW = [...LINES.slice(0, 6), '=1+1', '\t=1', '<script>alert(1)</script>', '\u202e\u2066a'];
const PAYLOADS = SMALL ? FEW : ALL;
const [SUBJECT, BODY] = ['SUBJECT-THAT-NOBODY-LOGS', 'BODY-THAT-NOBODY-LOGS'];

describe('hostile text in output', () => {
  let [daemon, sink, hook]: [Daemon?, MailSink?, Receiver?] = [];
  let caller: ReturnType<typeof createCaller>;
  let base = '';
  let smtp = { host: '', port: 0 };
  const written: string[] = [];
  const sunk = () => sink?.mails ?? [];

  before(async () => {
    [sink, hook] = [await startMailSink(), await startReceiver()];
    const settings = testSettings(await tempDir(), {
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
      POSTERN_OUTBOUND__QUOTA: 'false',
      POSTERN_OUTBOUND__TLS: 'off',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1',
      POSTERN_EXPORTS__METADATA_FIELDS: 'entry',
      POSTERN_EXPORTS__FORMULAS: 'escape',
      POSTERN_PUBLIC_URL: 'https://postern.test',
      POSTERN_MAIL__RELAY: `smtp://127.0.0.1:${sink.port}`,
    });
    const log = createLog('debug', (line) => {
      written.push(line);
    });
    daemon = await openDaemon(settings, {
      role: 'daemon',
      log,
      clock: systemClock,
      ids: createIds(systemClock),
      shown: [],
      metrics: createPrometheus({ clock: systemClock }, { ofProcess: false }),
    });
    const {
      http,
      smtp: [address],
    } = await daemon.start();
    base = `http://${http.host}:${http.port}`;
    smtp = { host: address?.host ?? '', port: address?.port ?? 0 };
    caller = createCaller(base, KEY);
    await caller.api('/inbound/add-domain', { domain: 'in.test' });
    await caller.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  });
  after(async () => {
    await daemon?.stop();
    await Promise.all([hook?.stop(), sink?.stop()]);
  });

  const BASE = {
    from_email: 'ann@sender.test',
    from_name: 'Ann',
    subject: SUBJECT,
    text: BODY,
    html: `<p>${BODY}</p>`,
    to: [{ email: 'reader@to.test', name: 'Reader' }],
  };
  const queued = (body: unknown): number =>
    Array.isArray(body) ? body.filter(({ status }: { status: string }) => status === 'queued').length : 0;

  it('ends no header line of a mail early, in any text of any sending operation', async () => {
    let [asked, refused, expected] = [0, 0, 0];
    const before = sunk().length;
    for (const each of OPERATIONS.filter(({ path }) => path === '/messages/send')) {
      const positions = positionsOf(each).filter(
        ({ types, name }) => types.has('string') && name.startsWith('message.') && !/attachments|images/.test(name),
      );
      const files = positionsOf(each).filter(({ name }) => /(?:attachments|images)\[\]\.(?:name|type)$/.test(name));
      const calls = [...positions, ...files].flatMap((position) => PAYLOADS.map((payload) => ({ position, payload })));
      await inTurns(calls, async ({ position, payload }) => {
        const { message } = paramsWith(
          { ...each, example: { ...each.example, params: { message: BASE } } },
          position,
          payload,
        );
        const { status, body } = await caller.ask(each.path, { message });
        asked++;
        if (status === 200) expected += queued(body);
        else refused++;
        expect(status, `${position.name} ${JSON.stringify(payload)} ${JSON.stringify(body)}`).to.be.oneOf([
          200, 404, 422,
        ]);
      });
    }
    for (const payload of PAYLOADS) {
      // Merged into subject, name and address; out of a template; and in a document that came ready.
      const vars = { merge: true, global_merge_vars: [{ name: 'x', content: payload }] };
      expected += queued(
        (
          await caller.ask('/messages/send', {
            message: {
              ...BASE,
              ...vars,
              subject: `${SUBJECT} *|X|*`,
              from_name: '*|X|*',
              headers: { 'Reply-To': '*|X|*', 'X-Own': '*|X|*' },
              to: [{ email: 'reader@to.test', name: '*|X|*' }],
            },
          })
        ).body,
      );
      const name = `t${asked++}`;
      if (
        (
          await caller.ask('/templates/add', {
            name,
            subject: `${SUBJECT} ${payload}`,
            from_name: payload,
            from_email: 'ann@sender.test',
            code: `<p>${BODY}</p>`,
            labels: [],
          })
        ).status === 200
      ) {
        expected += queued(
          (
            await caller.ask('/messages/send-template', {
              template_name: name,
              template_content: [],
              message: { to: BASE.to },
            })
          ).body,
        );
      }
      for (const params of [{ from_name: payload }, { from_email: payload }, { to: [payload] }])
        expected += queued(
          (
            await caller.ask('/messages/send-raw', {
              raw_message: `From: ann@sender.test\r\nTo: reader@to.test\r\nSubject: ${SUBJECT}\r\n\r\n${BODY}\r\n`,
              to: ['reader@to.test'],
              ...params,
            })
          ).body,
        );
    }
    await until('every mail', () => sunk().length - before >= expected, 60_000);
    const mails = sunk().slice(before);
    const faults = mails.flatMap(({ raw }) =>
      faultsOfMail(raw).map((fault) => `${fault}: ${JSON.stringify(raw.slice(0, 600))}`),
    );
    const strangers = mails.flatMap(({ to }) => to).filter((address) => /[\r\n]|b\.test$|d\.example/.test(address));
    figures(19, {
      'texts for mail': asked,
      refused,
      'mails that left': mails.length,
      'header fields injected': faults.length,
    });
    expect(faults.slice(0, 5)).to.deep.equal([]);
    expect(strangers).to.deep.equal([]);
    expect(mails.length).to.be.above(100);
  });

  it('is never a formula in an export that escapes them, except for addresses', async () => {
    let [added, cells] = [0, 0];
    await inTurns(
      ALL.map((payload, n) => ({ payload, n })),
      async ({ payload, n }) => {
        for (const [path, params] of [
          ['/rejects/add', { email: `r${n}@to.test`, comment: payload }],
          ['/whitelists/add', { email: `w${n}@to.test`, comment: payload }],
          ['/rejects/add', { email: `${payload}@to.test` }],
          ['/whitelists/add', { email: `"${payload}"@to.test` }],
          [
            '/messages/send',
            { message: { ...BASE, subject: payload, tags: [payload.slice(0, 50)], metadata: { entry: payload } } },
          ],
        ] as const)
          if ((await caller.ask(path, params)).status === 200) added++;
      },
    );
    const faults: string[] = [];
    const tables: Record<string, number> = {};
    for (const type of ['rejects', 'whitelist', 'activity']) {
      const { id } = await caller.api(`/exports/${type}`);
      const { result_url: url } = await until(
        `the export of ${type}`,
        async () => {
          const job = await caller.api('/exports/info', { id });
          return job.state === 'complete' && job;
        },
        60_000,
      );
      const [entry] = readArchive(Buffer.from(await (await fetch(localLink(base, url))).arrayBuffer()));
      const lines = readCsv(entry?.text ?? '');
      tables[type] = lines.length - 1;
      cells += lines.flat().length;
      faults.push(...faultsOfCsv(lines).map((fault) => `${type}: ${fault}`));
    }
    figures(19, {
      'rows with formulas': added,
      'lines exported': Object.values(tables).reduce((sum, count) => sum + count, 0),
      cells,
      'formulas left': faults.length,
    });
    expect(faults).to.deep.equal([]);
    expect(tables['rejects']).to.be.at.least(ALL.length - 2);
  });

  it('adds no header to a post, and is rejected in a URL with a line end', async () => {
    const known = new Set<string>();
    const hook_ = hook ?? (await startReceiver());
    await sendMail(
      smtp,
      { from: 'a@out.test', to: 'plain@in.test' },
      'From: a@out.test\r\nSubject: plain\r\n\r\nx\r\n',
    );
    await until('a post', () => hook_.requests.some(({ method, body }) => method === 'POST' && body.length > 100));
    for (const { headers } of hook_.requests) for (const name of Object.keys(headers)) known.add(name);
    known.add('authorization');
    const from = hook_.requests.length;
    for (const payload of ALL) {
      for (const text of [payload, encodeURIComponent(payload)]) {
        for (const url of [
          `http://${text}:x@127.0.0.1:${hook_.port}/`,
          `http://u:${text}@127.0.0.1:${hook_.port}/`,
          `http://127.0.0.1:${hook_.port}/${text}`,
          `http://127.0.0.1:${hook_.port}/?q=${text}`,
        ]) {
          const { status } = await caller.ask('/webhooks/add', { url, description: payload });
          if (/[\r\n\0]/.test(url)) expect(status, url).to.equal(422);
        }
      }
      await sendMail(
        smtp,
        { from: 'a@out.test', to: 'b@in.test' },
        `From: "${payload.replace(/[\r\n\0]+/g, '\r\n ')}" <a@out.test>\r\nMessage-ID: <${payload.replace(/[\r\n\0]/g, '')}@x>\r\nSubject: ${payload.replace(/[\r\n\0]+/g, '\r\n ')}\r\nX-Mandrill-Signature: forged\r\nwebhook-id: forged\r\n\r\nx\r\n`,
      );
    }
    const posts = hook_.requests.slice(from);
    const strange = posts.flatMap(({ headers }) => Object.keys(headers).filter((name) => !known.has(name)));
    figures(19, { 'requests to webhooks': posts.length, 'headers injected': strange.length });
    expect(strange).to.deep.equal([]);
    expect(posts.filter(({ headers }) => JSON.stringify(headers).includes('forged'))).to.deep.equal([]);
    expect(posts.length).to.be.above(ALL.length);
  });

  it('adds no tag to a page and no header to an answer', async () => {
    const world = await startApi();
    const pages: string[] = [];
    let asked = 0;
    // No address like these is mailed; a row from elsewhere may hold one.
    for (const [n, text] of ['plain', ...ALL].entries()) {
      const id = n.toString(16).padStart(32, '0');
      await world.store.messages.insert(
        messageRow(ACCOUNT, id, { email: `${text}@to.test`, sender: `${text}@sender.test` }),
      );
      for (const method of ['GET', 'POST']) {
        const response = await fetch(`${world.base}/unsubscribe/${toToken(TOKEN_SECRET, 'unsub', 1, id)}`, { method });
        expect(response.status, text).to.equal(200);
        pages.push(`${method} ${tagsOf(await response.text())}`);
      }
    }
    await world.stop();
    expect(pages).to.have.length(2 * ALL.length + 2);
    expect(new Set(pages)).to.have.property('size', 2);
    for (const payload of ALL)
      for (const path of [
        '/verify/',
        '/unsubscribe/',
        '/exports/',
        '/track/open/',
        '/track/click/',
        '/track/click/x?u=',
        '/docs/',
        '/api/1.0/users/',
        '/',
      ]) {
        const response = await fetch(`${base}${path}${encodeURIComponent(payload)}`, { redirect: 'manual' });
        const text = await response.text();
        asked++;
        expect(response.headers.has('x-injected'), payload).to.equal(false);
        expect(response.status, `${path} ${payload}`).to.be.below(500);
        if (/[<>]/.test(payload))
          expect(
            response.headers.get('content-type')?.startsWith('text/html') === true && text.includes(payload),
            `${path} ${payload}`,
          ).to.equal(false);
      }
    for (const payload of ALL)
      for (const params of [
        { domain: payload, mailbox: 'postmaster' },
        { domain: `${payload}.example.com`, mailbox: 'postmaster' },
        { domain: 'example.com', mailbox: payload },
      ]) {
        if (/^[\w.-]+$/.test(payload)) continue;
        const { status } = await caller.ask('/senders/verify-domain', params);
        if (/[\r\n\0<>]/.test(payload)) expect(status, JSON.stringify(params)).to.equal(422);
      }
    figures(19, { 'pages looked at': asked + pages.length, 'tags injected': new Set(pages).size - 2 });
  });

  it('ends no log line; keys, subjects and bodies are not logged', async () => {
    await fetch(`${base}/api/1.0/users/${encodeURIComponent('\u202eping\r\n')}.json`, {
      method: 'POST',
      body: JSON.stringify({ key: KEY }),
    });
    const lines = await until('the log', () => written.length > 100 && [...written]);
    const faults = lines.flatMap((line) => faultsOfLogLine(line, [KEY, SUBJECT, BODY]));
    figures(19, { 'lines of the log': lines.length, 'lines injected or telling': faults.length });
    expect(faults.slice(0, 5)).to.deep.equal([]);
  });

  it('is detected without the protection (control)', () => {
    const mail = (subject: string) =>
      `From: a@b.test\r\nTo: c@d.test\r\nSubject: ${subject}\r\nDate: x\r\nMessage-ID: <a@b>\r\n\r\ntext\r\n`;
    expect(faultsOfMail(mail('plain'))).to.deep.equal([]);
    for (const payload of LINES.filter((text) => /[\r\n]/.test(text)))
      expect(faultsOfMail(mail(payload)), payload).to.not.deep.equal([]);
    expect(
      faultsOfCsv([
        ['a', 'b'],
        ['plain', "'=1"],
      ]),
    ).to.deep.equal([]);
    for (const payload of FORMULAS.filter((text) => !/^[",]/.test(text)))
      expect(faultsOfCsv(readCsv(`a\r\n"${payload.replaceAll('"', '""')}"\r\n`)), payload).to.have.length(1);
    expect(faultsOfCsv(readCsv('a\r\n,=1\r\n'))).to.have.length(2);
    expect(faultsOfLogLine('{"event":"x"}\n', [KEY])).to.deep.equal([]);
    for (const payload of ['\u202ea', 'a\nb', '\u0000', '\u2028', KEY, '"'])
      expect(faultsOfLogLine(`{"event":"${payload}"}\n`, [KEY]), payload).to.not.deep.equal([]);
    for (const payload of MARKUP.slice(0, 2)) expect(tagsOf(`<p>${payload}</p>`)).to.not.equal(tagsOf('<p>plain</p>'));
  });
});

/** Some at a time. */
async function inTurns<T>(items: readonly T[], run: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let item = left.pop(); item !== undefined; item = left.pop()) await run(item);
    }),
  );
}
