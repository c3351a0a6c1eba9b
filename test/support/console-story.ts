import { createIds } from '../../src/base/ids.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { createAccount } from '../../src/store/rows/accounts.ts';
import { addPerson } from '../../src/store/rows/people.ts';
import { openStore } from '../../src/store/store.ts';
import { createRunningClock } from './clock.ts';

import { type ConsolePage, openConsolePage } from './console-page.ts';
import { startDaemon, type TestDaemon, testSettings } from './daemon.ts';
import { createTestLog } from './log.ts';
import { openSession } from './mail.ts';
import { startMailSink } from './mail-sink.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import { until } from './until.ts';
import { startZone } from './zone.ts';

// An afternoon of a host, for pictures of the console: mail that was delivered, retried, refused and given up, mail that was
// sent, put off and sent back. The clock is moved, so that the afternoon is short.

const MINUTE = 60_000;
const START = Date.UTC(2026, 4, 12, 13, 20);
/** How long a step of the moved clock may take: a POST is answered within it. */
const MOMENT_MS = 20;

const APP = '127.0.47.11';
const CRM = '127.0.47.12';

export interface Story {
  readonly page: ConsolePage;
  /** URLs of the endpoints. */
  readonly support: string;
  readonly crm: string;
  /** Ids: a mail that was retried and then delivered, one with HTML, one in Arabic, one with a long subject. */
  readonly retried: string;
  readonly html: string;
  readonly arabic: string;
  readonly long: string;
  /** Ids of mail out: put off, sent back, taken. */
  readonly deferred: string;
  readonly bounced: string;
  readonly sent: string;
  stop(): Promise<void>;
}

