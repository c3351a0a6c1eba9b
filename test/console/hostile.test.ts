import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { expect } from 'chai';
import { type Browser, chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';

// Mail that wants to be noticed: nothing of it may run, and not one connection may leave the browser.

const program = chromium();

/** Ways out of a page, to a listener. */
const ways = (at: string): Readonly<Record<string, string>> => ({
  'an image': `<img src="http://${at}/img">`,
  'an image of several sizes': `<img srcset="http://${at}/srcset 2x">`,
  'a style sheet': `<link rel="stylesheet" href="http://${at}/css">`,
  'an import': `<style>@import url("http://${at}/import");</style>`,
  'a font': `<style>@font-face{font-family:f;src:url("http://${at}/font")}p{font-family:f}</style><p>x</p>`,
  'a background': `<div style="background:url(http://${at}/background)">x</div>`,
  'a background attribute': `<table background="http://${at}/table"><tr><td>x</td></tr></table>`,
  'an image set': `<div style="background-image:image-set('http://${at}/set' 1x)">x</div>`,
  'a preconnect': `<link rel="preconnect" href="http://${at}">`,
  'a prefetch': `<link rel="prefetch" href="http://${at}/prefetch">`,
  'a preload': `<link rel="preload" as="image" href="http://${at}/preload">`,
  'an SVG image': `<svg><image href="http://${at}/svg"/></svg>`,
  'an SVG filter': `<svg width="9" height="9"><filter id="f"><feImage href="http://${at}/fe"/></filter><rect width="9" height="9" filter="url(#f)"/></svg>`,
  'a poster': `<video poster="http://${at}/poster"></video>`,
  'a film': `<video src="http://${at}/video" autoplay muted></video>`,
  'a frame': `<iframe src="http://${at}/frame"></iframe>`,
  'an object': `<object data="http://${at}/object"></object>`,
  'an embed': `<embed src="http://${at}/embed">`,
  'a refresh': `<meta http-equiv="refresh" content="0;url=http://${at}/refresh">`,
  'a script': `<script src="http://${at}/script"></script>`,
  'a script of its own': `<script>fetch("http://${at}/own")</script>`,
  'a script of an image': `<img src="x" onerror="fetch('http://${at}/onerror')">`,
  'a form that is sent': `<form action="http://${at}/form"><input name="a" autofocus onfocus="this.form.submit()"></form>`,
  'a link': `<a href="http://${at}/link" style="position:fixed;inset:0;display:block">x</a>`,
  'a link to the top': `<a href="http://${at}/top" target="_top" style="position:fixed;inset:0;display:block">x</a>`,
});

/** Everything at once, and the clicks; with `CONSOLE=small` only these. */
const ALL = 'all of them';
const FEW = [ALL, 'a link', 'a link to the top'];
const NAMES = process.env['CONSOLE'] === 'small' ? FEW : [...Object.keys(ways('')), ALL];

/** Another origin than 127.0.0.1, with the same listener. */
const MAIL_HOST = 'localhost';

if (program !== undefined)
  describe('hostile mail in the console', function () {
    this.timeout(120_000);
    let listener: Server;
    let at: string;
    let connections = 0;
    let marker: HttpServer;
    let marked = 0;

    before(async () => {
      listener = createServer((socket) => {
        connections++;
        socket.on('error', () => undefined);
        socket.resume();
        socket.end('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n');
      });
      await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
      at = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
      marker = createHttpServer((_, response) => {
        marked++;
        response.writeHead(204, { Connection: 'close' }).end();
      });
      await new Promise<void>((resolve) => marker.listen(0, '127.0.0.1', resolve));
    });
    after(async () => {
      await new Promise((resolve) => listener.close(resolve));
      await new Promise((resolve) => marker.close(resolve));
    });

    /**
     * Waits until a request has arrived that the browser began after all that the page has begun by itself. The control
     * below shows that connections of a page without protection arrive before it.
     */
    async function settled({ evaluate, elsewhere }: Browser): Promise<void> {
      await evaluate('new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(0))))');
      const before = marked;
      await elsewhere(`http://127.0.0.1:${(marker.address() as AddressInfo).port}/`, () =>
        until('the request of another tab', async () => marked > before),
      );
    }

    const htmlOf = (name: string) =>
      `<p>Look here</p>${name === ALL ? Object.values(ways(at)).join('\r\n') : ways(at)[name]}`;

    async function takeIn(page: ConsolePage, html: string): Promise<string> {
      const reply = await page.mail(
        `Subject: <img src="http://${at}/subject">\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n${html}`,
      );
      const [, id = ''] = /queued as (\w+)/.exec(reply) ?? [];
      expect(id, reply).to.not.equal('');
      let found: { id: string }[] = [];
      await until('the delivery', async () => {
        found = (await page.running.api('/inbound/deliveries')).filter(
          (one: { message_id: string }) => one.message_id === id,
        );
        return found.length === 1;
      });
      return found[0]?.id ?? '';
    }

    async function sendOut({ running }: ConsolePage, html: string): Promise<string> {
      const to = [{ email: 'ann@to.test' }];
      const message = { from_email: 'news@sender.test', subject: `<img src="http://${at}/subject">`, html, to };
      return (await running.api('/messages/send', { message }))[0]._id;
    }

    /** Opens the HTML of a mail at a path of the console, and clicks into the middle of it. */
    async function look({ open, browser }: ConsolePage, path: string): Promise<void> {
      await open(`${path}?tab=html`);
      await until('the mail in its frame', async () => (await browser.framed()).includes('<p>Look here</p>'));
      const middle = `(() => { const frame = document.querySelector('iframe'); frame.scrollIntoView({ block: 'center' }); const { x, y, width, height } = frame.getBoundingClientRect(); return [x + width / 2, y + height / 2]; })()`;
      const [x, y] = await browser.evaluate(middle);
      await settled(browser);
      await browser.click(x, y);
      await settled(browser);
      expect(await browser.evaluate(`location.pathname`), 'the page stays').to.equal(`/console${path}`);
      expect(await browser.framed(), 'the mail stays').to.contain('<p>Look here</p>');
    }

    const ROADS = [
      ['that came in', '/message', takeIn],
      ['that goes out', '/sent', sendOut],
    ] as const;

    describe('at the origin of the console', () => {
      let page: ConsolePage;
      before(async () => {
        page = await startConsolePage(program);
      });
      after(() => page?.stop());

      for (const [road, screen, take] of ROADS)
        for (const name of NAMES)
          it(`makes no connection for ${name} in mail ${road}, clicked into as well`, async () => {
            const before = connections;
            await look(page, `${screen}/${await take(page, htmlOf(name))}`);
            expect(connections - before).to.equal(0);
          });

      it('would be detected: the same mail without filter and policy connects', async () => {
        const before = connections;
        const plain = createHttpServer((request, response) => {
          response.setHeader('Content-Type', 'text/html');
          const isMail = request.url === '/mail';
          response.end(isMail ? Object.values(ways(at)).join('\n') : '<iframe sandbox="" src="/mail"></iframe>');
        });
        await new Promise<void>((resolve) => plain.listen(0, '127.0.0.1', resolve));
        await page.browser.open(`http://127.0.0.1:${(plain.address() as AddressInfo).port}/`, 800, 600);
        await settled(page.browser);
        expect(connections - before).to.be.at.least(10);
        await page.browser.open('about:blank', 800, 600);
        plain.closeAllConnections();
        await new Promise((resolve) => plain.close(resolve));
      });

      it('shows subjects, names, replies and HELO as text, without policy violations', async () => {
        page.hook.answer({ status: 500, body: `<img src="http://${at}/answer">` });
        const before = connections;
        const file = `Content-Type: image/svg+xml; name="<img src=x onerror=alert(1)>.svg"`;
        const id = await takeIn(page, `<p>x</p>\r\n${file}`);
        await page.open('/');
        await page.browser.evaluate(
          `window.violations = []; document.addEventListener('securitypolicyviolation', (one) => violations.push(one.violatedDirective)); 0`,
        );
        await page.shows(`<img src="http://${at}/subject">`);
        for (const path of ['/mail', '/endpoints', `/message/${id}`]) {
          await page.browser.evaluate(
            `history.pushState(null, '', '/console${path}'); dispatchEvent(new PopStateEvent('popstate')); 0`,
          );
          await settled(page.browser);
        }
        await page.shows(`<img src="http://${at}/answer">`);
        expect(await page.browser.evaluate('violations')).to.deep.equal([]);
        expect(await page.browser.evaluate(`document.querySelectorAll('#app img, #app script').length`)).to.equal(0);
        expect(connections - before).to.equal(0);
      });
    });

    describe('at an origin of its own', () => {
      let page: ConsolePage;
      before(async () => {
        const port = await freePort();
        page = await startConsolePage(program, {
          POSTERN_HTTP__LISTEN: `127.0.0.1:${port}`,
          POSTERN_CONSOLE__MAIL_ORIGIN: `http://${MAIL_HOST}:${port}`,
        });
      });
      after(() => page?.stop());

      for (const [road, screen, take] of ROADS)
        for (const name of FEW)
          it(`makes no connection for ${name} in mail ${road}, from a host without cookies`, async () => {
            const before = connections;
            await look(page, `${screen}/${await take(page, htmlOf(name))}`);
            expect(connections - before).to.equal(0);
            const from = await page.browser.evaluate(`new URL(document.querySelector('iframe').src).hostname`);
            expect(from).to.equal(MAIL_HOST);
          });
    });
  });
