import { join } from 'node:path';
import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, LOOKS, PHONE, startConsolePage } from '../support/console-page.ts';
import { canLock, lockStore } from '../support/faults/store-lock.ts';
import { startKeepingNameServer } from '../support/keeping-name-server.ts';
import { openSession } from '../support/mail.ts';
import { EICAR, startClamd, startRspamd } from '../support/scanners.ts';
import { until } from '../support/until.ts';

// The console as a person sees it: the whole daemon, and a real browser.

const program = chromium();
if (program === undefined) console.log('The console is not looked at in a browser: no chromium on the PATH.');

const message = (subject: string, text = 'Hello') =>
  `From: Ann <ann@sender.test>\r\nTo: box-1@in.test\r\nSubject: ${subject}\r\n\r\n${text}\r\n`;

const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

if (program !== undefined)
  describe('the console in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program, { POSTERN_DELIVERY__RETRY_HOURS: '1' });
    });
    after(() => page?.stop());

    const location = () => page.browser.evaluate('location.pathname + location.search');
    const deliveries = (state: string) => page.running.api('/inbound/deliveries', { state });

    it('explains how to receive a first mail while there is none', async () => {
      await page.open('/');
      await page.shows('No messages yet');
      await page.shows('All systems normal. The queue is empty.');
    });

    it('sends a test message when the button is pressed, and shows its progress', async () => {
      await page.open('/');
      await page.press('Send a test message');
      await page.shows('hello@account-1.test');
      await page.shows('Delivered');
    });

    it('shows a new mail within a second, without a reload', async () => {
      const opening = Date.now();
      await page.open('/');
      await page.shows('Live');
      // A second, or what the whole page takes on this machine, if that is more.
      const bound = Math.max(1000, Date.now() - opening);
      // The first mail starts the thread that parses.
      await page.mail(message('Order 4710 is late'));
      await page.shows('Order 4710 is late');
      await page.mail(message('Order 4711 is late'));
      const began = Date.now();
      await page.shows('Order 4711 is late');
      expect(Date.now() - began).to.be.below(bound);
      await page.shows('Delivered');
    });

    it('finds a mail by a part of its subject, and shows its history', async () => {
      await page.open('/mail');
      await page.browser.press('/');
      await page.browser.type('4711 is');
      await page.browser.press('Enter');
      await until('the address of the search', async () => (await location()) === '/console/mail?q=4711+is');
      await page.press('Delivered');
      await page.press('Order 4711 is late');
      await page.shows('Timeline');
      const text = await page.text();
      expect(text).to.match(/Delivered on the 1st attempt/);
      expect(text).to.match(/Connected: 127\.0\.0\.1 \(client\.example\.org\)/);
      expect(text).to.match(/Accepted from ann@sender\.test for box-1@in\.test/);
      expect(text).to.match(/POST to 127\.0\.0\.1:\d+: 200/);
    });

    it('shows text, header, parts, source and payload of a mail', async () => {
      const [one] = await deliveries('delivered');
      await page.open(`/message/${one.id}`);
      await page.shows('Hello');
      expect(await page.text()).not.to.contain('Automated');
      await page.press('Headers');
      await page.shows('Ann <ann@sender.test>');
      await page.press('Parts');
      await page.shows('text/plain');
      await page.press('Raw');
      await page.shows('Subject: Order 4711 is late');
      await page.press('Payload');
      await page.shows('"raw_msg"');
      expect(await location()).to.equal(`/console/message/${one.id}?tab=payload`);
    });

    it('shows the HTML of a mail with its embedded pictures, and its links as text', async () => {
      const html =
        '<p style="color:#b00">Dear Ann</p><img src="cid:dot"><img src="http://shop.test/pixel"><a href="http://shop.test/a">Shop</a>';
      await page.mail(
        `From: shop@shop.test\r\nSubject: With HTML\r\nPrecedence: bulk\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n${html}\r\n--b\r\nContent-Type: image/png\r\nContent-ID: <dot>\r\nContent-Transfer-Encoding: base64\r\n\r\n${DOT}\r\n--b--\r\n`,
      );
      await page.open('/mail?q=%22With+HTML%22');
      await page.press('With HTML');
      await page.shows('1 image blocked');
      await page.shows('Automated: precedence');
      const { text, policy } = await page.browser.evaluate(
        `fetch(document.querySelector('iframe').src).then(async (one) => ({ text: await one.text(), policy: one.headers.get('content-security-policy') }))`,
      );
      expect(policy).to.match(/^sandbox; default-src 'none'; img-src data:/);
      expect(text).to.contain(`<img src="data:image/png;base64,${DOT}">`);
      expect(text).to.contain('<p style="color:#b00;">Dear Ann</p>');
      expect(text).to.not.contain('href');
      await page.press('1 link');
      await page.shows('http://shop.test/a');
    });

    it('explains why mail was refused, and what to do', async () => {
      const session = await openSession(page.running.smtp);
      await session.say('EHLO client.example.org');
      await session.say('MAIL FROM:<bob@sender.test>');
      const reply = await session.say('RCPT TO:<nobody@in.test>');
      session.close();
      await page.open('/refused');
      await page.shows('nobody@in.test');
      const text = await page.text();
      expect(text).to.contain(reply);
      expect(text).to.contain('bob@sender.test');
      expect(text).to.contain('No route of the domain matches the mailbox');
    });

    it('offers the refusal to a search for the mail', async () => {
      await page.open('/mail?q=bob%40sender.test');
      await page.shows('No messages match this search');
      await page.press('1 refusal also matches');
      await page.shows('nobody@in.test');
      expect(await location()).to.equal('/console/refused?q=bob%40sender.test');
    });

    it('replays all results of a search, after showing the count', async () => {
      const before = page.hook.requests.length;
      await page.open('/mail?q=subject%3A4711+state%3Adelivered');
      await page.press('Replay all that match');
      await page.shows('1 message will be posted again');
      expect(page.hook.requests.length).to.equal(before);
      await page.press('Replay 1');
      await page.shows('1 message queued for delivery.');
      await until('the POST', () => page.hook.requests.length === before + 1);
      await page.browser.press('Escape');
    });

    it('shows the signing key of an endpoint, and creates a new one', async () => {
      const [route] = await page.running.api('/inbound/routes', { domain: 'in.test' });
      const keyNow = async () => (await page.running.api('/inbound/route-key', { id: route.id })).auth_key;
      const before = await keyNow();
      await page.open(`/endpoint?url=${encodeURIComponent(page.hook.url)}`);
      await page.press('Signing key\u2026');
      await page.shows('whsec_');
      await page.shows(before);
      await page.press('Rotate\u2026');
      await page.shows('For 24 hours, webhook-signature carries the signatures of both keys');
      await page.press('Rotate key');
      await until('another key on the page', async () => {
        const now = await keyNow();
        return now !== before && page.browser.evaluate(`document.body.innerText.includes('${now}')`);
      });
      await page.browser.press('Escape');
      await until('the action to be noted', async () => {
        const { actions } = await page.running.api('/actions/list');
        return actions.some(({ what }: { what: string }) => what === 'signing key changed');
      });
    });

    it('shows that an endpoint fails, with its answer, and pauses and resumes it', async () => {
      page.hook.answer({ status: 500, body: 'undefined method `id` for nil' });
      await page.mail(message('Nobody takes this'));
      await page.open('/endpoints');
      await page.press(page.hook.url.replace('http://', ''));
      await page.shows('Recent POSTs');
      await page.shows('undefined method `id` for nil');
      await page.shows('1 message');
      await page.press('Pause');
      await page.shows('Paused. Mail is still accepted, and waits.');
      await page.press('Resume');
      // What was due during the pause is tried at once: it must not be delivered before there is something to press.
      await page.shows('Retry now');
      page.hook.answer({ status: 200 });
      await page.press('Retry now');
      await until('the delivery', async () => (await deliveries('waiting')).length === 0);
    });

    it('retries waiting mail of a failing endpoint from the start page', async () => {
      page.hook.answer({ status: 500 });
      await page.mail(message('Needs a new try'));
      await until('the failed POST', async () => (await deliveries('waiting'))[0]?.attempts.length > 0);
      await page.open('/');
      await page.shows('Needs attention');
      page.hook.answer({ status: 200 });
      await page.press('Retry now');
      await until('the delivery', async () => (await deliveries('waiting')).length === 0);
    });

    it('filters the list by a domain, one of its routes and an endpoint', async () => {
      const [{ id }] = await page.running.api('/inbound/routes', { domain: 'in.test' });
      const terms = async () => new URL(await location(), page.running.base).searchParams.get('q');
      await page.open('/mail');
      await page.choose('Domain', '@in.test');
      await until('the domain in the search', async () => (await terms()) === 'to:@in.test');
      await page.choose('Route', id);
      await until('the route in the search', async () => (await terms()) === `to:@in.test route:${id}`);
      await page.choose('Endpoint', page.hook.url);
      await page.shows('Order 4711 is late');
      expect(await terms()).to.equal(`to:@in.test route:${id} url:${page.hook.url}`);
      expect(await page.text()).to.not.contain('hello@account-1.test');
      await page.open('/refused');
      await page.choose('Domain', 'in.test');
      await page.shows('nobody@in.test');
      expect(await terms()).to.equal('domain:in.test');
    });

    it('shows an attempt as a command, without the signature', async () => {
      page.hook.answer({ status: 500 });
      await page.mail(message('As a command'));
      const failed = await until('the failed POST', async () =>
        (await deliveries('waiting')).find(({ attempts }: { attempts: unknown[] }) => attempts.length > 0),
      );
      page.hook.answer({ status: 200 });
      await page.open(`/message/${(failed as { id: string }).id}`);
      await page.press('Details');
      await page.press('Show as curl');
      await page.shows('Signatures, passwords and the URL query are omitted.');
      const text = await page.text();
      expect(text).to.contain(`curl '${new URL(page.hook.url).href}' \\`);
      expect(text).to.match(/--data-urlencode 'mandrill_events=\[\{"event":"inbound"/);
      expect(text.slice(text.indexOf("curl '"))).to.not.match(/^ {2}-H '[^']*signature/im);
    });

    it('keeps the details of an attempt open when the session is added above it', async () => {
      page.hook.answer({ status: 500 });
      const session = await openSession(page.running.smtp);
      for (const line of ['EHLO slow.test', 'MAIL FROM:<ann@sender.test>', 'RCPT TO:<box-1@in.test>', 'DATA'])
        await session.say(line);
      const [, taken = ''] = /queued as (\w+)/.exec(await session.data(message('Of a long session'))) ?? [];
      const { id } = await until('the failed POST', async () =>
        (await deliveries('waiting')).find(
          ({ id, attempts }: { id: string; attempts: unknown[] }) => id.startsWith(taken) && attempts.length > 0,
        ),
      );
      await page.open(`/message/${id}`);
      await page.press('Details');
      await page.shows('Request headers');
      expect(await page.text()).to.not.contain('Connected:');
      await session.say('QUIT');
      session.close();
      page.hook.answer({ status: 200 });
      await page.running.api('/inbound/retry', { id });
      await page.shows('Connected:');
      await page.shows('Request headers');
    });

    it('posts a mail to another URL as a trial, and shows the answer', async () => {
      const [one] = await deliveries('delivered');
      page.hook.answer({ status: 418, body: 'I am a teapot' });
      await page.open(`/message/${one.id}`);
      await page.press('Try another URL');
      await page.press('Post');
      await page.shows('HTTP 418');
      await page.shows('I am a teapot');
      page.hook.answer({ status: 200 });
      expect((await deliveries('delivered')).map(({ id }: { id: string }) => id)).to.include(one.id);
    });

    it('reports a failed request, and retries on request', async () => {
      await page.open('/mail?q=status%3Awrong');
      await page.shows('takes a status such as 500');
      await page.shows('Try again');
    });

    it('shows the sign-in screen after a session has ended, and rejects a wrong password', async () => {
      const { browser } = page;
      await page.open('/mail');
      const end = `fetch('/console/session', { method: 'DELETE', headers: { 'Content-Type': 'application/json', 'Postern-Console': '1' }, body: '{}' })`;
      // The page may notice it, and be gone, before this has its answer.
      await browser.evaluate(end).catch((error: unknown) => {
        if (!String(error).includes('navigated')) throw error;
      });
      await browser.open(`${page.running.base}/console/mail`, ...DESK);
      await until('the cursor in the first field', () =>
        browser.evaluate(`document.activeElement.autocomplete === 'username'`),
      );
      await browser.type('nobody');
      await browser.press('Tab');
      await browser.type('not the password');
      await browser.press('Enter');
      await page.shows('Wrong name or password.');
      expect(await page.faults()).to.deep.equal([]);
      await page.enter();
    });

    it('can be used by keyboard alone', async () => {
      await page.open('/mail');
      await page.shows('Order 4711');
      await page.browser.press('j');
      const first = await page.browser.evaluate(`document.activeElement.closest('[data-row]').dataset.row`);
      await page.browser.press('j');
      await page.browser.press('k');
      expect(await page.browser.evaluate(`document.activeElement.closest('[data-row]').dataset.row`)).to.equal(first);
      await page.browser.press('x');
      await page.shows('Replay 1 selected');
      await page.browser.press('Enter');
      await until('the message', async () => (await location()) === `/console/message/${first}`);
      await page.browser.press('Escape');
      await until('the list', async () => (await location()).startsWith('/console/mail'));
      await page.browser.press('?');
      await page.shows('next / previous row');
      await page.browser.press('Escape');
    });

    it('restores the list on going back, even before the message has loaded', async () => {
      const list = '/console/mail?q=from%3Asender.test';
      await page.open('/mail?q=from%3Asender.test');
      await page.shows('Order 4711');
      for (const waits of [false, true]) {
        // A list that is drawn anew just then has no row in focus.
        await until('the message', async () => {
          const inRow = await page.browser.evaluate(`document.activeElement.closest('[data-row]') !== null`);
          await page.browser.press(inRow ? 'Enter' : 'j');
          return (await location()).startsWith('/console/message/');
        });
        if (waits) await page.shows('Timeline');
        await page.browser.press('Escape');
        await until('the list', async () => (await location()) === list);
        // Not only its subject, which the message shows too.
        const row = `[...document.querySelectorAll('main [data-row]')].some((one) => one.innerText.includes('Order 4711'))`;
        await until('the row', () => page.browser.evaluate(row));
      }
    });

    it('shows the message beside the list if there is space', async () => {
      await page.open('/mail');
      await page.shows('Select a message to preview it (j/k)');
      await page.browser.press('j');
      await page.shows('Timeline');
      expect(await location()).to.equal('/console/mail');
    });

    const pathOf = async (name: string) => {
      if (name === 'endpoint') return `/endpoint?url=${encodeURIComponent(page.hook.url)}`;
      return name === 'message' ? `/message/${(await deliveries('delivered'))[0].id}` : name;
    };
    const screens = [
      '/',
      '/mail',
      '/mail?q=nothing+like+it',
      '/refused',
      '/endpoints',
      '/given-up',
      'message',
      'endpoint',
    ];
    for (const [scheme, size] of LOOKS)
      for (const name of screens)
        it(`${name} has no accessibility violations (axe), in ${scheme} colours at ${size[0]} px`, async () => {
          await page.browser.prefer(scheme);
          await page.go(await pathOf(name), size);
          expect(await page.faults()).to.deep.equal([]);
          if (size === PHONE) {
            await page.browser.resize(320, 700);
            expect(await page.fits(), 'at 320 px').to.equal(true);
          }
        });
  });