/** Lets the afternoon pass, and opens the console at its end. */
export async function tellStory(program: string): Promise<Story> {
  const clock = createRunningClock(START, MOMENT_MS);
  const ids = createIds(clock);
  const zone = await startZone(NAMES);
  const carrier = await startMailSink({
    disabledCommands: ['STARTTLS'],
    onRcptTo({ address }, _session, done) {
      const [code, text] = REPLIES[address] ?? [];
      done(code === undefined ? undefined : Object.assign(new Error(text), { responseCode: code }));
    },
  });
  const app = await receiverAt(APP);
  const crm = await receiverAt(CRM);
  const running = await startDaemon(
    {
      POSTERN_HOSTNAME: 'mx.example.com',
      POSTERN_CONSOLE__OPERATOR_READS_MAIL: 'true',
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_INBOUND__OWNERSHIP: 'first',
      POSTERN_SMTP__THREADS: '0',
      POSTERN_SMTP__PROXY_PROTOCOL: '127.0.0.1',
      POSTERN_DELIVERY__RETRY_HOURS: '1',
      POSTERN_OUTBOUND__MX_PORT: String(carrier.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_OUTBOUND__ALLOW_PRIVATE: '127.0.0.0/8',
      POSTERN_OUTBOUND__FROM_OWN_DOMAINS: 'open',
    },
    { clock, ids },
  );
  const { api } = running;
  const store = await openStore(await openDatabase(testSettings(running.dir, {}), createTestLog()));
  const parts = { clock, ids };
  const shop = await createAccount(store, 'shop', parts);
  await createAccount(store, 'hotel-bookings', parts);

  const urlOf = (name: string, { port }: Receiver, path: string) =>
    `http://${name}${port === 80 ? '' : `:${port}`}${path}`;
  const support = urlOf('app.example.com', app, '/hooks/support');
  const orders = urlOf('app.example.com', app, '/hooks/orders');
  const customers = urlOf('crm.example.com', crm, '/inbound');
  for (const domain of ['in.example.com', 'mail.example.org', 'quiet.example.net'])
    await api('/inbound/add-domain', { domain });
  for (const domain of ['in.example.com', 'mail.example.org', 'quiet.example.net'])
    await api('/inbound/check-domain', { domain });
  for (const [pattern, url] of [
    ['support-*', support],
    ['orders', orders],
    ['sales', customers],
  ])
    await api('/inbound/add-route', { domain: 'in.example.com', pattern, url });

  const says = (path: string, status: number, body = '') => ({ path, status, body });
  let answers = [says('/hooks/support', 200), says('/hooks/orders', 200)];
  app.answer(({ url }) => {
    const { status, body } = answers.find(({ path }) => url.startsWith(path)) ?? { status: 200, body: '' };
    return { status, body, headers: { 'content-type': 'application/json', server: 'nginx' } };
  });

  const mail = (one: Incoming) => take(running, one);
  const deliveries = (params: object) => api('/inbound/deliveries', { limit: 200, ...params });
  const settled = () =>
    until('every first POST', async () =>
      (await deliveries({ state: 'waiting' })).every(({ attempts }: { attempts: unknown[] }) => attempts.length > 0),
    );
  const idOf = async (subject: string): Promise<string> => {
    let id: string | undefined;
    await until(`${subject} in the history`, async () => {
      id = (await api('/inbound/search', { query: `subject:"${subject}"` })).mails[0]?.id;
      return id !== undefined;
    });
    return id ?? '';
  };

  // 13:20: an endpoint that will not come back, so that its mail is given up within the afternoon.
  crm.answer({
    status: 500,
    headers: { server: 'nginx' },
    body: '{"error":"undefined method `id\' for nil:NilClass"}',
  });
  for (const [name, subject] of GIVEN_UP) {
    await mail({ from: `${name}@example.org`, to: 'sales@in.example.com', subject });
    await settled();
    await clock.advance(2 * MINUTE);
  }
  await clock.advance(20 * MINUTE);
  for (const [i, subject] of MORNING.entries()) {
    await mail({
      from: `${NAMES_OF_PEOPLE[i % NAMES_OF_PEOPLE.length]}@example.org`,
      to: `support-${i + 1}@in.example.com`,
      subject,
    });
    if (i % 3 === 1)
      await mail({ from: 'shop@example.net', to: 'orders@in.example.com', subject: `Order ${4700 + i}` });
    await settled();
    await clock.advance(5 * MINUTE);
  }

  // Guesses at mailboxes, and a client that may not.
  for (let i = 0; i < 24; i++)
    await refused(
      running,
      '203.0.113.7',
      'spam.test',
      'offers@spam.test',
      `${GUESSED[i % GUESSED.length]}@in.example.com`,
    );
  await refused(running, '203.0.113.9', 'mail.example.org', 'carol@example.org', 'suport-1@in.example.com');
  await refused(running, '198.51.100.24', 'relay.test', 'x@spam.test', 'somebody@example.edu');
  await clock.advance(4 * MINUTE);

  // One that is retried until it is taken.
  answers = [
    says('/hooks/support', 500, '{"error":"undefined method `id\' for nil:NilClass"}'),
    says('/hooks/orders', 200),
  ];
  await mail({ from: 'ann@example.org', to: 'support-1@in.example.com', subject: 'Order 4711 is late', text: LATE });
  await settled();
  await clock.advance(90_000);
  answers = [says('/hooks/support', 200, '{"ticket":48213}'), says('/hooks/orders', 200)];
  await clock.advance(4 * MINUTE);
  const retried = await idOf('Order 4711 is late');

  await mail({ from: 'shop@example.net', to: 'orders@in.example.com', subject: 'Your invoice for May', html: INVOICE });
  await mail({ from: 'layla@example.org', to: 'support-2@in.example.com', subject: ARABIC, text: ARABIC_TEXT });
  await mail({ from: 'carol@example.org', to: 'support-3@in.example.com', subject: LONG });
  await settled();
  const [html, arabic, long] = [
    await idOf('Your invoice for May'),
    await idOf(ARABIC),
    await idOf('A very long subject'),
  ];
  await api('/inbound/replay', { ids: [html] });

  const send = async (to: string, subject: string) => {
    const message = {
      from_email: 'shop@example.com',
      from_name: 'Example Shop',
      subject,
      text: `Hello,\n\n${subject}.\n\nYour Example Shop`,
      tags: ['orders'],
      to: [{ email: to }],
    };
    return (await api('/messages/send', { message }))[0]._id as string;
  };
  const state = (id: string, wanted: string) =>
    until(`${id} to be ${wanted}`, async () => (await api('/messages/info', { id })).state === wanted);
  const sent = await send('ann@example.net', 'Your order 4711 is on its way');
  const deferred = await send('grey@example.net', 'Your order 4712 is on its way');
  const bounced = await send('gone@example.net', 'Your order 4713 is on its way');
  for (const name of ['bob', 'carol', 'dora']) await send(`${name}@example.net`, 'News of May');
  await state(sent, 'sent');
  await state(deferred, 'deferred');
  await state(bounced, 'bounced');
  await api('/rejects/add', { email: 'no-more@example.net', comment: 'asked by telephone' });
  await api('/keys/add', { label: 'shop front' });

  // The newest ones wait for the endpoint that is down.
  for (const [name, subject] of WAITING) {
    await mail({ from: `${name}@example.org`, to: 'sales@in.example.com', subject });
    await clock.advance(20_000);
  }
  await mail({ from: 'dora@example.org', to: 'support-4@in.example.com', subject: 'Which size fits?' });

  for (const [name, role] of [
    ['ann', 'helper'],
    ['bob', 'owner'],
  ] as const)
    await addPerson(store, { name, role, account: shop.id }, parts);

  await addPerson(store, { name: 'olga', role: 'operator', account: null }, parts);
  await store.close();

  const page = await openConsolePage(program, running, app);
  await page.browser.setAhead(clock.now() - Date.now());
  return {
    page,
    support,
    crm: customers,
    retried,
    html,
    arabic,
    long,
    deferred,
    bounced,
    sent,
    async stop() {
      await page.stop();
      await crm.stop();
      await carrier.stop();
      await zone.stop();
    },
  };
}

/** A receiver on port 80 of an address of its own, so that its URL has no port; on a free one where that is not allowed. */
const receiverAt = (host: string): Promise<Receiver> =>
  startReceiver({ listen: { host, port: 80 } }).catch(() => startReceiver({ listen: { host, port: 0 } }));

interface Incoming {
  readonly from: string;
  readonly to: string;
  readonly subject: string;
  readonly text?: string;
  readonly html?: string;
}

/** Takes a mail in, from the server of the sender's domain. */
async function take({ smtp }: TestDaemon, { from, to, subject, text = 'Hello.', html }: Incoming): Promise<void> {
  const domain = from.replace(/^.*@/, '');
  const session = await openSession(smtp, SERVERS[domain]);
  try {
    for (const line of [`EHLO mail.${domain}`, `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, 'DATA']) {
      const reply = await session.say(line);
      if (!/^[23]/.test(reply)) throw new Error(`${line}: ${reply}`);
    }
    const name = from.replace(/@.*$/, '');
    const type = html === undefined ? 'text/plain' : 'text/html';
    const reply = await session.data(
      [
        `From: ${name.charAt(0).toUpperCase()}${name.slice(1)} Example <${from}>`,
        `To: <${to}>`,
        `Subject: =?utf-8?B?${Buffer.from(subject).toString('base64')}?=`,
        'Date: Tue, 12 May 2026 14:30:00 +0000',
        `Message-ID: <${Buffer.from(subject).toString('hex').slice(0, 12)}@${domain}>`,
        'MIME-Version: 1.0',
        `Content-Type: ${type}; charset=utf-8`,
        '',
        html ?? text,
        '',
      ].join('\r\n'),
    );
    if (!reply.startsWith('250')) throw new Error(`${subject}: ${reply}`);
  } finally {
    session.close();
  }
}

/** A session that ends at its recipient. */
async function refused({ smtp }: TestDaemon, client: string, helo: string, from: string, to: string): Promise<void> {
  const session = await openSession(smtp, client);
  for (const line of [`EHLO ${helo}`, `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, 'QUIT']) await session.say(line);
  session.close();
}

/** Servers that mail comes from. */
const SERVERS: Readonly<Record<string, string>> = { 'example.org': '203.0.113.9', 'example.net': '198.51.100.20' };

const NAMES = {
  'app.example.com': { A: [APP] },
  'crm.example.com': { A: [CRM] },
  'in.example.com': { MX: [{ exchange: 'mx.example.com', priority: 10 }] },
  'mail.example.org': { MX: [{ exchange: 'mail.old.example', priority: 10 }] },
  'example.org': { TXT: ['v=spf1 ip4:203.0.113.9 -all'] },
  '_dmarc.example.org': { TXT: ['v=DMARC1; p=reject'] },
  'example.net': { MX: [{ exchange: 'mx1.example.net', priority: 10 }], TXT: ['v=spf1 ip4:198.51.100.0/24 ~all'] },
  'mx1.example.net': { A: ['127.0.0.1'] },
};

/** What the server of example.net answers to a recipient, if it does not take it. */
const REPLIES: Readonly<Record<string, readonly [number, string]>> = {
  'grey@example.net': [451, '4.7.1 Greylisted, please try again in 5 minutes'],
  'gone@example.net': [550, '5.1.1 <gone@example.net>: Recipient address rejected: User unknown'],
};

const NAMES_OF_PEOPLE = ['bob', 'carol', 'dora', 'emil', 'frieda'];
const GUESSED = ['admin', 'info', 'webmaster', 'sales1', 'test', 'office'];
const GIVEN_UP = [
  ['emil', 'Offer for 40 chairs'],
  ['frieda', 'Re: Offer of last week'],
  ['emil', 'Please call me back'],
] as const;
const WAITING = [
  ['bob', 'Quote for a new office'],
  ['carol', 'Re: Quote for a new office'],
  ['dora', 'Do you deliver on Saturdays?'],
  ['emil', 'Catalogue, please'],
  ['bob', 'Prices for 2027'],
  ['frieda', 'Meeting on Thursday'],
] as const;
const MORNING = [
  'My parcel was left at the neighbour',
  'Can I change the address of order 4702?',
  'Invoice for April',
  'The voucher does not work',
  'Re: Your question about order 4698',
  'Two chairs instead of one',
  'How do I send something back?',
  'Order 4705: one screw is missing',
  'Thank you!',
];
const LONG =
  'A very long subject, as they are written by people who put the whole message into it and by machines such as ' +
  'build-server-0123456789-abcdefghijklmnopqrstuvwxyz.internal.example.org';
const ARABIC = '\u0637\u0644\u0628\u064a \u0631\u0642\u0645 4711 \u0644\u0645 \u064a\u0635\u0644 \u0628\u0639\u062f';
const ARABIC_TEXT =
  '\u0645\u0631\u062d\u0628\u0627\u060c\r\n\r\n\u0637\u0644\u0628\u064a \u0631\u0642\u0645 4711 \u0644\u0645 \u064a\u0635\u0644 \u0628\u0639\u062f. \u0634\u0643\u0631\u0627.';
const LATE =
  'Hello,\r\n\r\nmy order 4711 should have been here on Friday. The tracking page says "on its way" since Monday.\r\n' +
  'Could you please have a look?\r\n\r\nAnn';
const INVOICE =
  '<h2 style="color:#1c4f9c">Your invoice for May</h2><p>Dear customer,</p><p>order 4709, two chairs: <b>248.00</b></p>' +
  '<p><a href="https://shop.example.net/invoices/4709">Look at it</a></p><img src="https://shop.example.net/open.gif">';
