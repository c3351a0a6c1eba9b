import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { createRunningClock } from '../support/clock.ts';
import { type ConsolePage, openConsolePage } from '../support/console-page.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { openSession, type Session } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// What people ask the console each day, by the page alone: from its start to the answer, with the steps and seconds that it
// takes. `QUESTIONS_MAILS=100000` asks on a busy host.

const MAILS = Number(process.env['QUESTIONS_MAILS'] ?? 400);
/** One in this number is for the endpoint that is down. */
const DOWN_EVERY = 40;
const SESSIONS = 20;
/** Mails of one session. */
const A_SESSION = 50;
const MINUTE = 60_000;
const FAULT = '{"error":"undefined method `id\' for nil:NilClass"}';
const program = chromium();

/** Something a person does: a press, or a text typed and sent with Enter. */
interface Steps {
  press(label: string): Promise<void>;
  search(text: string): Promise<void>;
  shows(text: string): Promise<void>;
}

if (program !== undefined)
  describe(`five questions to a host with ${MAILS.toLocaleString('en')} mails, in a browser`, function () {
    this.timeout(120_000 + MAILS * 40);
    const clock = createRunningClock(Date.now() - 140 * MINUTE, 20);
    const crmPosts: string[] = [];
    let crmAnswers = 500;
    let zone: Zone;
    let crm: Receiver;
    let running: TestDaemon;
    let page: ConsolePage;
    before(async () => {
      zone = await startZone({
        'in.test': { MX: [{ exchange: 'mail.old.test', priority: 10 }] },
        'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      });
      const app = await startReceiver();
      app.answer(() => {
        app.requests.length = 0; // a hundred thousand bodies are too many to keep
        return { status: 200 };
      });
      crm = await startReceiver();
      crm.answer(({ body }) => {
        crm.requests.length = 0;
        crmPosts.push(new URLSearchParams(body.toString()).get('mandrill_events') ?? '');
        return { status: crmAnswers, body: crmAnswers === 200 ? '' : FAULT };
      });
      running = await startDaemon(
        {
          POSTERN_CONSOLE__OPERATOR_READS_MAIL: 'true',
          POSTERN_DELIVERY__RETRY_HOURS: '1',
          POSTERN_DNS__SERVERS: zone.server,
          POSTERN_INBOUND__OWNERSHIP: 'first',
        },
        { clock },
      );
      await running.api('/inbound/add-domain', { domain: 'in.test' });
      await running.api('/inbound/check-domain', { domain: 'in.test' });
      for (const [pattern, url] of [
        ['box-*', app.url],
        ['order-*', crm.url],
      ])
        await running.api('/inbound/add-route', { domain: 'in.test', pattern, url });
      await take(running, MAILS);
      await refuse(running);
      await until('the first POST of each', async () => (await waiting(running, app.url)) === 0, 60_000 + MAILS * 20);
      // What waits for the endpoint that is down is given up after an hour; a look each hour finds it.
      await clock.advance(130 * MINUTE);
      await until('what was given up', async () => (await waiting(running, crm.url)) === 0, 60_000 + MAILS);
      page = await openConsolePage(program, running, app);
      await page.browser.setAhead(clock.now() - Date.now());
    });
    after(async () => {
      await (page ?? running)?.stop();
      await crm?.stop();
      await zone?.stop();
    });

    /** Asks from the start page on, and says what it took. */
    async function ask(question: string, answer: (steps: Steps) => Promise<void>): Promise<number> {
      await page.open('/');
      await page.shows('Live');
      let steps = 0;
      const began = performance.now();
      await answer({
        press: (label) => {
          steps++;
          return page.press(label);
        },
        async search(text) {
          steps++;
          await page.browser.press('/');
          await page.browser.type(text);
          await page.browser.press('Enter');
        },
        shows: page.shows,
      });
      console.log(`      ${question} steps ${steps}, s ${((performance.now() - began) / 1000).toFixed(1)}`);
      return steps;
    }

    it("where is Bob's mail? It is in the list, with its status", async () => {
      const steps = await ask("Where is Bob's mail?", async ({ search, shows }) => {
        await search('bob@sender.test');
        await shows('Where is my parcel?');
        await shows('Delivered');
      });
      expect(steps).to.be.at.most(2);
      expect(await page.text()).to.not.contain('Order 1 ');
    });

    it('why was ann@ refused? Shows the reply, the reason and what to do', async () => {
      const steps = await ask('Why was ann@ refused?', async ({ press, search, shows }) => {
        await press('Refused');
        await shows('guess-');
        await search('ann@sender.test');
        await shows('suport-1@in.test');
        await shows('No route of the domain matches the mailbox');
      });
      expect(steps).to.be.at.most(2);
      const text = await page.text();
      expect(text).to.match(/550 5\.1\.1/);
      expect(text).to.not.contain('guess-1@in.test');
    });

    it('what does my webhook answer? Groups equal answers on one line, with count and time', async () => {
      const steps = await ask('What does my webhook answer?', async ({ press, shows }) => {
        await press('Endpoints');
        await press(`:${crm.port}`);
        await shows('undefined method');
      });
      expect(steps).to.be.at.most(2);
      const text = await page.text();
      expect(text.match(/undefined method/g)).to.have.length(1);
      expect(text).to.match(/HTTP 500\s+×[\d,]+\s+\{"error":"undefined method.*\s+\d+ (?:s|min|h) ago/);
    });

    it('can you replay what failed? Replays only failed mail, after showing the count', async () => {
      const given = Math.floor(MAILS / DOWN_EVERY);
      crmAnswers = 200;
      crmPosts.length = 0;
      const many = given.toLocaleString('en');
      const steps = await ask('Replay what failed:', async ({ press, shows }) => {
        await press(`:${crm.port}`); // under "Needs attention"
        await press('Replay failed mail');
        await shows(`${many} messages will be posted again`);
        expect(crmPosts).to.deep.equal([]);
        await press(`Replay ${many}`);
        await until('every POST', () => crmPosts.length >= given, 60_000 + MAILS);
      });
      expect(steps).to.be.at.most(3);
      const subjects = crmPosts.map((events) => JSON.parse(events)[0].msg.subject);
      expect(subjects).to.have.members(
        Array.from({ length: given }, (_, i) => `Order ${(i + 1) * DOWN_EVERY} is late`),
      );
    });

    it('is my DNS right? Names the wrong record, and the expected value', async () => {
      const steps = await ask('Is my DNS right?', async ({ press, shows }) => {
        await press('Domains');
        await press('in.test');
        await shows('mail.old.test');
        await shows('in.postern.test');
      });
      expect(steps).to.be.at.most(2);
    });
  });

/** Sends numbered mail, by many sessions at a time; one in the middle is Bob's. */
async function take({ smtp }: TestDaemon, many: number): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < many) {
      const session = await openSession(smtp);
      await session.say('EHLO mail.sender.test');
      for (let i = 0; i < A_SESSION && next < many; i++) {
        const n = ++next;
        const to = n % DOWN_EVERY === 0 ? `order-${n}@in.test` : `box-${n % 50}@in.test`;
        if (n === Math.floor(many / 2) + 1) await mail(session, 'bob@sender.test', to, 'Where is my parcel?');
        else await mail(session, `person-${n % 1000}@sender.test`, to, `Order ${n} is late`);
      }
      session.close();
    }
  };
  await Promise.all(Array.from({ length: SESSIONS }, client));
}

async function mail(session: Session, from: string, to: string, subject: string): Promise<void> {
  for (const line of [`MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, 'DATA']) {
    const reply = await session.say(line);
    if (!/^[23]/.test(reply)) throw new Error(`${line}: ${reply}`);
  }
  const reply = await session.data(`From: <${from}>\r\nTo: <${to}>\r\nSubject: ${subject}\r\n\r\nHello.\r\n`);
  if (!reply.startsWith('250')) throw new Error(reply);
}

/** Guesses at mailboxes, and a mailbox that Ann has misspelt. */
async function refuse({ smtp }: TestDaemon): Promise<void> {
  for (let i = 0; i <= 100; i++) {
    const session = await openSession(smtp);
    const [from, to] =
      i === 50 ? ['ann@sender.test', 'suport-1@in.test'] : [`guesser-${i}@spam.test`, `guess-${i}@in.test`];
    for (const line of ['EHLO mail.sender.test', `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, 'QUIT'])
      await session.say(line);
    session.close();
  }
}

async function waiting({ api }: TestDaemon, url: string): Promise<number> {
  return (await api('/endpoints/info', { url })).waiting;
}