if (program !== undefined)
  describe('the console of an account without endpoints, in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program);
      await page.running.api('/inbound/delete-domain', { domain: 'in.test' });
    });
    after(() => page?.stop());

    it('shows receiver code in four languages', async () => {
      await page.open('/endpoints');
      await page.shows('No endpoints yet');
      await page.shows("from 'node:http'");
      await page.press('Rails');
      await page.shows('class MailController');
      await page.browser.press('ArrowRight');
      await page.shows('from django.http import HttpResponse');
      await page.browser.press('ArrowRight');
      await page.shows('<?php');
    });

    for (const [scheme, size] of LOOKS)
      it(`has no accessibility violations (axe), in ${scheme} colours at ${size[0]} px`, async () => {
        await page.browser.prefer(scheme);
        await page.open('/endpoints', size);
        await page.shows('Sample receiver');
        expect(await page.faults()).to.deep.equal([]);
        expect(await page.fits()).to.equal(true);
      });
  });

if (program !== undefined)
  describe('a scanned mail, in a browser', function () {
    this.timeout(120_000);

    it('shows the results of the scanners', async () => {
      const [rspamd, clamd] = [await startRspamd(), await startClamd()];
      const page = await startConsolePage(program, {
        POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
        POSTERN_SCAN__CLAMD: clamd.address,
      });
      try {
        await page.mail(message('An invoice', EICAR));
        await until('the POST', () => page.hook.requests.length > 0);
        const [{ id }] = await page.running.api('/inbound/deliveries');
        await page.open(`/message/${id}`);
        await page.shows('ham (score -0.5), infected: Eicar-Test-Signature, by rspamd and clamd');
      } finally {
        await page.stop();
        await Promise.all([rspamd.stop(), clamd.stop()]);
      }
    });
  });

