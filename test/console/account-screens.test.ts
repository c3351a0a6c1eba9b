import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { postern } from '../support/command.ts';
import { type ConsolePage, LOOKS, PHONE, startConsolePage } from '../support/console-page.ts';
import { openSession } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// The screens for what an account has and sends: domains, lists, mail out, keys.

const program = chromium();

if (program !== undefined)
  describe('the screens of an account in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    let zone: Zone;
    let relay: MailSink;
    let ns1: Zone;
    let ns2: Zone;
    const NAMES = {
      'relay.test': { A: ['127.0.0.1'] },
      'ns1.host.test': { A: ['127.0.0.1'] },
      'ns2.host.test': { A: ['127.0.0.2'] },
      'in.test': { NS: ['ns1.host.test', 'ns2.host.test'] },
      'good.test': { MX: [{ exchange: 'in.postern.test', priority: 10 }] },
      'wrong.test': { MX: [{ exchange: 'mail.old.test', priority: 10 }], NS: ['ns1.host.test', 'ns2.host.test'] },
    };
    before(async () => {
      zone = await startZone(NAMES);
      ns1 = await startZone({ 'wrong.test': NAMES['good.test'] });
      ns2 = await startZone({ 'wrong.test': NAMES['wrong.test'] }, { host: '127.0.0.2', port: ns1.port });
      relay = await startMailSink();
      page = await startConsolePage(program, {
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_DNS__TIMEOUT_MS: '5000',
        POSTERN_DNS__AUTHORITY_PORT: String(ns1.port),
        POSTERN_OUTBOUND__RELAY: `smtp://relay.test:${relay.port}`,
      });
    });
    after(async () => {
      await page?.stop();
      await relay?.stop();
      await Promise.all([zone?.stop(), ns1?.stop(), ns2?.stop()]);
    });

    const location = () => page.browser.evaluate('location.pathname + location.search');
    const api = (path: string, params?: object) => page.running.api(path, params);

    it('explains how to send a first message while there is none', async () => {
      await page.open('/sent');
      await page.shows('No messages sent in the last 7 days');
      expect(await page.text()).to.contain('/api/1.0/messages/send.json');
    });

    describe('domains and routes', () => {
      it('adds a domain, and shows an error in its MX record with the expected value', async () => {
        await page.open('/domains');
        await page.press('Add a domain\u2026');
        await page.fill('Domain', 'wrong.test');
        await page.press('Add domain');
        await until('the domain', async () => (await location()) === '/console/domain/wrong.test');
        await page.shows('Wrong MX');
        await page.shows('The MX records of wrong.test point to mail.old.test, not to in.postern.test');
        await page.shows('10 in.postern.test.');
        expect((await api('/inbound/domains')).map(({ domain }: { domain: string }) => domain)).to.include(
          'wrong.test',
        );
      });

      it('lists the domain under "needs attention" while its DNS is wrong', async () => {
        await page.open('/');
        await page.shows('Needs attention');
        await page.press('The MX records of wrong.test point to mail.old.test');
        await until('the domain', async () => (await location()) === '/console/domain/wrong.test');
      });

      it('shows the answer of each name server, since when, and the next check', async () => {
        await page.open('/domain/wrong.test');
        const lists = () =>
          page.browser.evaluate(
            `[...document.querySelectorAll('.dns ul.servers')].map((one) => [...one.children].map((row) => row.innerText.replaceAll(/\\s+/g, ' ')))`,
          );
        expect(await until('both records', async () => (await lists()).length === 2 && lists())).to.deep.equal([
          ['OK ns1.host.test', 'Wrong value ns2.host.test has 10 mail.old.test.'],
          ['Missing ns1.host.test no such record', 'Missing ns2.host.test no such record'],
        ]);
        expect(await page.text()).to.match(/Unchanged for (a moment|\d+ s)\. Next check in 59 min\./);
      });

      it('shows at once that the record is correct on every name server', async () => {
        zone.set({ ...NAMES, 'wrong.test': { ...NAMES['wrong.test'], ...NAMES['good.test'] } });
        await page.open('/domain/wrong.test');
        ns2.set({ 'wrong.test': NAMES['good.test'] });
        await page.press('Check now');
        await page.shows('The MX record points here');
        await until('the second name server', async () => /OK\s+ns2\.host\.test/.test(await page.text()));
      });

      it('opens a dialog at once, so that the next key or click reaches it', async () => {
        await page.open('/domains');
        const isOpen = await page.browser.evaluate(`(async () => {
          [...document.querySelectorAll('button')].find((one) => one.innerText.trim() === 'Add a domain\u2026').click();
          await new Promise((resolve) => setTimeout(resolve));
          return document.querySelector('dialog[open]') !== null;
        })()`);
        expect(isOpen).to.equal(true);
        await page.browser.press('Escape');
      });

      it('shows the error of the API beside the field', async () => {
        await page.open('/domains');
        await page.press('Add a domain\u2026');
        await page.fill('Domain', 'localhost');
        await page.press('Add domain');
        await page.shows('Not a valid domain name');
        expect(
          await page.browser.evaluate(`document.querySelector('[aria-invalid]').closest('label').innerText`),
        ).to.match(/^Domain[^]*Not a valid domain name$/);
        await page.browser.press('Escape');
      });

      it('adds routes, shows them in the order in which they match, and why an address matches one of them', async () => {
        await page.open('/domain/wrong.test');
        await page.shows('No routes yet');
        for (const pattern of ['*', 'support-*', 'support-1']) {
          await page.press('Add a route\u2026');
          await page.fill('Mailbox', pattern);
          await page.fill('URL', page.hook.url);
          await page.press('Add route');
          await until('the route', async () => (await page.text()).includes(`\n${pattern}\n`));
        }
        const order = `[...document.querySelectorAll('.routes .pattern')].map((one) => one.innerText)`;
        expect(await page.browser.evaluate(order)).to.deep.equal(['support-1', 'support-*', '*']);
        await page.fill('Address', 'support-9@wrong.test');
        await page.browser.press('Enter');
        await page.shows('Accepts the mail.');
        expect(await location()).to.equal('/console/domain/wrong.test?test=support-9%40wrong.test');
        expect(
          await page.browser.evaluate(`[...document.querySelectorAll('.verdicts li')].map((one) => one.innerText)`),
        ).to.deep.equal([
          'support-*\n1.3\nAccepts the mail.',
          'support-1\n1.4\nThe pattern does not match the mailbox.',
          '*\n1.2\nRoute 1.3 is tried first and accepts the mail.',
        ]);
        await page.press('Sample payload');
        await page.shows('"email": "support-9@wrong.test"');
      });

      it('tests the address again after a route changes, and reports that no route is left', async () => {
        await page.open('/domain/wrong.test?test=support-9%40wrong.test');
        await page.press('Edit\u2026');
        await page.fill('Mailbox', 'support-9');
        await page.press('Save');
        await until('another match', async () => /support-9\s+1\.4\s+Accepts the mail/.test(await page.text()));
        for (const left of [2, 1, 0]) {
          await page.press('Remove\u2026');
          await page.shows('Mail already accepted is still posted.');
          await page.press('Remove route');
          await until('one less', async () => (await api('/inbound/routes', { domain: 'wrong.test' })).length === left);
          await until('the dialog to close', () =>
            page.browser.evaluate(`document.querySelector('dialog[open]') === null`),
          );
        }
        await page.shows('is refused with 550 5.1.1');
        await page.shows('This domain has no routes.');
      });

      it('sets the payload format of a route, and shows an example', async () => {
        await page.open('/domain/wrong.test');
        await page.press('Add a route\u2026');
        await page.fill('Mailbox', 'form');
        await page.fill('URL', page.hook.url);
        await page.choose('Format', 'postmark');
        await page.fill('Password (optional)', 'secret');
        await page.press('Add route');
        await page.shows(', as postmark, with a password');
        await page.fill('Address', 'form@wrong.test');
        await page.browser.press('Enter');
        await page.shows('Accepts the mail.');
        await page.press('Sample payload');
        await page.shows('application/json');
        await page.shows('"OriginalRecipient": "form@wrong.test"');
        const [{ id }] = await api('/inbound/routes', { domain: 'wrong.test' });
        await api('/inbound/delete-route', { id });
      });

      it('sets conditions of a route, keeps them on other changes, and shows when they apply', async () => {
        await page.open('/domain/wrong.test');
        await page.press('Add a route\u2026');
        await page.fill('Mailbox', 'strict');
        await page.choose('Applies to', 'yes');
        await page.fill('Subject', '*casino*, *lottery*');
        await page.choose('Automated', 'false');
        await page.choose('DMARC', 'fail');
        await page.choose('Action', 'reject');
        await page.press('Add route');
        await page.shows('Rejects (550) when subject = *casino* or *lottery* and automated = no and dmarc = fail');
        const [{ id, when }] = await api('/inbound/routes', { domain: 'wrong.test' });
        expect(when).to.deep.equal({ subject: ['*casino*', '*lottery*'], automated: false, dmarc: 'fail' });
        await api('/inbound/update-route', { id, when: { ...when, size: { over: 9 } } });
        await page.open('/domain/wrong.test');
        await page.press('Edit\u2026');
        await page.fill('Priority', '7');
        await page.press('Save');
        await page.shows('priority 7');
        const [changed] = await api('/inbound/routes', { domain: 'wrong.test' });
        expect(changed.when).to.deep.equal({ ...when, size: { over: 9 } });
        await page.fill('Address', 'strict@wrong.test');
        await page.browser.press('Enter');
        await page.shows('depends on the message');
        await page.shows('Depends on: subject, size, automated, dmarc.');
        await api('/inbound/delete-route', { id });
      });

      it('explains why a URL cannot be a route', async () => {
        await page.open('/domain/wrong.test');
        await page.press('Add a route\u2026');
        await page.fill('Mailbox', '*');
        await page.fill('URL', 'http://127.0.0.1:9/');
        await page.press('Add route');
        await page.shows("We can't verify that the URL exists. Cause:");
        await page.browser.press('Escape');
      });

      it('removes a domain after a confirmation that lists what is deleted', async () => {
        await page.open('/domain/wrong.test');
        await page.press('Remove domain\u2026');
        await page.shows('Mail to it will be refused.');
        await page.press('Remove domain');
        await until('the list', async () => (await location()) === '/console/domains');
        expect(await api('/inbound/domains')).to.have.length(1);
        await until('the list without it', async () => !(await page.text()).includes('wrong.test'));
      });

      it('links a refusal to the routes that could have matched the address', async () => {
        const session = await openSession(page.running.smtp);
        for (const line of ['EHLO client.test', 'MAIL FROM:<ann@sender.test>', 'RCPT TO:<nobody@in.test>'])
          await session.say(line);
        session.close();
        await page.open('/refused');
        await until('the counts, which move the list', () =>
          page.browser.evaluate(`document.querySelector('.reasons') !== null`),
        );
        await page.press('Test the routes');
        await page.shows('is refused with 550 5.1.1');
        await page.shows('The pattern does not match the mailbox.');
      });

      it('creates a route for a refused address', async () => {
        await page.open('/refused');
        await until('the counts, which move the list', () =>
          page.browser.evaluate(`document.querySelector('.reasons') !== null`),
        );
        await page.press('Add a route for it');
        await page.shows('Add a route');
        const mailbox = `[...document.querySelectorAll('dialog label')].find((one) => one.innerText.startsWith('Mailbox')).querySelector('input').value`;
        expect(await until('the form', () => page.browser.evaluate(mailbox))).to.equal('nobody');
        await page.fill('URL', page.hook.url);
        await page.press('Add route');
        await page.shows('Accepts the mail.');
        expect(await location()).to.equal('/console/domain/in.test?test=nobody%40in.test');
        const routes = await api('/inbound/routes', { domain: 'in.test' });
        const made = routes.find(({ pattern }: { pattern: string }) => pattern === 'nobody');
        await api('/inbound/delete-route', { id: made.id });
      });

      it('posts a sample to the route that an address matches, and to an endpoint, and shows the answer', async () => {
        const trials = () => page.hook.requests.filter(({ headers }) => headers['x-postern-trial'] === '1');
        page.hook.answer({ status: 418, body: 'a <b>teapot</b>' });
        await page.open('/domain/in.test?test=box-7%40in.test');
        await page.press('Post a sample');
        await page.shows('HTTP 418');
        await page.shows('a <b>teapot</b>');
        expect(trials()).to.have.length(1);
        expect(await page.faults()).to.deep.equal([]);
        await page.open(`/endpoint?url=${encodeURIComponent(page.hook.url)}`);
        await page.press('Post a sample');
        await page.shows('Posted one sample for box-sample@in.test.');
        await page.shows('HTTP 418');
        expect(trials()).to.have.length(2);
        page.hook.answer({ status: 200 });
      });

      it('shows that the operator has paused an endpoint, and lets an operator resume it', async () => {
        const url = page.hook.url;
        await page.mail('Subject: known\r\n\r\nHello');
        await until('a POST', async () => (await api('/endpoints/info', { url })).last_at !== null);
        await page.browser.evaluate(
          `fetch('/console/call/host/pause', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Postern-Console': '1' }, body: ${JSON.stringify(JSON.stringify({ query: `url:${url}` }))} }).then((answer) => answer.status)`,
        );
        await page.open(`/endpoint?url=${encodeURIComponent(url)}`);
        await page.shows('Paused by the operator of this service');
        expect((await page.running.ask('/endpoints/resume', { url })).body.name).to.equal('Endpoint_Held');
        await page.press('Resume');
        await page.shows('Resumed.');
        expect(await api('/endpoints/info', { url })).to.include({ paused: false });
      });
    });

    /** Sends a mail, and answers its id. */
    const send = async (email: string, subject = 'Your order'): Promise<string> => {
      const message = { from_email: 'news@sender.test', subject, text: 'Hello', to: [{ email }] };
      const [{ _id: id }] = await api('/messages/send', { message });
      return id;
    };

    describe('lists', () => {
      it('shows an empty state, and adds an address with a reason', async () => {
        await page.open('/lists');
        await page.shows('No suppressed addresses');
        await page.press('Add an address\u2026');
        await page.fill('Address', 'Ann@to.test');
        await page.fill('Note (optional)', 'asked us to stop');
        await page.press('Add address');
        await page.shows('asked us to stop');
        await until('the entry', async () => /Manual[^]*ann@to\.test[^]*no expiry/.test(await page.text()));
      });

      it('shows why an address is suppressed, the message that caused it, and the cost of removing it', async () => {
        relay.refuse({ code: 550, text: '5.1.1 No such user <b>here</b>' });
        const id = await send('gone@to.test');
        await until('the entry', async () => (await api('/rejects/list', { email: 'gone' })).length === 1);
        relay.refuse(undefined);
        await page.open('/lists?q=gone');
        await page.shows('5.1.1 No such user <b>here</b>');
        await until('the bounce', async () =>
          /Hard bounce[^]*gone@to\.test[^]*expires in 6 days/.test(await page.text()),
        );
        await until('the other is left out', async () => !(await page.text()).includes('ann@to.test'));
        expect(await page.browser.evaluate(`document.querySelector('.listed a').getAttribute('href')`)).to.equal(
          `/console/sent/${id}`,
        );
        await page.press('Remove\u2026');
        await page.shows('This lowers your reputation');
        await page.press('Remove address');
        await page.shows('No addresses match this search and reason');
        expect(await api('/rejects/list', { email: 'gone' })).to.deep.equal([]);
      });

      it('whitelists an address, and then rejects no mail to it', async () => {
        await page.open('/lists');
        await page.press('Whitelist');
        await page.shows('No whitelisted addresses');
        expect(await location()).to.equal('/console/lists?list=whitelist');
        await page.press('Add an address\u2026');
        await page.fill('Address', 'friend@to.test');
        await page.press('Add address');
        await page.shows('Whitelisted');
        await page.press('Suppressed');
        await page.press('Add an address\u2026');
        await page.fill('Address', 'friend@to.test');
        await page.press('Add address');
        await page.shows('friend@to.test is on the whitelist. Remove it there first.');
        await page.browser.press('Escape');
      });

      it('filters addresses by prefix in the search, and by reason', async () => {
        await page.open('/lists');
        await page.browser.press('/');
        await page.browser.type('bob');
        await page.browser.press('Enter');
        await page.shows('No addresses match this search and reason');
        await page.press('Show all');
        await page.shows('ann@to.test');
        await page.open('/lists?reason=spam');
        await page.shows('No addresses match this search and reason');
      });

      it('exports the list', async () => {
        await page.open('/lists');
        await page.press('Export');
        await page.shows('Download export');
        const url = await page.browser.evaluate(`document.querySelector('a[download]').href`);
        const archive = await fetch(page.running.base + new URL(url).pathname);
        expect(archive.headers.get('content-type')).to.equal('application/zip');
      });
    });

    describe('mail out', () => {
      it('shows the full SMTP dialog of a deferred message', async () => {
        relay.refuse({ code: 451, text: '4.7.1 Greylisted <i>try again</i>' });
        const id = await send('grey@to.test', 'Your order');
        await until('the attempt', async () => (await api('/messages/info', { id })).delivery.attempts.length === 1);
        await until('the event', async () => (await api('/messages/info', { id })).state === 'deferred');
        await page.open('/sent');
        await page.press('Deferred');
        expect(await location()).to.equal('/console/sent?q=state%3Adeferred');
        await page.press('Your order');
        await until('the message', async () => (await location()) === `/console/sent/${id}`);
        await page.shows('Deferred by the recipient\u2019s server after');
        const text = await page.text();
        expect(text).to.match(/relay\.test: 451 after \d/);
        const lines = await page.browser.evaluate(
          `[...document.querySelectorAll('.dialog li')].map((one) => one.textContent)`,
        );
        expect(lines).to.include('\u2192sent: RCPT TO:<grey@to.test>');
        expect(lines).to.include('\u2190received: 451 4.7.1 Greylisted <i>try again</i>');
        await page.shows('Hello');
        relay.refuse(undefined);
      });

      it('retries a message now, and cancels another', async () => {
        relay.refuse({ code: 451, text: '4.7.1 Try again later' });
        const [first, second] = [await send('again@to.test', 'Again'), await send('enough@to.test', 'Enough')];
        const story = (id: string) => api('/messages/info', { id });
        for (const id of [first, second])
          await until('an attempt', async () => (await story(id)).delivery.attempts.length > 0);
        await page.open(`/sent/${second}`);
        await page.press('Stop trying\u2026');
        await page.press('Stop trying');
        await page.shows('stopped manually');
        expect((await story(second)).delivery.state).to.equal('dropped');
        relay.refuse(undefined);
        await page.open(`/sent/${first}`);
        await page.press('Retry now');
        await until('it is sent', async () => (await story(first)).state === 'sent');
        expect(relay.mails.some(({ to }) => to.includes('enough@to.test'))).to.equal(false);
        await until('what was done', async () =>
          (await api('/actions/list')).actions.some(
            ({ what, detail }: { what: string; detail: string }) =>
              what === 'dropped' && detail === `message ${second}`,
          ),
        );
      });

      it('sends a message again, as a new one', async () => {
        const id = await send('twice@to.test', 'Twice');
        await until('it is sent', async () => (await api('/messages/info', { id })).state === 'sent');
        await page.open(`/sent/${id}`);
        await page.press('Send again\u2026');
        await page.shows('as a new message');
        await page.press('Send again');
        await page.press('a new message');
        await until('it came twice', () => relay.mails.filter(({ to }) => to.includes('twice@to.test')).length === 2);
        expect(await location())
          .to.match(/^\/console\/sent\/[0-9a-f]{32}$/)
          .and.to.not.contain(id);
      });

      it('shows the HTML of a message in a frame that runs nothing', async () => {
        const html = '<p>Hello <b>there</b></p><script>parent.document.title = "run"</script>';
        const message = { from_email: 'news@sender.test', subject: 'With HTML', html, to: [{ email: 'html@to.test' }] };
        const [{ _id: id }] = await api('/messages/send', { message });
        await page.open(`/sent/${id}`);
        await page.press('HTML');
        await until('the frame', () => page.browser.evaluate(`document.querySelector('iframe.mail-frame') !== null`));
        expect(
          await page.browser.evaluate(`document.querySelector('iframe.mail-frame').getAttribute('sandbox')`),
        ).to.equal('');
        const shown = await page.browser.evaluate(
          `fetch(document.querySelector('iframe.mail-frame').src).then((answer) => answer.text())`,
        );
        expect(shown).to.contain('<p>Hello <b>there</b></p>').and.to.not.contain('script');
        await page.press('HTML source');
        await page.shows('parent.document.title');
        expect(await page.browser.evaluate('document.title')).to.not.equal('run');
        expect(await page.faults()).to.deep.equal([]);
      });

      it('shows where and when a message was sent, and the replies', async () => {
        const id = await send('jo@to.test', 'Taken at once');
        await until('it is sent', async () => (await api('/messages/info', { id })).state === 'sent');
        relay.refuse({ code: 550, text: '5.1.1 No such user' });
        const back = await send('nobody@to.test', 'Comes back');
        await until('it came back', async () => (await api('/messages/info', { id: back })).state === 'bounced');
        relay.refuse(undefined);
        await page.open(`/sent/${id}`);
        await page.shows('Accepted by relay.test');
        await page.press('SMTP dialog');
        await until('the size', async () => /\(\d+ bytes\)/.test(await page.text()));
        await page.open(`/sent/${back}`);
        await page.shows('Bounced: bad mailbox');
        await page.shows('nobody@to.test is suppressed');
        await page.press('Remove suppression\u2026');
        await until('the question', () => page.browser.evaluate(`document.querySelector('dialog[open]') !== null`));
        await page.press('Remove address');
        await page.press('Suppress this address\u2026');
        await page.press('Suppress address');
        await page.shows('nobody@to.test is suppressed');
        expect((await api('/rejects/list', { email: 'nobody@to.test' }))[0].detail).to.equal(
          'suppressed in the console',
        );
      });

      it('sends a scheduled message now, and cancels one', async () => {
        const later = async (email: string) => {
          const message = { from_email: 'news@sender.test', subject: 'Later', text: 'x', to: [{ email }] };
          const at = new Date(Date.now() + 86_400_000).toISOString().slice(0, 19).replace('T', ' ');
          return (await api('/messages/send', { message, send_at: at }))[0]._id;
        };
        const [first, second] = [await later('one@to.test'), await later('two@to.test')];
        await page.open(`/sent/${first}`);
        await page.press('Send now');
        await until('it leaves', () => relay.mails.some(({ to }) => to.includes('one@to.test')));
        await page.open(`/sent/${second}`);
        await page.press('Cancel message\u2026');
        await page.shows('Cancel this message?');
        await page.press('Cancel message');
        await until('nothing is scheduled', async () => (await api('/messages/list-scheduled')).length === 0);
      });

      it('shows that a message does not exist', async () => {
        await page.open('/sent/0123456789abcdef0123456789abcdef');
        await page.shows('It has expired, or belongs to another account');
      });
    });

    describe('keys and actions', () => {
      it('creates a key, shows it once with a working call, and revokes it', async () => {
        await page.open('/keys');
        await page.press('Create key\u2026');
        await page.fill('Label (optional)', 'billing');
        await page.press('Create key');
        await page.shows('Copy it now; it is not shown again.');
        const key = await page.browser.evaluate(`document.querySelector('.secret').innerText`);
        expect(await page.browser.evaluate(`document.querySelector('dialog pre').innerText`)).to.match(
          new RegExp(`^curl ${page.running.base}/api/1\\.0/users/ping\\.json -d '\\{"key":"${key}"\\}'$`),
        );
        const ping = async () =>
          (
            await fetch(`${page.running.base}/api/1.0/users/ping.json`, {
              method: 'POST',
              body: JSON.stringify({ key }),
            })
          ).status;
        expect(await ping()).to.equal(200);
        await page.press('Close');
        await page.shows('billing');
        expect(await page.browser.evaluate(`document.body.innerText.includes(${JSON.stringify(key)})`)).to.equal(false);
        await page.browser.evaluate(
          `[...document.querySelectorAll('.keys-made li')].find((one) => one.innerText.includes('billing')).querySelector('button').click()`,
        );
        await page.shows('Programs that use it lose access within seconds.');
        await page.press('Revoke key');
        await until('it is gone', async () => !(await page.text()).includes('billing'));
        await until('the key is refused', async () => (await ping()) !== 200);
      });

      it('shows who created and revoked a key', async () => {
        await page.open('/actions');
        await until('the notes', async () => {
          await page.open('/actions');
          return /operator\s+key revoked\s+\S+ \(billing\)[^]*operator\s+key created/.test(await page.text());
        });
      });

      it('offers a helper only permitted actions', async () => {
        const added = await postern(['person', 'add', 'hal', '--role', 'helper', '--json'], {
          POSTERN_DATA_DIR: page.running.dir,
          POSTERN_HTTP__LISTEN: new URL(page.running.base).host,
        });
        await page.enter(added.records()[0].url);
        const buttons = () =>
          page.browser.evaluate(`[...document.querySelectorAll('.screen button')].map((one) => one.innerText)`);
        await page.open('/lists');
        await page.shows('ann@to.test');
        expect(await buttons()).to.deep.equal([]);
        await page.open('/domain/in.test');
        await page.shows('DNS records');
        expect(await buttons()).to.deep.equal(['Copy', 'Copy']);
        expect(await page.browser.evaluate(`document.querySelector('.rail').innerText`)).to.not.contain('Keys');
        await page.open('/keys');
        await page.shows('Helpers cannot open this page.');
        await page.enter();
      });
    });

    describe('all account screens', () => {
      it('are under "More" on a telephone, by keyboard too', async () => {
        await page.open('/', PHONE);
        await page.press('More');
        await page.press('Domains');
        await until('the screen', async () => (await location()) === '/console/domains');
      });

      const pathOf = async (path: string) =>
        path === 'sent' ? `/sent/${(await api('/messages/search', { query: 'email:grey' }))[0]._id}` : path;
      const screens = Object.entries({
        domains: '/domains?test=box-7%40in.test',
        lists: '/lists',
        'mail out': '/sent',
        'no mail out': '/sent?q=nothing+like+it',
        'a message out': 'sent',
        keys: '/keys',
        'what was done': '/actions',
        'an empty list': '/lists?q=zz',
        whitelist: '/lists?list=whitelist',
        'a domain': '/domain/in.test?test=nobody%40in.test',
      });
      for (const [scheme, size] of LOOKS)
        for (const [name, path] of screens)
          it(`${name} has no accessibility violations (axe), in ${scheme} colours at ${size[0]} px`, async () => {
            await page.browser.prefer(scheme);
            await page.go(await pathOf(path), size);
            expect(await page.faults()).to.deep.equal([]);
            if (size === PHONE) {
              await page.browser.resize(320, 700);
              expect(await page.fits(), 'at 320 px').to.equal(true);
            }
          });
    });
  });