if (program !== undefined)
  describe('the console of a daemon that is stopped or has no store, in a browser', function () {
    this.timeout(120_000);

    it('shows that it is not live, and retries', async () => {
      const page = await startConsolePage(program);
      try {
        await page.open('/');
        await page.shows('Live');
        await page.running.stop();
        await until('the seconds to be counted', async () =>
          /Disconnected, retrying (in [1-9]\d? s|now)/.test(await page.browser.evaluate('document.body.innerText')),
        );
        await page.press('Send a test message');
        await page.shows('Postern is not responding. Check that it is running.');
      } finally {
        await page.browser.close();
        await page.hook.stop();
      }
    });

    it('shows why a mail waits while the DNS does not answer', async () => {
      const names = await startKeepingNameServer();
      const page = await startConsolePage(program, {
        POSTERN_DNS__SERVERS: names.server,
        POSTERN_DNS__TIMEOUT_MS: '60000',
        POSTERN_DNS__BUDGET_MS: '60000',
      });
      try {
        names.keep();
        await page.mail(message('It waits'));
        const [{ id }] = await until('it waits', async () => {
          const found = await page.running.api('/inbound/deliveries', { state: 'waiting' });
          return found.length > 0 ? found : undefined;
        });
        await until('what it waits for', async () => {
          await page.open(`/message/${id}`);
          return /Being prepared: checking SPF, DKIM and DMARC\s+waiting for the DNS: TXT \S*sender\.test/.test(
            await page.text(),
          );
        });
        names.release();
        await page.shows('Delivered on the 1st attempt');
      } finally {
        names.release();
        await page.stop();
        names.stop();
      }
    });

    it('shows a mail that arrived after the list was read and before the live feed was open', async () => {
      const page = await startConsolePage(program);
      try {
        await page.browser.runFirst(`
          const Source = EventSource;
          window.EventSource = class {
            constructor(url) { window.openFeed = () => { window.openFeed = undefined; this.real = Object.assign(new Source(url), { onopen: () => this.onopen() }); }; }
            addEventListener() {}
            close() { this.real?.close(); }
          };`);
        await page.open('/mail');
        await page.shows('No messages yet');
        const session = await openSession(page.running.smtp);
        await session.say('EHLO client.example.org');
        await session.say('MAIL FROM:<bob@sender.test>');
        await session.say('RCPT TO:<box-1@in.test>');
        await session.say('DATA');
        await session.data(message('In between'));
        session.close();
        await until('the history', async () => (await page.running.api('/inbound/search', {})).mails.length > 0);
        expect(await page.text()).not.to.contain('In between');
        await page.browser.evaluate('openFeed()');
        await page.shows('In between');
      } finally {
        await page.stop();
      }
    });

    it('links from a refused mailbox, in the session of a mail, to the remedy', async () => {
      const page = await startConsolePage(program);
      try {
        const session = await openSession(page.running.smtp);
        await session.say('EHLO client.example.org');
        await session.say('MAIL FROM:<bob@sender.test>');
        await session.say('RCPT TO:<nobody@in.test>');
        await session.say('RCPT TO:<box-1@in.test>');
        await session.say('DATA');
        await session.data(message('For one of two'));
        session.close();
        await until('the POST', () => page.hook.requests.length > 0);
        await page.open('/mail');
        await page.press('For one of two');
        // What is pressed stands below what comes last.
        await page.shows('Delivered on the 1st attempt');
        await until('the text', () =>
          page.browser.evaluate(`document.querySelector('[role=tabpanel]')?.innerText.length > 0`),
        );
        await page.press('Refusals from this client');
        await page.shows('Add a route for it');
        expect(await page.browser.evaluate('location.search')).to.equal('?q=client%3A127.0.0.1');
      } finally {
        await page.stop();
      }
    });

    it('waits for a slot when too many calls of its session are still running', async () => {
      const page = await startConsolePage(program);
      try {
        await page.open('/');
        const refusal = { name: 'Too_Many_Tries', message: 'Too many requests. Try again in a moment.' };
        await page.browser.evaluate(`{
          const ask = window.fetch;
          let left = 2;
          window.fetch = (path, given) => String(path).startsWith('/console/call/inbound/domains') && left-- > 0
            ? Promise.resolve(Response.json(${JSON.stringify(refusal)}, { status: 429 })) : ask(path, given);
          window.wasRefused = false;
          new MutationObserver(() => {
            window.wasRefused ||= document.body.innerText.includes('Too many requests');
          }).observe(document.body, { childList: true, subtree: true, characterData: true });
        }`);
        await page.press('Domains');
        await page.shows('in.test');
        expect(await page.browser.evaluate('window.wasRefused')).to.equal(false);
      } finally {
        await page.stop();
      }
    });

    it('reports once that the store is unavailable, still accepts mail, and recovers by itself afterwards', async function () {
      if (!canLock()) return this.skip();
      const page = await startConsolePage(program);
      const said = async () => String(await page.browser.evaluate('document.body.innerText'));
      const times = (text: string) => text.split('The database is not responding').length - 1;
      try {
        await page.open('/');
        const release = await lockStore(join(page.running.dir, 'store.db'));
        try {
          await page.press('Domains');
          await until('the banner', async () => times(await said()) === 1);
          expect(await said()).to.contain('Lists may be out of date. Mail is still accepted.');
          expect(await page.mail(message('Taken meanwhile'))).to.match(/^250 /);
        } finally {
          await release();
        }
        await until('the banner to go by itself', async () => times(await said()) === 0);
        await page.shows('in.test');
        await page.press('Inbound');
        await page.shows('Taken meanwhile');
      } finally {
        await page.stop();
      }
    });
  });
